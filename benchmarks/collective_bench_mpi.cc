// Times one collective write and read of a pattern by plain MPI-IO. benchmarks/collective_bench.py runs it
// with libtailrace_mpiio.so and without. The first rank prints one line of JSON with the seconds of the
// slowest rank, from the first collective call until the file is closed.
//
//     collective_bench_mpi PATTERN SIZE FILE AGGREGATORS [real-nodes]
//     collective_bench_mpi merge REQUESTS RANKS       (no file: the rate of merging and coalescing)
//     collective_bench_mpi small CALLS FILE           (the times of an open, and of a write and a read of
//                                                     64 bytes on each rank)
//
// PATTERN and SIZE: for btio and s3d the side of the grid, for irregular about the number of requests of all
// ranks, for contiguous MiB of each rank. AGGREGATORS are those of the MPI library's own method: with
// real-nodes one on each node, as tailrace has them; without it on any ranks.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective_bench_requests.h"

namespace {

namespace patterns = tailrace::internal::patterns;
using patterns::Request;

MPI_Datatype view_of(const std::vector<Request>& requests) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (const Request& request : requests) {
        lengths.push_back(static_cast<int>(request.bytes));
        places.push_back(static_cast<MPI_Aint>(request.offset));
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), places.data(), MPI_BYTE,
                             &type);
    MPI_Type_commit(&type);
    return type;
}

double transfer(const char* path, MPI_Info info, MPI_Datatype view, std::vector<char>& data, bool writes) {
    MPI_File file = MPI_FILE_NULL;
    const int mode = writes ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE;
    if (MPI_File_open(MPI_COMM_WORLD, path, mode, info, &file) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_File_set_view(file, 0, MPI_BYTE, view, "native", MPI_INFO_NULL);
    const int count = static_cast<int>(data.size());
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    const int code = writes ? MPI_File_write_at_all(file, 0, data.data(), count, MPI_BYTE, MPI_STATUS_IGNORE)
                            : MPI_File_read_at_all(file, 0, data.data(), count, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    const double mine = MPI_Wtime() - begin;
    if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int merge_rate(uint64_t requests, int ranks) {
    patterns::Irregular irregular{ranks, 1, requests, 64, 1};
    std::vector<std::vector<Request>> lists;
    for (int rank = 0; rank < ranks; ++rank) lists.push_back(patterns::irregular(irregular, rank));
    const std::vector<std::span<const Request>> spans(lists.begin(), lists.end());
    std::vector<Request> runs;
    const auto begin = std::chrono::steady_clock::now();
    const auto counts = tailrace::internal::collective::merge(spans, runs);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("{\"requests\": %llu, \"runs\": %zu, \"seconds\": %.4f}\n",
                static_cast<unsigned long long>(counts.requests), runs.size(), seconds);
    return 0;
}

// The median of the call's seconds, on the first rank.
template <class Call>
double median_of(int calls, Call call) {
    std::vector<double> seconds;
    for (int i = 0; i < calls; ++i) {
        const double begin = MPI_Wtime();
        call(i);
        seconds.push_back(MPI_Wtime() - begin);
    }
    const auto middle = seconds.begin() + calls / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

int small_calls(int calls, const char* path) {
    constexpr int bytes = 64;
    int rank = 0, ranks = 1, wrong = 0, any = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File file = MPI_FILE_NULL;
    const auto open_file = [&](int mode) {
        if (MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 2);
    };
    const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    open_file(mode);
    std::vector<char> data(bytes, static_cast<char>(rank + 1)), back(bytes);
    const auto place = [&](int call) { return (MPI_Offset{call} * ranks + rank) * bytes; };
    const double write = median_of(calls, [&](int call) {
        MPI_File_write_at_all(file, place(call), data.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    });
    const double read = median_of(calls, [&](int call) {
        MPI_File_read_at_all(file, place(call), back.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        if (back != data) wrong = 1;
    });
    // From one open to the next, with a close in between.
    const double open = median_of(std::max(1, calls / 20), [&](int) {
        MPI_File_close(&file);
        open_file(mode);
    });
    MPI_File_close(&file);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_File_delete(path, MPI_INFO_NULL);
        std::printf("{\"write\": %.8f, \"read\": %.8f, \"open\": %.8f, \"right\": %s}\n", write, read, open,
                    any != 0 ? "false" : "true");
    }
    return any;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 4 && std::strcmp(argv[1], "merge") == 0)
        return merge_rate(std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]));
    if (argc == 4 && std::strcmp(argv[1], "small") == 0) {
        MPI_Init(&argc, &argv);
        const int wrong = small_calls(std::max(1, std::atoi(argv[2])), argv[3]);
        MPI_Finalize();
        return wrong;
    }
    const bool real_nodes = argc == 6 && std::strcmp(argv[5], "real-nodes") == 0;
    if (argc != 5 && !real_nodes) {
        std::fprintf(stderr, "usage: %s btio|s3d|irregular|contiguous SIZE FILE AGGREGATORS [real-nodes]\n",
                     argv[0]);
        return 2;
    }
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::vector<Request> requests =
        patterns::requests_of(argv[1], std::strtoull(argv[2], nullptr, 10), rank, ranks);
    uint64_t bytes = 0;
    for (const Request& request : requests) bytes += request.bytes;
    std::vector<char> data(bytes);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(rank));
    const std::vector<char> written = data;
    MPI_Datatype view = view_of(requests);
    MPI_Info info = patterns::two_phase_hints(argv[4], real_nodes);

    const double write = transfer(argv[3], info, view, data, true);
    std::fill(data.begin(), data.end(), char{0});
    const double read = transfer(argv[3], info, view, data, false);
    int wrong = data != written ? 1 : 0, any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    uint64_t all = 0;
    MPI_Allreduce(&bytes, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("{\"write\": %.4f, \"read\": %.4f, \"bytes\": %llu, \"right\": %s}\n", write, read,
                    static_cast<unsigned long long>(all), any != 0 ? "false" : "true");
    MPI_Type_free(&view);
    MPI_Info_free(&info);
    MPI_Finalize();
    return any;
}
