! A Fortran program that knows nothing of tailrace and writes two arrays at once: by their addresses, from MPI_BOTTOM.
!
! fortran_bottom FILE
!
! Compiled with -cpp, once for the module mpi and once, with USE_MPI_F08, for mpi_f08.
program fortran_bottom
#ifdef USE_MPI_F08
    use mpi_f08
    implicit none
    type(MPI_File) :: file
    type(MPI_Datatype) :: both
#else
    use mpi
    implicit none
    integer :: file, both
#endif
    integer, parameter :: n = 30
    integer :: rank, ierr, i, wrong, any
    integer :: lengths(2) = (/ n, n /)
    integer(kind=MPI_ADDRESS_KIND) :: places(2)
    integer(kind=MPI_OFFSET_KIND) :: at
    integer, save, asynchronous :: first(n), second(n), back(2 * n)
    character(len=200) :: path

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call get_command_argument(1, path)
    wrong = 0
    do i = 1, n
        first(i) = rank * 1000 + i
        second(i) = rank * 1000 + n + i
    end do
    call MPI_Get_address(first, places(1), ierr)
    call MPI_Get_address(second, places(2), ierr)
    call MPI_Type_create_hindexed(2, lengths, places, MPI_INTEGER, both, ierr)
    call MPI_Type_commit(both, ierr)
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
    at = rank * 2 * n * 4
    call MPI_File_write_at_all(file, at, MPI_BOTTOM, 1, both, MPI_STATUS_IGNORE, ierr)
    if (ierr /= MPI_SUCCESS) wrong = 1
    call MPI_File_read_at_all(file, at, back, 2 * n, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    do i = 1, 2 * n
        if (back(i) /= rank * 1000 + i) wrong = 1
    end do
    first = 0
    second = 0
    call MPI_File_read_at_all(file, at, MPI_BOTTOM, 1, both, MPI_STATUS_IGNORE, ierr)
    if (first(n) /= rank * 1000 + n .or. second(n) /= rank * 1000 + 2 * n) wrong = 1
    call MPI_File_close(file, ierr)
    call MPI_Allreduce(wrong, any, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call MPI_Finalize(ierr)
    if (any /= 0) stop 1
end program fortran_bottom
