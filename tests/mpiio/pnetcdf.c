/* A PnetCDF program that knows nothing of tailrace: subarrays and strided variables, and many small requests
 * that are posted and flushed together.
 *
 * pnetcdf FILE
 */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>

enum { rows = 30, columns_each = 6, posts = rows };

int main(int argc, char** argv) {
    int rank = 0, ranks = 1, wrong = 0, any = 0, file = 0, dimensions[2], plain = 0, posted = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    wrong |= ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file);
    wrong |= ncmpi_def_dim(file, "rows", rows, &dimensions[0]);
    wrong |= ncmpi_def_dim(file, "columns", columns_each * ranks, &dimensions[1]);
    wrong |= ncmpi_def_var(file, "plain", NC_INT, 2, dimensions, &plain);
    wrong |= ncmpi_def_var(file, "posted", NC_INT, 2, dimensions, &posted);
    wrong |= ncmpi_enddef(file);

    int data[rows * columns_each], back[rows * columns_each];
    for (int i = 0; i < rows * columns_each; ++i) data[i] = rank * 10000 + i;
    const MPI_Offset start[2] = {0, rank}, count[2] = {rows, columns_each}, stride[2] = {1, ranks};
    wrong |= ncmpi_put_vars_int_all(file, plain, start, count, stride, data);
    int requests[posts], statuses[posts];
    for (int post = 0; post < posts; ++post) {
        /* Every row: what nobody writes, Open MPI 4.1 fills with whatever is in its buffers. */
        const MPI_Offset from[2] = {post, rank * columns_each}, part[2] = {1, columns_each};
        wrong |= ncmpi_iput_vara_int(file, posted, from, part, data + post * columns_each, &requests[post]);
    }
    wrong |= ncmpi_wait_all(file, posts, requests, statuses);
    wrong |= ncmpi_get_vars_int_all(file, plain, start, count, stride, back);
    for (int i = 0; i < rows * columns_each; ++i) wrong |= back[i] != data[i];
    wrong |= ncmpi_close(file);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
    if (rank == 0 && any != 0) fprintf(stderr, "PnetCDF failed, or read something else than it wrote\n");
    MPI_Finalize();
    return any;
}
