! A program in Fortran that was written for FTI. tests/mpi/fti_test.py starts it: fti_ranks_fortran CONFIG LAST
! goes on where it was, takes a checkpoint in each step up to LAST, and ends without FTI_Finalize.
program ranks_fortran
  use FTI
  use, intrinsic :: iso_c_binding
  implicit none
  include 'mpif.h'
  type :: particle
    real(8) :: place(3)
    integer :: tag
  end type
  character(len=200) :: config, text
  integer, target :: step, rank, last, err, world, status, level, type
  integer, pointer :: step_pointer
  integer(c_int64_t) :: bytes
  integer(c_int64_t), parameter :: extents(2) = [2, 3]
  real(8), pointer :: grid(:, :)
  complex, target :: wave(5)
  logical, target :: flag
  character(len=7), target :: label
  type(particle), target :: particles(4)
  type(c_ptr) :: grown
  integer, pointer :: values(:)

  call get_command_argument(1, config)
  call get_command_argument(2, text)
  read (text, *) last
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, err)
  world = MPI_COMM_WORLD
  call FTI_Init(trim(config)//'  ', world, err)
  call expect(err == FTI_SCES, 'FTI_Init')
  call expect(world /= MPI_COMM_WORLD, 'the communicator is another one')
  call MPI_Comm_rank(world, rank, err)
  call FTI_Status(status)

  step_pointer => step
  allocate (grid(4, 6 + rank))
  step = 0
  call change
  call FTI_Protect(0, step_pointer, err)
  call expect(err == FTI_SCES, 'a scalar')
  call FTI_Protect(1, grid, err)
  call expect(err == FTI_SCES, 'an array')
  call FTI_Protect(2, wave, err)
  call FTI_Protect(3, flag, err)
  call FTI_Protect(4, label, err)
  call FTI_Protect(5, particles, err)
  call expect(err == FTI_SCES, 'a derived type')
  call FTI_Protect(6, grid(1:3:2, :), err)
  call expect(err == FTI_NSCS, 'a section with gaps')
  type = FTI_InitType(12_c_size_t)
  call expect(type >= 0, 'FTI_InitType')
  type = FTI_InitCompositeType('pair', 16_c_size_t)
  call expect(FTI_AddScalarField(type, 'a', FTI_REAL8, 8_c_size_t) == FTI_SCES, 'a field')
  call expect(FTI_AddScalarField(type, 'a', FTI_REAL8, 9_c_size_t) == FTI_NSCS, 'a field outside of the type')
  call expect(FTI_AddVectorField(type, 'b', FTI_INTEGER2, 4_c_size_t, 2, int(extents)) == FTI_SCES, 'a vector')
  call FTI_SetAttribute(1, 'grid', FTI_ATTRIBUTE_NAME, err)
  call expect(err == FTI_NSCS, 'FTI_SetAttribute')
  call FTI_SetAttribute(1, extents, FTI_ATTRIBUTE_DIM, err)
  call FTI_InitICP(1, 1, .true., err)
  call expect(err == FTI_NSCS, 'FTI_InitICP')

  grown = c_null_ptr
  if (status /= 0) then
    call FTI_GetStoredSize(7, bytes)
    call FTI_Realloc(7, grown, err)
    call expect(err == FTI_SCES .and. mod(bytes, 4_c_int64_t) == 0, 'FTI_Realloc')
    call FTI_Protect(7, grown, int(bytes/4), FTI_INTEGER4, err)
    call FTI_RecoverVarInit(err)
    call FTI_RecoverVar(7, err)
    call expect(err == FTI_SCES, 'FTI_RecoverVar')
    call FTI_RecoverVarFinalize(err)
    call c_f_pointer(grown, values, [bytes/4])
    call expect(size(values) == values(1), 'a length that was saved in the array itself')
    grid = 0
    wave = 0
    label = ' '
    call FTI_Snapshot(err)
    call expect(err == FTI_SCES, 'FTI_Snapshot recovers')
    call check
    call expect(values(1) == step, 'the array of this step')
  end if
  call FTI_Status(err)
  call expect(err == 0, 'the status afterwards')
  if (rank == 0) print *, 'status', status
  do while (step < last)
    step = step + 1
    call change
    allocate (values(step))
    values = step
    call FTI_Protect(7, c_loc(values), step, FTI_INTEGER4, err)
    call FTI_Checkpoint(step, mod(step, 4) + 1, err)
    call expect(err == 1, 'FTI_Checkpoint')
    call FTI_Recover(err)
    call expect(err == FTI_SCES, 'FTI_Recover')
    call check
  end do
  if (rank == 0) print *, 'to', step
  call MPI_Finalize(err)

contains

  subroutine change
    grid = step + rank*10.0d0
    wave = cmplx(step, rank)
    flag = mod(step, 2) == 0
    write (label, '(a, i0)') 'step', step
    particles(:)%tag = step
  end subroutine

  subroutine check
    call expect(all(grid == step + rank*10.0d0), 'the grid')
    call expect(all(wave == cmplx(step, rank)), 'the wave')
    call expect(flag .eqv. mod(step, 2) == 0, 'the flag')
    call expect(label(1:4) == 'step', 'the label')
    call expect(all(particles%tag == step), 'the particles')
  end subroutine

  subroutine expect(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    integer :: code
    if (good) return
    print *, 'rank', rank, ': not as it should be: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, code)
  end subroutine
end program
