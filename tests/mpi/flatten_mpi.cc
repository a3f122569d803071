// Datatypes taken apart, against what the MPI library itself makes of them: the bytes that MPI_Pack takes, in
// its order, have to be those of our blocks; and where there is MPIX_Type_iov, its list has to be ours. File
// views and memory of these types have to have the bytes that are found one by one.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "aggregate/seeds.h"
#include "c_api/mpi_flatten.h"

namespace {

using tailrace::internal::below;
using tailrace::internal::Random;
using tailrace::internal::collective::FlatType;

MPI_Datatype named(Random& random) {
    const MPI_Datatype types[] = {MPI_BYTE,      MPI_INT,        MPI_DOUBLE,  MPI_SHORT,
                                  MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_LONG_INT};
    return types[below(random, std::size(types))];
}

int small(Random& random, int least = 0) {
    return least + static_cast<int>(below(random, 4));
}

// A type made of `inner` in one of all the ways there are. `way` counts which.
MPI_Datatype made(Random& random, MPI_Datatype inner, int way) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Aint lower = 0, extent = 0;
    MPI_Type_get_extent(inner, &lower, &extent);
    const int count = small(random);
    std::vector<int> lengths, places;
    std::vector<MPI_Aint> addresses;
    std::vector<MPI_Datatype> types;
    int place = 0;
    for (int i = 0; i < count; ++i) {
        lengths.push_back(small(random));
        places.push_back(place);
        addresses.push_back(place * (extent + 3));
        types.push_back(below(random, 2) == 0 ? inner : MPI_INT);
        place += lengths.back() + small(random);
    }
    int sizes[3], subsizes[3], starts[3];
    for (int d = 0; d < 3; ++d) {
        sizes[d] = small(random, 1);
        subsizes[d] = 1 + static_cast<int>(below(random, static_cast<uint64_t>(sizes[d])));
        starts[d] = static_cast<int>(below(random, static_cast<uint64_t>(sizes[d] - subsizes[d] + 1)));
    }
    // Open MPI makes no distributed array of nothing.
    int inner_bytes = 0;
    MPI_Type_size(inner, &inner_bytes);
    if (way == 10 && inner_bytes == 0) way = 9;
    const int order = below(random, 2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    switch (way) {
        case 0:
            MPI_Type_dup(inner, &type);
            break;
        case 1:
            MPI_Type_contiguous(small(random), inner, &type);
            break;
        case 2:
            MPI_Type_vector(small(random), 2, 2 + small(random), inner, &type);
            break;
        case 3:
            MPI_Type_create_hvector(small(random), 1, extent + small(random), inner, &type);
            break;
        case 4:
            MPI_Type_indexed(count, lengths.data(), places.data(), inner, &type);
            break;
        case 5:
            MPI_Type_create_hindexed(count, lengths.data(), addresses.data(), inner, &type);
            break;
        case 6:
            MPI_Type_create_indexed_block(count, 1, places.data(), inner, &type);
            break;
        case 7:
            MPI_Type_create_hindexed_block(count, 1, addresses.data(), inner, &type);
            break;
        case 8:
            MPI_Type_create_struct(count, lengths.data(), addresses.data(), types.data(), &type);
            break;
        case 9:
            MPI_Type_create_subarray(3, sizes, subsizes, starts, order, inner, &type);
            break;
        case 10: {
            const int grid[3] = {2, 1, 2};
            const int array[3] = {small(random, 3), small(random, 1), small(random, 3)};
            const int distributions[3] = {
                below(random, 2) == 0 ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE,
                MPI_DISTRIBUTE_CYCLIC};
            const int arguments[3] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, 1 + small(random)};
            MPI_Type_create_darray(4, static_cast<int>(below(random, 4)), 3, array, distributions, arguments,
                                   grid, order, inner, &type);
            break;
        }
#if MPI_VERSION >= 4
        case 12:
            MPI_Type_vector_c(small(random), 2, 2 + small(random), inner, &type);
            break;
        case 13: {
            const std::vector<MPI_Count> large_lengths(lengths.begin(), lengths.end()),
                large_addresses(addresses.begin(), addresses.end());
            MPI_Type_create_struct_c(count, large_lengths.data(), large_addresses.data(), types.data(),
                                     &type);
            break;
        }
        case 14: {
            const MPI_Count large_sizes[3] = {sizes[0], sizes[1], sizes[2]},
                            large_subsizes[3] = {subsizes[0], subsizes[1], subsizes[2]},
                            large_starts[3] = {starts[0], starts[1], starts[2]};
            MPI_Type_create_subarray_c(3, large_sizes, large_subsizes, large_starts, order, inner, &type);
            break;
        }
#endif
        default:
            MPI_Type_create_resized(inner, -4, extent + 9, &type);
            break;
    }
    return type;
}

bool say(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    return false;
}

// What MPI_Pack takes out of memory in which no two neighbouring bytes are alike.
bool as_mpi_packs(MPI_Datatype type, const FlatType& flat, const std::string& name) {
    int64_t lowest = 0, highest = 1;
    uint64_t bytes = 0;
    for (const auto& block : flat.blocks) {
        lowest = std::min(lowest, block.displacement);
        highest = std::max(highest, block.end());
        bytes += block.bytes;
    }
    if (bytes != flat.bytes) return say(name + ": the blocks do not have the type's size");
    std::vector<unsigned char> memory(static_cast<size_t>(highest - lowest) + 64);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(i * 167 + i / 251);
    unsigned char* origin = memory.data() - lowest;
    std::vector<unsigned char> packed(static_cast<size_t>(bytes) + 64), ours;
    int position = 0;
    MPI_Pack(origin, 1, type, packed.data(), static_cast<int>(packed.size()), &position, MPI_COMM_SELF);
    packed.resize(static_cast<size_t>(position));
    for (const auto& block : flat.blocks)
        ours.insert(ours.end(), origin + block.displacement, origin + block.end());
    return packed == ours || say(name + ": MPI_Pack takes other bytes");
}

// Byte by byte: where in the file (or in memory) the bytes of elements laid out one after the other are.
std::vector<int64_t> places_of(const FlatType& type, int64_t origin, uint64_t position, uint64_t bytes) {
    std::vector<int64_t> in_element, places;
    for (const auto& block : type.blocks)
        for (int64_t at = block.displacement; at < block.end(); ++at) in_element.push_back(at);
    for (uint64_t at = position; at < position + bytes; ++at)
        places.push_back(origin + static_cast<int64_t>(at / type.bytes) * type.extent +
                         in_element[static_cast<size_t>(at % type.bytes)]);
    return places;
}

// A view of the type, and memory of it, against that.
bool as_laid_out(Random& random, const FlatType& flat, const std::string& name) {
    using tailrace::internal::collective::Request;
    if (flat.bytes == 0) {
        const auto none = tailrace::internal::collective::requests_of({0, flat}, 0, 1);
        return !none.ok() || say(name + ": a view without a byte has requests");
    }
    const uint64_t displacement = 100000 + below(random, 50), position = below(random, 5 * flat.bytes);
    const uint64_t bytes = below(random, 4 * flat.bytes + 1);
    const auto requests = tailrace::internal::collective::requests_of({displacement, flat}, position, bytes);
    if (!requests.ok()) return say(name + ": " + requests.status().to_string());
    std::vector<int64_t> asked;
    for (const Request& request : *requests) {
        if (request.bytes == 0) return say(name + ": a request of nothing");
        for (uint64_t at = request.offset; at < request.end(); ++at)
            asked.push_back(static_cast<int64_t>(at));
    }
    if (asked != places_of(flat, static_cast<int64_t>(displacement), position, bytes))
        return say(name + ": a file view has other bytes");

    static std::vector<std::byte> memory = [] {
        std::vector<std::byte> made(size_t{4} << 20);
        for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(i * 167 + i / 251);
        return made;
    }();
    constexpr int64_t origin = int64_t{2} << 20;
    const uint64_t count = below(random, 4);
    const std::vector<int64_t> places = places_of(flat, origin, 0, count * flat.bytes);
    for (const int64_t place : places)
        if (place < 0 || place >= static_cast<int64_t>(memory.size()))
            return say(name + ": this test has too little memory for it");
    const auto list = tailrace::internal::collective::memory_of(memory.data() + origin, count, flat);
    std::vector<std::byte> stream(static_cast<size_t>(list.bytes())), expected;
    list.copy_out(0, stream);
    for (const int64_t place : places) expected.push_back(memory[static_cast<size_t>(place)]);
    return stream == expected || say(name + ": memory has other bytes");
}

// Positions beyond what a file can have are refused, and do not come out somewhere else.
bool refuses_what_is_too_far() {
    const FlatType sparse{{{0, 4}}, 4, 4096}, dense{{{0, 4}}, 4, 4};
    for (const auto& [type, position] : {std::pair{&sparse, uint64_t{1} << 62},
                                         {&sparse, uint64_t{1} << 53},
                                         {&dense, uint64_t{INT64_MAX} - 2},
                                         {&dense, UINT64_MAX}}) {
        const auto requests = tailrace::internal::collective::requests_of({16, *type}, position, 8);
        if (requests.ok() || requests.status().code() != tailrace::internal::Code::invalid_argument)
            return say("position " + std::to_string(position) + " is taken for a place in a file");
    }
    return tailrace::internal::collective::requests_of({16, sparse}, uint64_t{1} << 50, 8).ok() ||
           say("a far position is refused that a file can have");
}

#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40100000
bool as_mpix_says(MPI_Datatype type, const FlatType& flat, const std::string& name) {
    MPI_Count count = 0, bytes = 0;
    MPIX_Type_iov_len(type, -1, &count, &bytes);
    std::vector<MPIX_Iov> list(static_cast<size_t>(count));
    MPI_Count got = 0;
    MPIX_Type_iov(type, 0, list.data(), count, &got);
    std::vector<tailrace::internal::collective::Block> joined;
    for (const MPIX_Iov& piece : list) {
        const auto displacement = static_cast<int64_t>(reinterpret_cast<intptr_t>(piece.iov_base));
        const auto length = static_cast<uint64_t>(piece.iov_len);
        if (length == 0) continue;
        if (!joined.empty() && joined.back().end() == displacement)
            joined.back().bytes += length;
        else
            joined.push_back({displacement, length});
    }
    return joined == flat.blocks || say(name + ": MPIX_Type_iov has another list");
}
#else
bool as_mpix_says(MPI_Datatype, const FlatType&, const std::string&) {
    return true;
}
#endif

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
#if !(defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40100000)
    std::puts(
        "compared with MPI_Pack alone: this MPI library has no MPIX_Type_iov (MPICH does, from 4.1 on)");
#endif
#if MPI_VERSION >= 4
    constexpr int ways = 15;  // the last ones with large counts
#else
    constexpr int ways = 12;
#endif
    bool right = refuses_what_is_too_far();
    for (const uint64_t seed : tailrace::internal::seeds(1, 3000)) {
        Random random(seed);
        std::vector<MPI_Datatype> chain = {named(random)};
        const uint64_t depth = 1 + below(random, 3);
        std::string name = "seed " + std::to_string(seed) + ", ways";
        for (uint64_t level = 0; level < depth; ++level) {
            const int way = static_cast<int>((seed + level * 5) % ways);
            name += " " + std::to_string(way);
            chain.push_back(made(random, chain.back(), way));
        }
        MPI_Datatype type = chain.back();
        MPI_Type_commit(&type);
        const auto flat = tailrace::internal::collective::flatten(type);
        if (!flat.ok())
            right = say(name + ": " + flat.status().to_string());
        else
            right = as_mpi_packs(type, *flat, name) && as_mpix_says(type, *flat, name) &&
                    as_laid_out(random, *flat, name) && right;
        for (size_t i = 1; i < chain.size(); ++i) MPI_Type_free(&chain[i]);
    }
    MPI_Finalize();
    return right ? 0 : 1;
}
