#include "collective_bench_requests.h"

namespace tailrace::internal::patterns {

namespace {

// Two neighbouring pieces of one rank, on average, make one request.
constexpr uint64_t irregular_mean_bytes = 150, irregular_pieces_per_request = 2;
constexpr uint64_t irregular_variables = 4;

// As square as possible; the first direction is cut least.
void cut_three_ways(int ranks, int parts[3]) {
    int dims[3] = {0, 0, 0};
    MPI_Dims_create(ranks, 3, dims);
    for (int d = 0; d < 3; ++d) parts[d] = dims[2 - d];
}

}  // namespace

std::vector<Request> requests_of(const std::string& pattern, uint64_t size, int rank, int ranks) {
    const int side = static_cast<int>(size);
    if (pattern == "btio") {
        int square = 1;
        while ((square + 1) * (square + 1) <= ranks) ++square;
        square *= square;
        return rank < square ? btio(side, square, rank) : std::vector<Request>();
    }
    if (pattern == "s3d") {
        int parts[3];
        cut_three_ways(ranks, parts);
        return s3d(side, parts[0], parts[1], parts[2], rank);
    }
    if (pattern == "irregular") {
        Irregular wanted;
        wanted.ranks = ranks;
        wanted.variables = irregular_variables;
        wanted.pieces_per_variable = size * irregular_pieces_per_request / irregular_variables;
        wanted.mean_bytes = irregular_mean_bytes;
        return irregular(wanted, rank);
    }
    const uint64_t bytes = size << 20;
    return {{static_cast<uint64_t>(rank) * bytes, bytes}};
}

MPI_Info two_phase_hints(const char* aggregators, bool real_nodes) {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    MPI_Info_set(info, "cb_config_list", real_nodes ? "*:1" : "*:*");
    MPI_Info_set(info, "cb_nodes", aggregators);
    return info;
}

}  // namespace tailrace::internal::patterns
