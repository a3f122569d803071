! heat.f90 - heat spreading over a square plate, and how a Fortran program saves a decomposed array.
!
!     mpif90 heat.f90 -o heat $(pkg-config --cflags --libs tailrace_fortran)
!     mpiexec -n 4 ./heat DIRECTORY [STEPS [SIZE]]
!
! Every rank owns some columns of the plate. The plate is saved as one global array, so a run may be killed and
! go on with another number of ranks: each gets the columns it owns now. The result does not depend on it.
program heat
  use mpi
  use tailrace
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none

  type(tailrace_options) :: options
  type(tailrace_session) :: session
  real(real64), allocatable, target :: u(:, :), next(:, :)
  character(:), allocatable :: why
  logical :: going_on, stopping
  integer :: rank, ranks, provided, ierror, size, first, columns, i, j
  integer :: step = 0, steps

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  steps = number(2, 2000)
  size = number(3, 512)
  first = size*rank/ranks + 1
  columns = size*(rank + 1)/ranks - first + 1
  allocate (u(size, 0:columns + 1), next(size, 0:columns + 1), source=0.0_real64)
  if (rank == 0) u(:, 1) = 100 ! the border on the left is hot
  next = u

  call options%set("shared_dir", directory())
  call options%set("stop_signals", "TERM USR1")
  call session%open(MPI_COMM_WORLD, options)
  ! Columns 0 and columns + 1 are copies of the neighbours' columns: they are not in the section, so they are
  ! not saved. The first exchange brings them back.
  call session%register("plate", u(:, 1:columns), global_shape=[size, size], first=[1, first])
  call session%restore(step, going_on)
  if (rank == 0 .and. going_on) print "(a, i0)", "going on from step ", step

  stopping = .false.
  do while (step < steps .and. .not. stopping)
    call exchange_edges()
    do j = 1, columns
      if (first + j - 1 == 1 .or. first + j - 1 == size) cycle
      do i = 2, size - 1
        next(i, j) = u(i, j) + 0.2_real64*(u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4*u(i, j))
      end do
    end do
    u(:, 1:columns) = next(:, 1:columns)
    step = step + 1
    call session%should_stop(stopping, why)
    if (mod(step, 200) == 0 .or. stopping) call session%save(step) ! one copy
  end do
  if (rank == 0 .and. stopping) print "(a, i0, 2a)", "stopping after step ", step, ": ", why
  call session%close() ! waits for the flushes

  call print_sum()
  call MPI_Finalize(ierror)

contains

  subroutine exchange_edges()
    integer :: left, right
    left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    right = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
    call MPI_Sendrecv(u(1, 1), size, MPI_DOUBLE_PRECISION, left, 0, u(1, columns + 1), size, MPI_DOUBLE_PRECISION, &
                      right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(u(1, columns), size, MPI_DOUBLE_PRECISION, right, 1, u(1, 0), size, MPI_DOUBLE_PRECISION, &
                      left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
  end subroutine

  ! The exclusive or of all bits, turned by their place: equal for every number of ranks.
  subroutine print_sum()
    integer(int64) :: mine, whole
    mine = 0
    do j = 1, columns
      do i = 1, size
        mine = ieor(mine, ishftc(transfer(u(i, j), mine), mod(i + 31*(first + j - 1), 64)))
      end do
    end do
    call MPI_Reduce(mine, whole, 1, MPI_INTEGER8, MPI_BXOR, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) print "(a, i0, a, z16.16)", "after ", step, " steps the plate's bits are ", whole
  end subroutine

  function directory()
    character(:), allocatable :: directory
    integer :: length
    if (command_argument_count() < 1) then
      directory = "heat-checkpoints"
      return
    end if
    call get_command_argument(1, length=length)
    allocate (character(length) :: directory)
    call get_command_argument(1, directory)
  end function

  integer function number(argument, default)
    integer, intent(in) :: argument, default
    character(20) :: text
    integer :: problem
    number = default
    if (command_argument_count() < argument) return
    call get_command_argument(argument, text)
    read (text, *, iostat=problem) number
    if (problem == 0 .and. number > 0) return
    if (rank == 0) print "(a)", "usage: heat [DIRECTORY [STEPS [SIZE]]]"
    call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  end function

end program
