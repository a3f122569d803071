// array_commit_mpi DIR multiple|funneled: random pieces of global arrays, saved on some of the ranks and
// restored on another number of them. What commits restores; what does not is refused with the name of an
// array that is wrong, and the epoch before it stays (keep_shared = 1). Prints its seed; TAILRACE_SEED
// replays it.
#include <mpi.h>
#include <tailrace.h>
#include <tailrace_mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "array/random_arrays.h"

namespace {

using namespace tailrace::internal;
using namespace tailrace::internal::testing_support;

int world_rank = 0, world_size = 1;
std::string where;

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::fprintf(stderr, "rank %d: %s: %s (last error: %s)\n", world_rank, where.c_str(), what.c_str(),
                 tailrace_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Waiting ranks leave the processors to the others.
void barrier() {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done == 0) ::usleep(2000);
    }
}

tailrace_session* open(MPI_Comm communicator, const std::string& directory) {
    tailrace_options* options = tailrace_options_new();
    const std::pair<const char*, std::string> settings[] = {{"shared_dir", directory + "/shared"},
                                                            {"local_dir", directory + "/local"},
                                                            {"keep_shared", "1"},
                                                            {"files", "2"},
                                                            {"buffer_bytes", "1MiB"},
                                                            {"record", "no"},
                                                            {"ranks_per_node", "2"}};
    for (const auto& [key, value] : settings)
        require(tailrace_options_set(options, key, value.c_str()) == TAILRACE_OK,
                std::string("setting ") + key);
    tailrace_session* session = nullptr;
    require(tailrace_open_mpi(communicator, options, &session) == TAILRACE_OK, "opening");
    tailrace_options_free(options);
    return session;
}

tailrace_array array_of(const ArrayPiece& piece) {
    tailrace_array array = {};
    array.type = static_cast<tailrace_type>(piece.type);
    array.dimensions = static_cast<int>(piece.global_shape.size());
    array.global_shape = piece.global_shape.data();
    array.offset = piece.offset.data();
    array.local_shape = piece.local_shape.data();
    return array;
}

void save_both(MPI_Comm communicator, const std::string& directory, const RandomArray& base,
               const std::vector<RandomArray>& arrays, bool good) {
    int rank = 0;
    MPI_Comm_rank(communicator, &rank);
    tailrace_session* session = open(communicator, directory);
    std::map<std::string, std::vector<uint32_t>> memory;
    const auto put = [&](const RandomArray& array) {
        const auto& piece = array.pieces[static_cast<size_t>(rank)];
        if (!piece) return;
        auto& own = memory[array.name] = memory_of(*piece, static_cast<uint32_t>(rank));
        const tailrace_array described = array_of(*piece);
        require(tailrace_register_array(session, array.name.c_str(), own.data(), &described) == TAILRACE_OK,
                "registering");
    };
    put(base);
    require(tailrace_save(session, 1) == TAILRACE_OK && tailrace_wait(session, 1, -1) == TAILRACE_OK,
            "epoch 1");
    for (const auto& array : arrays) put(array);
    require(tailrace_save(session, 2) == TAILRACE_OK, "saving epoch 2");
    const tailrace_code second = tailrace_wait(session, 2, -1);
    require(second == (good ? TAILRACE_OK : TAILRACE_INVALID_ARGUMENT),
            good ? "epoch 2 is good" : "epoch 2 is bad");
    const std::string sentence = tailrace_last_error();
    const bool named = std::any_of(arrays.begin(), arrays.end(), [&](const RandomArray& array) {
        return !may_be_committed(array) && sentence.find("'" + array.name + "'") != std::string::npos;
    });
    require(good || named, "no array that is wrong is named");
    require((tailrace_close(session) == TAILRACE_OK) == good, "closing");
}

// Each rank takes a slab of each array.
void restore(MPI_Comm communicator, const std::string& directory, const std::vector<RandomArray>& arrays,
             uint64_t expected) {
    int rank = 0, size = 1;
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &size);
    tailrace_session* session = open(communicator, directory);
    struct Slab {
        ArrayPiece piece;
        std::vector<uint32_t> memory;
    };
    std::map<std::string, Slab> slabs;
    for (const auto& array : arrays) {
        const auto saved = std::find_if(array.pieces.begin(), array.pieces.end(),
                                        [](const auto& piece) { return piece.has_value(); });
        if (saved == array.pieces.end()) continue;
        Slab& slab = slabs[array.name];
        slab.piece = **saved;
        slab.piece.offset.assign(slab.piece.global_shape.size(), 0);
        slab.piece.local_shape = slab.piece.global_shape;
        const uint64_t rows = slab.piece.global_shape[0];
        const auto first = rows * static_cast<uint64_t>(rank) / static_cast<uint64_t>(size);
        slab.piece.offset[0] = first;
        slab.piece.local_shape[0] =
            rows * static_cast<uint64_t>(rank + 1) / static_cast<uint64_t>(size) - first;
        slab.memory.resize(array_bytes(slab.piece) / 4);
        const tailrace_array described = array_of(slab.piece);
        require(tailrace_register_array(session, array.name.c_str(), slab.memory.data(), &described) ==
                    TAILRACE_OK,
                "registering a slab");
    }
    uint64_t epoch = 0;
    require(tailrace_restore(session, TAILRACE_NEWEST, &epoch) == TAILRACE_OK, "restoring");
    require(epoch == expected, "the newest is epoch " + std::to_string(epoch));
    for (const auto& array : arrays) {
        const auto found = slabs.find(array.name);
        if (found == slabs.end()) continue;
        const auto whole = expected_whole(array);
        uint64_t at = 0;  // slabs are whole rows, so they lie in the array without a gap
        if (!whole.empty())
            at = found->second.piece.offset[0] * (whole.size() / found->second.piece.global_shape[0]);
        for (const uint32_t value : found->second.memory) {
            require(value == *whole[at], "array '" + array.name + "' differs at " + std::to_string(at));
            ++at;
        }
    }
    require(tailrace_close(session) == TAILRACE_OK, "closing after the restore");
}

void round_of(uint64_t seed, const std::string& directory) {
    std::mt19937_64 random(seed);
    where = "TAILRACE_SEED=" + std::to_string(seed);
    const int ranks = static_cast<int>(1 + random() % static_cast<uint64_t>(world_size));
    const int restoring = static_cast<int>(1 + random() % static_cast<uint64_t>(world_size));
    std::vector<RandomArray> arrays;
    for (size_t a = 1 + random() % 3; a > 0; --a)
        arrays.push_back(
            random_array(random, "array " + std::to_string(a), static_cast<size_t>(ranks), false));
    const bool good = std::all_of(arrays.begin(), arrays.end(), may_be_committed);
    RandomArray base{"base", {}};
    const auto count = static_cast<uint64_t>(ranks);
    for (uint64_t rank = 0; rank < count; ++rank)
        base.pieces.push_back(ArrayPiece{ElementType::uint32, {count, 2}, {rank, 0}, {1, 2}});
    const auto on_some = [](int some, const auto& work) {
        MPI_Comm communicator;
        MPI_Comm_split(MPI_COMM_WORLD, world_rank < some ? 0 : MPI_UNDEFINED, world_rank, &communicator);
        if (world_rank < some) {
            work(communicator);
            MPI_Comm_free(&communicator);
        }
        barrier();
    };
    on_some(ranks, [&](MPI_Comm some) { save_both(some, directory, base, arrays, good); });
    if (world_rank == 0 && random() % 2 == 0) std::filesystem::remove_all(directory + "/local");
    barrier();
    auto saved = good ? arrays : std::vector<RandomArray>();
    saved.push_back(base);
    on_some(restoring, [&](MPI_Comm some) { restore(some, directory, saved, good ? 2 : 1); });
}

}  // namespace

int main(int argc, char** argv) {
    const bool multiple = argc > 2 && std::string(argv[2]) == "multiple";
    int provided = 0;
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    require(argc == 3, "usage: array_commit_mpi DIR multiple|funneled");
    const char* given = std::getenv("TAILRACE_SEED");
    unsigned long long first = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    MPI_Bcast(&first, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    const uint64_t rounds = given != nullptr ? 1 : 12;
    if (world_rank == 0)
        std::printf("seeds %llu to %llu (TAILRACE_SEED=n replays one)\n", first, first + rounds - 1);
    for (uint64_t seed = first; seed < first + rounds; ++seed)
        round_of(seed, std::string(argv[1]) + "/" + std::to_string(seed));
    MPI_Finalize();
    return 0;
}
