// The same as collective_bench_mpi, through PnetCDF. The patterns' requests are parts of one variable of
// bytes. One collective call with a list of them (ncmpi_put_varn_all) writes or reads them.
// benchmarks/collective_bench.py runs it to compare with PnetCDF's own intra-node aggregation.
//
//     collective_bench_pnetcdf PATTERN SIZE FILE AGGREGATORS real-nodes|any-ranks LOCAL_AGGREGATORS
//
// LOCAL_AGGREGATORS: PnetCDF's hint nc_num_aggrs_per_node (from 1.14 on); 0 switches it off. The other
// arguments are those of collective_bench_mpi.
#include <mpi.h>
#include <pnetcdf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective_bench_requests.h"

namespace {

using tailrace::internal::patterns::Request;

void check(int code, const char* what) {
    if (code == NC_NOERR) return;
    std::fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(code));
    MPI_Abort(MPI_COMM_WORLD, 2);
}

struct Lists {
    std::vector<MPI_Offset> places, lengths;
    std::vector<MPI_Offset*> starts, counts;

    explicit Lists(const std::vector<Request>& requests) {
        for (const Request& request : requests) {
            places.push_back(static_cast<MPI_Offset>(request.offset));
            lengths.push_back(static_cast<MPI_Offset>(request.bytes));
        }
        for (size_t i = 0; i < places.size(); ++i) {
            starts.push_back(&places[i]);
            counts.push_back(&lengths[i]);
        }
    }
};

// Seconds of the slowest rank, from the transfer until the file is closed.
double transfer(const char* path, MPI_Info info, Lists& lists, MPI_Offset bytes, std::vector<char>& data,
                bool writes) {
    int file = 0, variable = 0, dimension = 0;
    if (writes) {
        check(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, info, &file), "ncmpi_create");
        check(ncmpi_def_dim(file, "bytes", bytes, &dimension), "ncmpi_def_dim");
        check(ncmpi_def_var(file, "data", NC_BYTE, 1, &dimension, &variable), "ncmpi_def_var");
        check(ncmpi_enddef(file), "ncmpi_enddef");
    } else {
        check(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &file), "ncmpi_open");
        check(ncmpi_inq_varid(file, "data", &variable), "ncmpi_inq_varid");
    }
    const int count = static_cast<int>(lists.starts.size());
    const auto size = static_cast<MPI_Offset>(data.size());
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    check(writes ? ncmpi_put_varn_all(file, variable, count, lists.starts.data(), lists.counts.data(),
                                      data.data(), size, MPI_SIGNED_CHAR)
                 : ncmpi_get_varn_all(file, variable, count, lists.starts.data(), lists.counts.data(),
                                      data.data(), size, MPI_SIGNED_CHAR),
          writes ? "ncmpi_put_varn_all" : "ncmpi_get_varn_all");
    check(ncmpi_close(file), "ncmpi_close");
    const double mine = MPI_Wtime() - begin;
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr,
                     "usage: %s PATTERN SIZE FILE AGGREGATORS real-nodes|any-ranks LOCAL_AGGREGATORS\n",
                     argv[0]);
        return 2;
    }
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const std::vector<Request> requests =
        tailrace::internal::patterns::requests_of(argv[1], std::strtoull(argv[2], nullptr, 10), rank, ranks);
    uint64_t bytes = 0, end = 0, all = 0, file_bytes = 0;
    for (const Request& request : requests) {
        bytes += request.bytes;
        end = std::max(end, request.end());
    }
    MPI_Allreduce(&bytes, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&end, &file_bytes, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    Lists lists(requests);
    std::vector<char> data(bytes);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + static_cast<size_t>(rank));
    const std::vector<char> written = data;
    MPI_Info info =
        tailrace::internal::patterns::two_phase_hints(argv[4], std::strcmp(argv[5], "real-nodes") == 0);
    if (std::atoi(argv[6]) > 0) MPI_Info_set(info, "nc_num_aggrs_per_node", argv[6]);

    const auto size = static_cast<MPI_Offset>(file_bytes);
    const double write = transfer(argv[3], info, lists, size, data, true);
    std::fill(data.begin(), data.end(), char{0});
    const double read = transfer(argv[3], info, lists, size, data, false);
    if (rank == 0) ncmpi_delete(argv[3], info);
    int wrong = data != written ? 1 : 0, any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("{\"write\": %.4f, \"read\": %.4f, \"bytes\": %llu, \"right\": %s}\n", write, read,
                    static_cast<unsigned long long>(all), any != 0 ? "false" : "true");
    MPI_Info_free(&info);
    MPI_Finalize();
    return any;
}
