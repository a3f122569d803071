/* Ways to open a file and to move its pointer, sizes set by the program, and what it is told of hints. It
 * leaves the same file without tailrace.
 *
 * modes FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

/* Open MPI's own I/O counts what is behind the end, and ends the program in MPI_File_preallocate. */
#ifdef OPEN_MPI
enum { strict = 0 };
#else
enum { strict = 1 };
#endif

static int ends_well(int code) {
    return code == MPI_SUCCESS;
}

/* Does MPI_File_get_info say so? */
static int says(MPI_File file, const char* key, const char* value) {
    MPI_Info info;
    char text[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0;
    if (MPI_File_get_info(file, &info) != MPI_SUCCESS) return 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &found);
    MPI_Info_free(&info);
    return found && strcmp(text, value) == 0;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char* switched = getenv("TAILRACE_MPIIO");
    const int library = switched != NULL && strcmp(switched, "on") == 0;
    enum { block = 50 };
    const MPI_Offset bytes = (MPI_Offset)(block * sizeof(int)), all = ranks * bytes;
    int data[block], back[block];
    MPI_File file;
    MPI_Offset position = 0, size = 0;
    MPI_Status status;
    for (int i = 0; i < block; ++i) data[i] = rank * 1000 + i;

    /* 1. Must not exist, then must not exist again; the hints are those that were given. */
    MPI_Info hints;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "tailrace_layout", "cyclic");
    MPI_Info_set(hints, "tailrace_buffer_size", "64KiB");
    const int make = MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR;
    expect(ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], make, hints, &file)), "open, new");
    if (library) {
        expect(says(file, "tailrace_mpiio", "on"), "tailrace_mpiio is not on");
        expect(says(file, "tailrace_layout", "cyclic"), "tailrace_layout is not cyclic");
        expect(says(file, "tailrace_buffer_size", "65536"), "tailrace_buffer_size is not 65536");
        expect(says(file, "tailrace_local_aggregators", "auto"), "tailrace_local_aggregators is not auto");
    }
    expect(ends_well(MPI_File_write_at_all(file, rank * bytes, data, block, MPI_INT, &status)),
           "write_at_all");
    expect(ends_well(MPI_File_close(&file)), "close");
#ifndef OPEN_MPI /* whose own open then ends the program, or waits for ever */
    expect(!ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], make, hints, &file)), "open, new, again");
#endif

    /* 2. To append: all pointers are at the end. */
    const int append = MPI_MODE_RDWR | MPI_MODE_APPEND;
    expect(ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], append, MPI_INFO_NULL, &file)), "open to append");
    MPI_File_get_position(file, &position);
    expect(position == all, "the pointer is not at the end");
    MPI_File_seek(file, rank * bytes, MPI_SEEK_CUR);
    expect(ends_well(MPI_File_write_all(file, data, block, MPI_INT, &status)), "write_all at the end");
    MPI_File_get_position(file, &position);
    expect(position == all + (rank + 1) * bytes, "the pointer behind what was written");

    /* 3. From the end backwards. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, -(rank + 1) * bytes, MPI_SEEK_END);
    expect(ends_well(MPI_File_read_all(file, back, block, MPI_INT, &status)), "read_all from the end");
    expect(back[1] == (ranks - 1 - rank) * 1000 + 1, "what is read from the end");

    /* 4. A size that the program sets: longer, shorter, and only room for it. */
    expect(ends_well(MPI_File_set_size(file, 3 * all)), "set_size, longer");
    expect(ends_well(MPI_File_read_at_all(file, 2 * all + rank * bytes, back, block, MPI_INT, &status)),
           "read_at_all of what was never written");
    int count = 0;
    MPI_Get_count(&status, MPI_INT, &count);
    expect(count == block && back[0] == 0 && back[block - 1] == 0, "zeros in a longer file");
    expect(ends_well(MPI_File_set_size(file, all + bytes)), "set_size, shorter");
    expect(ends_well(MPI_File_read_at_all(file, all + rank * bytes, back, block, MPI_INT, &status)),
           "read_at_all across a new end");
    MPI_Get_count(&status, MPI_INT, &count);
    expect(!strict || count == (rank == 0 ? block : 0), "what is behind a new end was read");
    if (strict) expect(ends_well(MPI_File_preallocate(file, 4 * all)), "preallocate");
    expect(ends_well(MPI_File_write_at_all(file, 4 * all + rank * bytes, data, block, MPI_INT, &status)),
           "write_at_all behind that");
    expect(ends_well(MPI_File_sync(file)), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &size);
    expect(size == 5 * all, "the size");
    MPI_Barrier(MPI_COMM_WORLD);

    /* 5. The pointer in a view with gaps: what the program is told of it, and steps from there. Without
     * tailrace every number is written to its place by itself: MPICH's own pointer is off there, and Open MPI
     * writes whatever its memory has into the gaps. */
    enum { step = 12 };
    const MPI_Offset begin = 5 * all + rank * 4000;
    MPI_Datatype gaps;
    MPI_Type_create_resized(MPI_INT, 0, step, &gaps);
    MPI_Type_commit(&gaps);
    if (library)
        expect(ends_well(MPI_File_set_view(file, begin, MPI_INT, gaps, "native", MPI_INFO_NULL)), "set_view");
    MPI_Offset expected = 0;
    for (int call = 0; call < 8; ++call) {
        for (int i = 0; i <= call && !library; ++i)
            MPI_File_write_at(file, begin + (expected + i) * step, &data[i], 1, MPI_INT, &status);
        if (library)
            expect(ends_well(MPI_File_write_all(file, data, call + 1, MPI_INT, &status)),
                   "write_all with gaps");
        expected += call + 1;
        if (library) MPI_File_get_position(file, &position);
        expect(!library || position == expected, "the pointer in a view with gaps");
        if (library) MPI_File_seek(file, 2, MPI_SEEK_CUR);
        expected += 2;
    }
    MPI_Type_free(&gaps);
    expect(ends_well(MPI_File_close(&file)), "close");

    /* 6. Left to the MPI library: by a hint, and since one rank alone opens it. */
    MPI_Info_set(hints, "tailrace_mpiio", "off");
    expect(ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, hints, &file)), "open, off");
    if (library) expect(says(file, "tailrace_mpiio", "off"), "tailrace_mpiio is not off");
    expect(ends_well(MPI_File_write_at_all(file, 20 * all + rank * bytes, data, block, MPI_INT, &status)),
           "write_at_all, off");
    expect(ends_well(MPI_File_close(&file)), "close");
    char other[4096];
    snprintf(other, sizeof other, "%s.%d", argv[1], rank);
    const int temporary = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    expect(ends_well(MPI_File_open(MPI_COMM_SELF, other, temporary, MPI_INFO_NULL, &file)), "open, alone");
    if (library) expect(says(file, "tailrace_mpiio", "off"), "tailrace_mpiio is not off for one rank");
    expect(ends_well(MPI_File_write_all(file, data, block, MPI_INT, &status)), "write_all, alone");
    expect(ends_well(MPI_File_close(&file)), "close");
    expect(access(other, F_OK) != 0, "a file to be deleted is still there");

    /* 7. Deleted when it is closed. */
    snprintf(other, sizeof other, "%s.temporary", argv[1]);
    expect(ends_well(MPI_File_open(MPI_COMM_WORLD, other, temporary, MPI_INFO_NULL, &file)),
           "open, temporary");
    expect(ends_well(MPI_File_write_at_all(file, rank * bytes, data, block, MPI_INT, &status)),
           "write_at_all");
    expect(ends_well(MPI_File_read_at_all(file, rank * bytes, back, block, MPI_INT, &status)), "read_at_all");
    expect(back[block - 1] == data[block - 1], "what was read back");
    expect(ends_well(MPI_File_close(&file)), "close");
    MPI_Barrier(MPI_COMM_WORLD);
    expect(access(other, F_OK) != 0, "a file to be deleted is still there");
    MPI_Info_free(&hints);

    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
