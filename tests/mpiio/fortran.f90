! A Fortran program that knows nothing of tailrace: planes of a three-dimensional array, through a view.
!
! fortran FILE
!
! Compiled with -cpp, once for the module mpi and once, with USE_MPI_F08, for mpi_f08.
program fortran
#ifdef USE_MPI_F08
    use mpi_f08
    implicit none
    type(MPI_File) :: file
    type(MPI_Datatype) :: filetype
    type(MPI_Status) :: status
#else
    use mpi
    implicit none
    integer :: file, filetype, status(MPI_STATUS_SIZE)
#endif
    integer, parameter :: n = 12
    integer :: rank, ranks, ierr, i, j, wrong, any, got
    integer :: sizes(3), subsizes(3), starts(3)
    integer(kind=MPI_OFFSET_KIND) :: displacement
    double precision :: plane(n, n), back(n, n)
    character(len=200) :: path

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    call get_command_argument(1, path)
    wrong = 0
    sizes = (/ ranks, n, n /)
    subsizes = (/ 1, n, n /)
    starts = (/ rank, 0, 0 /)
    do j = 1, n
        do i = 1, n
            plane(i, j) = rank * 1000 + i * 20 + j
        end do
    end do
    call MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, filetype, ierr)
    call MPI_Type_commit(filetype, ierr)
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
    if (ierr /= MPI_SUCCESS) wrong = 1
    displacement = 64
    call MPI_File_set_view(file, displacement, MPI_DOUBLE_PRECISION, filetype, 'native', MPI_INFO_NULL, ierr)
    call MPI_File_write_all(file, plane, n * n, MPI_DOUBLE_PRECISION, status, ierr)
    call MPI_Get_count(status, MPI_DOUBLE_PRECISION, got, ierr)
    if (got /= n * n) wrong = 1
    call MPI_File_write_all(file, plane, n * n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
    displacement = n * n
    back = 0
    call MPI_File_read_at_all(file, displacement, back, n * n, MPI_DOUBLE_PRECISION, status, ierr)
    do j = 1, n
        do i = 1, n
            if (back(i, j) /= plane(i, j)) wrong = 1
        end do
    end do
    ! A split call, which the MPI library makes: the library counts it.
    call MPI_File_sync(file, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    back = 0
    call MPI_File_read_at_all_begin(file, displacement, back, n * n, MPI_DOUBLE_PRECISION, ierr)
    call MPI_File_read_at_all_end(file, back, status, ierr)
    if (back(n, n) /= plane(n, n)) wrong = 1
    call MPI_File_close(file, ierr)
    if (file /= MPI_FILE_NULL) wrong = 1
    call MPI_Allreduce(wrong, any, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call MPI_Finalize(ierr)
    if (any /= 0) stop 1
end program fortran
