#include "c_api/mpi_flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "transport/mpi_call.h"

namespace tailrace::internal::collective {

namespace {

// Blocks are added in typemap order. Blocks that touch become one.
void append(std::vector<Block>& blocks, const Block& block) {
    if (block.bytes == 0) return;
    if (!blocks.empty() && blocks.back().end() == block.displacement)
        blocks.back().bytes += block.bytes;
    else
        blocks.push_back(block);
}

bool is_dense(const FlatType& type) {
    return type.blocks.size() == 1 && static_cast<int64_t>(type.blocks.front().bytes) == type.extent;
}

// `count` elements one extent apart, the first at `displacement`.
void append_elements(std::vector<Block>& blocks, const FlatType& type, int64_t count, int64_t displacement) {
    if (count > 0 && is_dense(type)) {
        append(blocks,
               {displacement + type.blocks.front().displacement, static_cast<uint64_t>(count) * type.bytes});
        return;
    }
    for (int64_t i = 0; i < count; ++i)
        for (const Block& block : type.blocks)
            append(blocks, {displacement + i * type.extent + block.displacement, block.bytes});
}

// How a type was made, and how many numbers of each kind describe it.
#if MPI_VERSION >= 4
using EnvelopeCount = MPI_Count;  // calls without counts refuse types that were made with large ones
#else
using EnvelopeCount = int;
#endif
struct Envelope {
    EnvelopeCount integers = 0, addresses = 0, counts = 0, types = 0;
    int combiner = MPI_COMBINER_NAMED;

    int get(MPI_Datatype type) {
#if MPI_VERSION >= 4
        return MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner);
#else
        return MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
#endif
    }
    // Predefined types have no contents and must not be freed.
    bool is_predefined() const {
        return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
               combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
    }
};

// The contents that a type was made from. Numbers are in the order of the standard's tables. If a
// constructor with large counts was used, both counts and displacements are among `counts`.
struct Contents {
    Envelope envelope;
    std::vector<int64_t> integers, addresses, counts;
    std::vector<MPI_Datatype> types;

    bool large() const { return !counts.empty(); }

    Contents() = default;
    Contents(const Contents&) = delete;
    Contents& operator=(const Contents&) = delete;
    ~Contents() {
        for (MPI_Datatype& type : types) {
            Envelope its;
            if (its.get(type) == MPI_SUCCESS && !its.is_predefined()) MPI_Type_free(&type);
        }
    }
};

Status take_apart(MPI_Datatype type, Contents& contents) {
    Envelope& envelope = contents.envelope;
    TAILRACE_MPI_TRY(envelope.get(type), "taking a datatype apart");
    if (envelope.is_predefined()) return Status();
    std::vector<int> i(static_cast<size_t>(envelope.integers));
    std::vector<MPI_Aint> a(static_cast<size_t>(envelope.addresses));
    contents.types.assign(static_cast<size_t>(envelope.types), MPI_BYTE);
#if MPI_VERSION >= 4
    std::vector<MPI_Count> c(static_cast<size_t>(envelope.counts));
    TAILRACE_MPI_TRY(
        MPI_Type_get_contents_c(type, envelope.integers, envelope.addresses, envelope.counts, envelope.types,
                                i.data(), a.data(), c.data(), contents.types.data()),
        "taking a datatype apart");
    contents.counts.assign(c.begin(), c.end());
#else
    TAILRACE_MPI_TRY(MPI_Type_get_contents(type, envelope.integers, envelope.addresses, envelope.types,
                                           i.data(), a.data(), contents.types.data()),
                     "taking a datatype apart");
#endif
    contents.integers.assign(i.begin(), i.end());
    contents.addresses.assign(a.begin(), a.end());
    return Status();
}

// Named types have their bytes in one piece, except the pairs of MPI_MINLOC that are padded inside.
Result<std::vector<Block>> blocks_of_named(MPI_Datatype type, uint64_t bytes) {
    struct Short {
        short value;
        int index;
    };
    if (type == MPI_SHORT_INT)
        return std::vector<Block>{{0, sizeof(short)}, {offsetof(Short, index), sizeof(int)}};
    if (bytes == 0) return std::vector<Block>();
    return std::vector<Block>{{0, bytes}};
}

// Numbers that come either as counts (large constructors) or as integers and addresses. Call in the
// order of the standard's table.
class Numbers {
  public:
    explicit Numbers(const Contents& contents) : contents_(contents) {}
    int64_t count() { return contents_.large() ? contents_.counts[c_++] : contents_.integers[i_++]; }
    std::vector<int64_t> count_list(int64_t length) {
        std::vector<int64_t> list;
        for (int64_t k = 0; k < length; ++k) list.push_back(count());
        return list;
    }
    int64_t integer() { return contents_.integers[i_++]; }
    std::vector<int64_t> integer_list(int64_t length) {
        std::vector<int64_t> list;
        for (int64_t k = 0; k < length; ++k) list.push_back(integer());
        return list;
    }
    int64_t address() { return contents_.large() ? contents_.counts[c_++] : contents_.addresses[a_++]; }
    std::vector<int64_t> address_list(int64_t length) {
        std::vector<int64_t> list;
        for (int64_t k = 0; k < length; ++k) list.push_back(address());
        return list;
    }

  private:
    const Contents& contents_;
    size_t i_ = 0, a_ = 0, c_ = 0;
};

// The blocks of an array if some indices are chosen in each direction, as in subarrays and
// distributed arrays. Directions are ordered from the slowest to the fastest.
struct Direction {
    int64_t size = 0;
    std::vector<std::pair<int64_t, int64_t>> chosen;  // first index, count
};

void append_array(std::vector<Block>& blocks, const FlatType& element,
                  const std::vector<Direction>& directions, size_t at, int64_t index) {
    if (at == directions.size()) {
        append_elements(blocks, element, 1, index * element.extent);
        return;
    }
    const Direction& direction = directions[at];
    for (const auto& [first, count] : direction.chosen) {
        if (at + 1 == directions.size()) {
            append_elements(blocks, element, count, (index * direction.size + first) * element.extent);
            continue;
        }
        for (int64_t i = first; i < first + count; ++i)
            append_array(blocks, element, directions, at + 1, index * direction.size + i);
    }
}

void append_subarray(std::vector<Block>& blocks, const FlatType& element, const Contents& contents) {
    Numbers numbers(contents);
    const int64_t dimensions = numbers.integer();
    const auto sizes = numbers.count_list(dimensions), subsizes = numbers.count_list(dimensions),
               starts = numbers.count_list(dimensions);
    const int64_t order = numbers.integer();
    std::vector<Direction> directions;
    for (size_t d = 0; d < sizes.size(); ++d) directions.push_back({sizes[d], {{starts[d], subsizes[d]}}});
    if (order == MPI_ORDER_FORTRAN) std::reverse(directions.begin(), directions.end());
    append_array(blocks, element, directions, 0, 0);
}

// The indices that process `place` of `places` has in one direction.
Direction distributed(int64_t size, int64_t distribution, int64_t argument, int64_t places, int64_t place) {
    Direction direction{size, {}};
    if (distribution == MPI_DISTRIBUTE_NONE) {
        direction.chosen.push_back({0, size});
        return direction;
    }
    int64_t block = argument;
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        block = distribution == MPI_DISTRIBUTE_BLOCK ? (size + places - 1) / places : 1;
    const int64_t step = distribution == MPI_DISTRIBUTE_BLOCK ? size : block * places;
    for (int64_t first = place * block; first < size; first += std::max<int64_t>(step, 1))
        direction.chosen.push_back({first, std::min(block, size - first)});
    return direction;
}

void append_darray(std::vector<Block>& blocks, const FlatType& element, const Contents& contents) {
    Numbers numbers(contents);
    (void)numbers.integer();  // the number of processes
    int64_t rank = numbers.integer();
    const int64_t dimensions = numbers.integer();
    const auto sizes = numbers.count_list(dimensions);
    const auto distributions = numbers.integer_list(dimensions), arguments = numbers.integer_list(dimensions),
               places = numbers.integer_list(dimensions);
    const int64_t order = numbers.integer();
    // Processes are numbered in C order, whatever the array's order is.
    std::vector<Direction> directions(sizes.size());
    for (size_t d = sizes.size(); d-- > 0; rank /= places[d])
        directions[d] = distributed(sizes[d], distributions[d], arguments[d], places[d], rank % places[d]);
    if (order == MPI_ORDER_FORTRAN) std::reverse(directions.begin(), directions.end());
    append_array(blocks, element, directions, 0, 0);
}

Status append_made(std::vector<Block>& blocks, const std::vector<FlatType>& parts, const Contents& contents) {
    Numbers numbers(contents);
    switch (contents.envelope.combiner) {
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED:
            for (const Block& block : parts[0].blocks) append(blocks, block);
            return Status();
        case MPI_COMBINER_CONTIGUOUS:
            append_elements(blocks, parts[0], numbers.count(), 0);
            return Status();
        case MPI_COMBINER_VECTOR:
        case MPI_COMBINER_HVECTOR: {
            const bool in_bytes = contents.envelope.combiner == MPI_COMBINER_HVECTOR;
            const int64_t count = numbers.count(), length = numbers.count();
            const int64_t stride = in_bytes ? numbers.address() : numbers.count() * parts[0].extent;
            for (int64_t i = 0; i < count; ++i) append_elements(blocks, parts[0], length, i * stride);
            return Status();
        }
        case MPI_COMBINER_INDEXED:
        case MPI_COMBINER_HINDEXED: {
            const bool in_bytes = contents.envelope.combiner == MPI_COMBINER_HINDEXED;
            const int64_t count = numbers.count();
            const auto lengths = numbers.count_list(count);
            const auto places = in_bytes ? numbers.address_list(count) : numbers.count_list(count);
            for (size_t i = 0; i < lengths.size(); ++i)
                append_elements(blocks, parts[0], lengths[i], places[i] * (in_bytes ? 1 : parts[0].extent));
            return Status();
        }
        case MPI_COMBINER_INDEXED_BLOCK:
        case MPI_COMBINER_HINDEXED_BLOCK: {
            const bool in_bytes = contents.envelope.combiner == MPI_COMBINER_HINDEXED_BLOCK;
            const int64_t count = numbers.count(), length = numbers.count();
            const auto places = in_bytes ? numbers.address_list(count) : numbers.count_list(count);
            for (const int64_t place : places)
                append_elements(blocks, parts[0], length, place * (in_bytes ? 1 : parts[0].extent));
            return Status();
        }
        case MPI_COMBINER_STRUCT: {
            const int64_t count = numbers.count();
            const auto lengths = numbers.count_list(count), places = numbers.address_list(count);
            for (size_t i = 0; i < lengths.size(); ++i)
                append_elements(blocks, parts[i], lengths[i], places[i]);
            return Status();
        }
        case MPI_COMBINER_SUBARRAY:
            append_subarray(blocks, parts[0], contents);
            return Status();
        case MPI_COMBINER_DARRAY:
            append_darray(blocks, parts[0], contents);
            return Status();
        default:
            return Status(Code::unsupported, fmt::format("a datatype was made by an unknown combiner ({})",
                                                         contents.envelope.combiner));
    }
}

}  // namespace

Result<FlatType> flatten(MPI_Datatype type) {
    FlatType flat;
    MPI_Aint lower = 0, extent = 0;
    TAILRACE_MPI_TRY(MPI_Type_get_extent(type, &lower, &extent), "asking MPI for a datatype's extent");
    flat.extent = extent;
    MPI_Count bytes = 0;
    TAILRACE_MPI_TRY(MPI_Type_size_x(type, &bytes), "asking MPI for a datatype's size");
    flat.bytes = static_cast<uint64_t>(bytes);

    Contents contents;
    TAILRACE_TRY(take_apart(type, contents));
    if (contents.envelope.is_predefined()) {
        TAILRACE_ASSIGN(flat.blocks, blocks_of_named(type, flat.bytes));
        return flat;
    }
    std::vector<FlatType> parts;
    for (const MPI_Datatype part : contents.types) {
        TAILRACE_ASSIGN(FlatType flat_part, flatten(part));
        parts.push_back(std::move(flat_part));
    }
    TAILRACE_TRY(append_made(flat.blocks, parts, contents));
    return flat;
}

namespace {

// Whether the tiles of the view's data [position, position + bytes) lie within the 63 bits of a
// file's offsets.
bool is_within_a_file(const FileView& view, uint64_t position, uint64_t bytes) {
    __extension__ using Wide = __int128;  // holds every product and sum of these
    const Wide first_tile = position / view.type.bytes;
    const Wide last_tile = (Wide(position) + bytes - 1) / view.type.bytes;
    Wide lowest = INT64_MAX, highest = 0;
    for (const Wide tile : {first_tile, last_tile}) {
        const Wide origin = Wide(view.displacement) + tile * view.type.extent;
        for (const Block& block : view.type.blocks) {
            lowest = std::min(lowest, origin + block.displacement);
            highest = std::max(highest, origin + block.displacement + Wide(block.bytes));
        }
    }
    return lowest >= 0 && highest <= INT64_MAX;
}

}  // namespace

Result<std::vector<Request>> requests_of(const FileView& view, uint64_t position, uint64_t bytes) {
    std::vector<Request> requests;
    if (bytes == 0) return requests;
    const FlatType& type = view.type;
    if (type.bytes == 0)
        return Status(Code::invalid_argument, "a file view without bytes cannot be read or written");
    const auto add = [&](uint64_t offset, uint64_t length) {
        if (!requests.empty() && requests.back().end() == offset)
            requests.back().bytes += length;
        else
            requests.push_back({offset, length});
    };
    const int64_t first =
        std::min_element(type.blocks.begin(), type.blocks.end(), [](const Block& a, const Block& b) {
            return a.displacement < b.displacement;
        })->displacement;
    if (first < 0 && static_cast<uint64_t>(-first) > view.displacement)
        return Status(Code::invalid_argument, "a file view begins before the file");
    if (!is_within_a_file(view, position, bytes))
        return Status(
            Code::invalid_argument,
            fmt::format("{} bytes from byte {} of a file view on exceed the greatest size of a file", bytes,
                        position));
    if (is_dense(type)) {
        add(view.displacement + static_cast<uint64_t>(first) + position, bytes);
        return requests;
    }
    uint64_t tile = position / type.bytes, within = position % type.bytes;
    size_t block = 0;
    while (within >= type.blocks[block].bytes) within -= type.blocks[block++].bytes;
    while (bytes > 0) {
        const Block& current = type.blocks[block];
        const uint64_t length = std::min(bytes, current.bytes - within);
        add(view.displacement + tile * static_cast<uint64_t>(type.extent) +
                static_cast<uint64_t>(current.displacement) + within,
            length);
        bytes -= length;
        within = 0;
        if (++block == type.blocks.size()) {
            block = 0;
            ++tile;
        }
    }
    return requests;
}

MemoryList memory_of(void* address, uint64_t count, const FlatType& type) {
    std::vector<Block> blocks;
    append_elements(blocks, type, static_cast<int64_t>(count), 0);
    std::vector<MemoryList::Memory> pieces;
    pieces.reserve(blocks.size());
    for (const Block& block : blocks)
        pieces.emplace_back(static_cast<std::byte*>(address) + block.displacement,
                            static_cast<size_t>(block.bytes));
    return MemoryList(std::move(pieces));
}

}  // namespace tailrace::internal::collective
