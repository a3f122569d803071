! A program in Fortran that was written for SCR. tests/mpi/scr_test.py starts it, twice: it goes on where it was.
program ranks_fortran
    implicit none
    include 'mpif.h'
    include 'scrf.h'
    character(len=SCR_MAX_FILENAME) :: checkpoint, path
    character(len=40) :: name
    character(len=16) :: value
    character(len=4) :: short
    integer :: flag, valid, step, first, file, ierr, rank

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call scr_get_version(value, ierr)
    call expect(ierr == SCR_SUCCESS .and. value == 'v3.1.0', 'the version')
    value = 'something'
    call scr_config('SCR_CHECKPOINT_INTERVAL = 3   ', value, ierr)
    call expect(ierr == SCR_SUCCESS .and. value == ' ', 'a key that is set')
    call scr_config('SCR_CHECKPOINT_INTERVAL', value, ierr)
    call expect(ierr == SCR_SUCCESS .and. value == '3', 'its value')
    call scr_init(ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_init')

    step = 0
    call scr_have_restart(flag, checkpoint, ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_have_restart')
    if (flag == 1) then
        call scr_have_restart(flag, short, ierr)
        call expect(ierr /= SCR_SUCCESS .and. short == checkpoint(1:4), 'a name that is cut')
        call scr_start_restart(checkpoint, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_start_restart')
        write (name, '(a, "/rank ", i0)') trim(checkpoint), rank
        call scr_route_file(name, path, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_route_file of a file that is there')
        open (newunit=file, file=path, action='read', status='old')
        read (file, *) step
        close (file)
        valid = 1
        call scr_complete_restart(valid, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_complete_restart')
    end if
    if (rank == 0) print '("from ", i0)', step

    first = step + 1
    do step = first, first + 5
        call scr_should_exit(flag, ierr)
        call expect(ierr == SCR_SUCCESS .and. flag == 0, 'scr_should_exit')
        call scr_need_checkpoint(flag, ierr)
        call expect(ierr == SCR_SUCCESS .and. (flag == 1) .eqv. mod(step, 3) == 0, 'scr_need_checkpoint')
        if (flag == 0) cycle
        write (checkpoint, '("step ", i0)') step
        call scr_start_output(checkpoint, SCR_FLAG_CHECKPOINT, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_start_output')
        write (name, '("step ", i0, "/rank ", i0)') step, rank
        call scr_route_file(name, path, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_route_file of a new file')
        open (newunit=file, file=path, action='write', status='new')
        write (file, *) step
        close (file)
        valid = 1
        call scr_complete_output(valid, ierr)
        call expect(ierr == SCR_SUCCESS, 'scr_complete_output')
    end do

    call scr_start_checkpoint(ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_start_checkpoint')
    valid = 0
    call scr_complete_checkpoint(valid, ierr)
    call expect(ierr /= SCR_SUCCESS, 'a checkpoint that is not valid')
    write (name, '("step ", i0)') first + 2
    call scr_current(name, ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_current')
    call scr_drop(name, ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_drop')
    call scr_delete(name, ierr)
    call expect(ierr /= SCR_SUCCESS, 'scr_delete of what was dropped')
    call scr_finalize(ierr)
    call expect(ierr == SCR_SUCCESS, 'scr_finalize')
    call MPI_Finalize(ierr)
    if (rank == 0) print '("to ", i0)', step - 1

contains

    subroutine expect(good, what)
        logical, intent(in) :: good
        character(len=*), intent(in) :: what
        integer :: ignored
        if (good) return
        print '("rank ", i0, ": not as it should be: ", a)', rank, what
        call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
    end subroutine expect

end program ranks_fortran
