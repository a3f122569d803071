/* A parallel HDF5 program that knows nothing of tailrace: interleaved columns of a dataset, and a chunked
 * one.
 *
 * hdf5 FILE
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>

enum { rows = 60, columns_each = 5 };

int main(int argc, char** argv) {
    int rank = 0, ranks = 1, wrong = 0, any = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), collective = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(collective, H5FD_MPIO_COLLECTIVE);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    /* Rank r has the columns r, r + ranks, ...: the worst case for a file in rows. */
    const hsize_t sizes[2] = {rows, (hsize_t)(columns_each * ranks)}, start[2] = {0, (hsize_t)rank},
                  stride[2] = {1, (hsize_t)ranks}, count[2] = {rows, columns_each}, chunk[2] = {16, 7};
    double data[rows * columns_each], back[rows * columns_each];
    for (int dataset = 0; dataset < 2; ++dataset) {
        hid_t space = H5Screate_simple(2, sizes, NULL), memory = H5Screate_simple(2, count, NULL);
        hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_obj_track_times(creation, 0); /* two runs leave the same file */
        if (dataset == 1) H5Pset_chunk(creation, 2, chunk);
        hid_t set = H5Dcreate2(file, dataset == 0 ? "plain" : "chunked", H5T_NATIVE_DOUBLE, space,
                               H5P_DEFAULT, creation, H5P_DEFAULT);
        for (int i = 0; i < rows * columns_each; ++i) data[i] = dataset * 1e6 + rank * 1e4 + i;
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL);
        wrong |= H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, collective, data) < 0;
        wrong |= H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, collective, back) < 0;
        for (int i = 0; i < rows * columns_each; ++i) wrong |= back[i] != data[i];
        H5Dclose(set);
        H5Pclose(creation);
        H5Sclose(space);
        H5Sclose(memory);
    }
    H5Fclose(file);
    H5Pclose(access);
    H5Pclose(collective);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0 && any != 0) fprintf(stderr, "HDF5 read something else than it wrote\n");
    MPI_Finalize();
    return any;
}
