/* What MPI-IO programs do seldom, or by mistake: a file that is only written, arguments that make no sense, a
 * read across the end followed by a write, views with gaps, a file in atomic mode. It leaves the same file
 * without tailrace.
 *
 * unusual FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

/* Open MPI's own I/O takes what its documentation calls an error: nothing to compare with. */
#ifdef OPEN_MPI
enum { refuses = 0 };
#else
enum { refuses = 1 };
#endif

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    enum { block = 40 };
    const MPI_Offset bytes = (MPI_Offset)(block * sizeof(int));
    int data[block], back[2 * block], code;
    MPI_File file;
    MPI_Status status;
    for (int i = 0; i < block; ++i) data[i] = rank * 1000 + i;

    /* 1. Only written. */
    code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    expect(code == MPI_SUCCESS, "open to write");
    code = MPI_File_write_at_all(file, rank * bytes, data, block, MPI_INT, &status);
    expect(code == MPI_SUCCESS, "write_at_all");
    code = MPI_File_read_at_all(file, 0, back, block, MPI_INT, &status);
    expect(!refuses || code != MPI_SUCCESS, "a file that is only written was read");
    expect(MPI_File_close(&file) == MPI_SUCCESS, "close");

    /* 2. Only read. */
    code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    expect(code == MPI_SUCCESS, "open to read");
    code = MPI_File_read_at_all(file, rank * bytes, back, block, MPI_INT, &status);
    expect(code == MPI_SUCCESS && back[block - 1] == data[block - 1], "read_at_all");
    code = MPI_File_write_at_all(file, 0, data, block, MPI_INT, &status);
    expect(!refuses || code != MPI_SUCCESS, "a file that is only read was written");
    expect(MPI_File_close(&file) == MPI_SUCCESS, "close");

    /* 3. Arguments that make no sense, within a view that has room in front. */
    code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    expect(code == MPI_SUCCESS, "open");
    code = MPI_File_set_view(file, 2 * bytes, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    expect(code == MPI_SUCCESS, "set_view");
    if (refuses) {
        code = MPI_File_write_at_all(file, -1 - rank, data, 1, MPI_INT, &status);
        expect(code != MPI_SUCCESS, "bytes before the view were written");
        code = MPI_File_write_at_all(file, 0, data, -1, MPI_INT, &status);
        expect(code != MPI_SUCCESS, "a negative number of ints was written");
    }

    /* 4. Across the end, and on from there: the pointer moves by what was asked for. */
    code = MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    expect(code == MPI_SUCCESS, "set_view");
    MPI_Offset position = 0;
    MPI_File_seek(file, (MPI_Offset)ranks * block - block, MPI_SEEK_SET);
    code = MPI_File_read_all(file, back, 2 * block, MPI_INT, &status);
    expect(code == MPI_SUCCESS, "read_all across the end");
    MPI_File_get_position(file, &position);
    expect(position == (MPI_Offset)ranks * block + block, "the file pointer behind what was asked for");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, position + rank * block, MPI_SEEK_SET);
    code = MPI_File_write_all(file, data, block, MPI_INT, &status);
    expect(code == MPI_SUCCESS, "write_all");

    /* 5. A view with gaps of its own between elements: one call after the other, and from somewhere else.
     * MPICH's own pointer is off there, so that without tailrace every byte is written to its place by
     * itself. */
    MPI_Datatype element, gaps;
    int places[3] = {0, 2, 4}, ones[3] = {1, 1, 1}, first = 0;
    enum { bytes_of_element = 16, extent = 28, longest = 23 };
    MPI_Type_create_resized(MPI_C_DOUBLE_COMPLEX, 0, extent, &element);
    MPI_Type_indexed(3, ones, places, element, &gaps);
    MPI_Type_commit(&gaps);
    const char* library = getenv("TAILRACE_MPIIO");
    const int by_pointer = library != NULL && strcmp(library, "on") == 0;
    const MPI_Offset begin = (position + 100 * block) * (MPI_Offset)sizeof(int) + rank * 4000;
    code = by_pointer ? MPI_File_set_view(file, begin, MPI_BYTE, gaps, "native", MPI_INFO_NULL)
                      : MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    expect(code == MPI_SUCCESS, "set_view");
    for (int call = 0; call < 20; ++call) {
        const int count = call * 7 % longest + 1;
        char letters[longest];
        for (int i = 0; i < count; ++i) letters[i] = (char)(1 + rank * 30 + call);
        if (call == 19) first += longest;
        if (by_pointer && call == 19) MPI_File_seek(file, first, MPI_SEEK_SET);
        if (by_pointer) code = MPI_File_write_all(file, letters, count, MPI_BYTE, &status);
        for (int i = first; i < first + count && !by_pointer; ++i) {
            const int whole = i / bytes_of_element;
            const MPI_Offset at =
                begin + whole / 3 * (5 * extent) + whole % 3 * (2 * extent) + i % bytes_of_element;
            code = MPI_File_write_at(file, at, &letters[i - first], 1, MPI_BYTE, &status);
        }
        first += count;
        expect(code == MPI_SUCCESS, "write_all in a view with gaps");
        MPI_Offset now = first;
        if (by_pointer) MPI_File_get_position(file, &now);
        expect(now == first, "the pointer in a view with gaps");
        if (call % 5 != 4) continue;
        if (by_pointer) MPI_File_seek(file, 3, MPI_SEEK_CUR);
        first += 3;
    }
    MPI_Type_free(&element);
    MPI_Type_free(&gaps);
    code = MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    expect(code == MPI_SUCCESS, "set_view");

    /* 6. Atomic mode. */
    expect(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS, "set_atomicity");
    code = MPI_File_write_at_all(file, position + (ranks + rank) * block, data, block, MPI_INT, &status);
    expect(code == MPI_SUCCESS, "write_at_all in atomic mode");
    expect(MPI_File_close(&file) == MPI_SUCCESS, "close");

    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
