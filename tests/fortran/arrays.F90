! arrays save|restore DIRECTORY - a box of 12 x 10 x 8 cells with ghost cells, cut along its last two dimensions,
! on any number of ranks. save fills and saves it as epoch 5; restore reads it into the pieces of now, and
! compares. The communicator is one of mpi_f08 with USE_MPI_F08, else of mpi.
module closing
#ifdef USE_MPI_F08
  use mpi_f08
#else
  use mpi
#endif
  use tailrace
  implicit none

  type(tailrace_session) :: session
  integer :: key = MPI_KEYVAL_INVALID

contains

  ! MPI_Finalize deletes attributes of MPI_COMM_SELF, the last one first. Open sessions are closed before.
  subroutine after_closing(communicator, its_key, attribute, extra, ierror)
#ifdef USE_MPI_F08
    type(MPI_Comm) :: communicator
#else
    integer :: communicator
#endif
    integer :: its_key, ierror
    integer(MPI_ADDRESS_KIND) :: attribute, extra
    ! Open MPI gives another communicator than MPI_COMM_SELF here.
    if (communicator == MPI_COMM_NULL .or. its_key /= key .or. attribute /= 0 .or. extra /= 0) &
      call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
    if (session%rank() >= 0) then
      print "(a)", "MPI_Finalize went on with an open session"
      call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
    end if
    ierror = MPI_SUCCESS
  end subroutine

end module

program arrays
#ifdef USE_MPI_F08
  use mpi_f08
#else
  use mpi
#endif
  use closing
  use tailrace
  use, intrinsic :: iso_c_binding, only: c_associated, c_int, c_int64_t, c_ptr
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none

  integer, parameter :: whole(3) = [12, 10, 8], ghosts = 2
  type(tailrace_options) :: options
  real(real64), allocatable, target :: u(:, :, :)
  integer, target :: steps(2), of_all(1), items = 0
  real(real64), target :: time = 0
  integer(int64), target :: items64 = 0
  real(real64), target :: positions(3, 500)
  character(7), target :: names(500)
  character(500) :: task, directory
  integer :: provided, ierror, rank, ranks, first(3), cells(3), i, j, k, step = 0

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  call get_command_argument(1, task)
  call get_command_argument(2, directory)

  call cut()
  allocate (u(1 - ghosts:cells(1) + ghosts, 1 - ghosts:cells(2) + ghosts, 1 - ghosts:cells(3) + ghosts))
  u = -1
  steps = 0
  of_all = 0
  call options%set("shared_dir", directory)
  call options%set("files", 2)
  call refuse_no_communicator()
  call session%open(MPI_COMM_WORLD, options)
  if (session%rank() /= rank .or. session%rank_count() /= ranks) call fail("ranks")
  call session%register("u", u(1:cells(1), 1:cells(2), 1:cells(3)), global_shape=whole, first=first)
  call session%register("of all", of_all, global_shape=[1], first=[1], overlap=.true.)
  call session%register_replicated("time", time)
  call session%register_list("positions", positions, items)
  call session%register_list("names", names, items64)
  if (task == "save") then
    do concurrent(i=1:cells(1), j=1:cells(2), k=1:cells(3))
      u(i, j, k) = value(i, j, k)
    end do
    steps = rank + [1, 2]
    of_all = 42
    time = 1.5
    call make_list()
    call session%register("steps", steps)
    call session%save(5)
  else
    call session%set_list_owner("names", last_first)
    call session%restore(step)
    if (step /= 5) call fail("the step")
    if (of_all(1) /= 42) call fail("a value that all ranks have alike")
    if (time /= 1.5) call fail("a replicated value")
    call check_list()
    do k = lbound(u, 3), ubound(u, 3)
      do j = lbound(u, 2), ubound(u, 2)
        do i = lbound(u, 1), ubound(u, 1)
          if (inside(i, j, k)) then
            if (u(i, j, k) /= value(i, j, k)) call fail("a cell")
          else
            if (u(i, j, k) /= -1) call fail("a ghost cell was written")
          end if
        end do
      end do
    end do
  end if
  if (task == "restore") then
    call session%close()
  else  ! MPI_Finalize closes it
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, after_closing, key, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_set_attr(MPI_COMM_SELF, key, 0_MPI_ADDRESS_KIND, ierror)
  end if
  call MPI_Finalize(ierror)

contains

  subroutine refuse_no_communicator()
    character(500) :: problem
    integer :: status
    call session%open(MPI_COMM_NULL, options, stat=status, errmsg=problem)
    if (status /= tailrace_invalid_argument .or. index(problem, "MPI_COMM_NULL") == 0) call fail(trim(problem))
  end subroutine

  ! Rank r of the four that save has 50 * r items, which are numbered through; rank 0 has none.
  subroutine make_list()
    integer :: before
    items = 50*rank
    items64 = items
    before = 50*rank*(rank - 1)/2
    do i = 1, items
      positions(:, i) = before + i + [0.25d0, 0.5d0, 0.75d0]
      write (names(i), "(i7)") before + i
    end do
    if (rank /= 1) return
    items = size(names) + 1
    call refuse_save("its count is 501, and its array has room for 500 items")
    items = -1
    call refuse_save("its count is -1")
    items = 50
  end subroutine

  subroutine refuse_save(wanted)
    character(*), intent(in) :: wanted
    character(500) :: problem
    type(tailrace_options) :: elsewhere
    type(tailrace_session) :: alone
    integer :: status
    call elsewhere%set("shared_dir", trim(directory)//" of one rank")
    call alone%open(elsewhere, stat=status, errmsg=problem)
    if (status /= tailrace_ok) call fail(trim(problem))
    call alone%register_list("positions", positions, items)
    call alone%save(1, stat=status, errmsg=problem)
    if (status /= tailrace_invalid_argument .or. index(problem, wanted) == 0) call fail(trim(problem))
    call alone%remove("positions")
    call alone%close()
  end subroutine

  subroutine check_list()
    integer :: before, before_names, share
    if (ranks == 4) then
      before = 50*rank*(rank - 1)/2
      before_names = before
      share = 50*rank
    else  ! 300 items, which 3 and 1 share evenly
      share = 300/ranks
      before = rank*share
      before_names = 300 - (rank + 1)*share
    end if
    if (items /= share .or. items64 /= share) call fail("the number of items")
    do i = 1, items
      if (any(abs(positions(:, i) - (before + i + [0.25d0, 0.5d0, 0.75d0])) > 0)) call fail("an item")
      read (names(i), *) j
      if (j /= before_names + i) call fail("an item of text")
    end do
  end subroutine

  function last_first(unused, index, items, rank_count) bind(C) result(owner)
    type(c_ptr), value :: unused
    integer(c_int64_t), value :: index, items
    integer(c_int), value :: rank_count
    integer(c_int) :: owner
    owner = rank_count - 1 - int(index*rank_count/items, c_int)
    if (c_associated(unused)) owner = -1
  end function

  ! Ranks share dimensions 2 and 3.
  subroutine cut()
    integer :: parts(3), place(3)
    parts = [1, merge(2, 1, mod(ranks, 2) == 0), ranks/merge(2, 1, mod(ranks, 2) == 0)]
    place = [0, mod(rank, parts(2)), rank/parts(2)]
    first = whole*place/parts + 1
    cells = whole*(place + 1)/parts - first + 1
  end subroutine

  pure logical function inside(i, j, k)
    integer, intent(in) :: i, j, k
    inside = all([i, j, k] >= 1 .and. [i, j, k] <= cells)
  end function

  pure real(real64) function value(i, j, k)
    integer, intent(in) :: i, j, k
    value = sum(([i, j, k] + first - 1)*[1, 100, 10000])
  end function

  subroutine fail(what)
    character(*), intent(in) :: what
    print "(a, i0, 2a)", "rank ", rank, " finds wrong: ", what
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end subroutine

end program
