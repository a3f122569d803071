#include "read/epoch_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/nearest.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// The most memory that reading boxes takes besides theirs.
constexpr uint64_t scratch_bytes = 16 << 20;
// Rows of at least this length are read straight into a box.
constexpr uint64_t long_row_bytes = 1 << 20;

// Returns ok if the box lies in the array and the memory is as large as the box.
Status check_box(const GlobalArray& array, const Box& box, uint64_t memory_bytes) {
    if (box.offset.size() != array.shape.size() || box.shape.size() != array.shape.size())
        return Status(Code::invalid_argument,
                      fmt::format("array '{}' has {} dimensions; the box has {} offsets and {} extents",
                                  array.name, array.shape.size(), box.offset.size(), box.shape.size()));
    for (size_t d = 0; d < box.shape.size(); ++d)
        if (box.offset[d] > array.shape[d] || box.shape[d] > array.shape[d] - box.offset[d])
            return Status(Code::invalid_argument,
                          fmt::format("a box at {} of extent {} in dimension {} does not lie in array '{}', "
                                      "whose extent there is {}",
                                      box.offset[d], box.shape[d], d, array.name, array.shape[d]));
    // This fits in 64 bits, because the box lies in the array, whose size does (check_array_piece).
    const uint64_t bytes = box.elements() * element_bytes(array.type);
    if (bytes != memory_bytes)
        return Status(
            Code::invalid_argument,
            fmt::format("box {} of array '{}' has {} bytes, but its memory has {}; nothing was read",
                        box_text(box), array.name, bytes, memory_bytes));
    return Status();
}

}  // namespace

// ---- the table of arrays ------------------------------------------------------------------------

Result<const EpochArrays::Table*> EpochArrays::table() {
    {
        MutexLock lock(mutex_);
        if (table_ != nullptr) return table_.get();
    }
    TAILRACE_ASSIGN(const auto ranks, streams_.ranks_in_file_order());
    for (uint32_t rank : ranks) TAILRACE_TRY(streams_.saved(rank).status());

    auto table = std::make_unique<Table>();
    std::unordered_map<std::string_view, size_t> by_name;
    for (uint32_t rank = 0; rank < streams_.rank_count(); ++rank) {
        TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
        const std::vector<Region>& regions = saved->manifest.regions;
        for (uint32_t r = 0; r < regions.size(); ++r) {
            if (!regions[r].array) continue;
            const ArrayPiece& piece = *regions[r].array;
            auto [found, is_new] = by_name.try_emplace(regions[r].name, table->size());
            if (is_new)
                table->push_back({{regions[r].name,
                                   piece.type,
                                   piece.global_shape,
                                   piece.may_have_gaps,
                                   piece.may_overlap,
                                   piece.is_list,
                                   false,
                                   {}},
                                  {}});
            (*table)[found->second].pieces.push_back({rank, r});
        }
    }
    for (Array& array : *table) TAILRACE_TRY(judge(array));
    MutexLock lock(mutex_);
    if (table_ == nullptr) table_ = std::move(table);
    return table_.get();
}

Status EpochArrays::judge(Array& array) {
    std::vector<RankPiece> pieces;
    for (const PieceRef& from : array.pieces) {
        TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(from.rank));
        pieces.push_back({from.rank, &*saved->manifest.regions[from.region].array});
    }
    array.global.fault = check_array(array.global.name, pieces, streams_.rank_count());
    if (array.global.is_list) {
        uint64_t items = 0;
        for (size_t i = 0; i < pieces.size() && !array.global.fault; ++i) {
            array.pieces[i].list_offset = items;
            items += pieces[i].piece->local_shape.front();
        }
        array.global.shape.front() = items;
        array.global.complete = !array.global.fault;
        return {};
    }
    std::vector<Box> boxes;
    for (const RankPiece& one : pieces) boxes.push_back(box_of(*one.piece));
    const bool gaps_declared = pieces.front().piece->may_have_gaps;
    array.global.complete = !(array.global.fault && array.global.fault->unrestorable()) &&
                            !(gaps_declared && first_gap(array.global.shape, std::move(boxes)));
    return {};
}

Result<Box> EpochArrays::box_of_piece(const PieceRef& piece) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(piece.rank));
    Box box = box_of(*saved->manifest.regions[piece.region].array);
    box.offset.front() += piece.list_offset;
    return box;
}

Result<std::vector<GlobalArray>> EpochArrays::list() {
    TAILRACE_ASSIGN(const Table* arrays, table());
    std::vector<GlobalArray> found;
    for (const Array& array : *arrays) found.push_back(array.global);
    return found;
}

Result<GlobalArray> EpochArrays::one(std::string_view name) {
    TAILRACE_ASSIGN(const Array* array, find(name));
    return array->global;
}

Result<const EpochArrays::Array*> EpochArrays::find(std::string_view name) {
    TAILRACE_ASSIGN(const Table* arrays, table());
    std::vector<std::string_view> names;
    for (const Array& array : *arrays) {
        if (array.global.name == name) return &array;
        names.push_back(array.global.name);
    }
    const std::string missing = fmt::format("{} has no array '{}'", streams_.name(), name);
    if (names.empty()) return Status(Code::not_found, missing + ", nor any other array");
    const std::string which =
        names.size() > 1 ? fmt::format("the nearest of its {} arrays", names.size()) : "its only array";
    return Status(Code::not_found, fmt::format("{}; {} is '{}'", missing, which, nearest_name(name, names)));
}

// ---- boxes --------------------------------------------------------------------------------------

Status EpochArrays::read_boxes(std::span<const BoxTarget> boxes) {
    struct Wanted {
        Part part;
        uint64_t rank_place = 0;  // the rank's place in file order
        Box box;
        const BoxTarget* target = nullptr;
    };
    TAILRACE_ASSIGN(const auto ranks, streams_.ranks_in_file_order());
    std::vector<uint64_t> place_of(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) place_of[ranks[i]] = i;
    std::vector<Wanted> wanted;
    for (const BoxTarget& target : boxes) {
        TAILRACE_ASSIGN(const Array* array, find(target.name));
        const Box box{target.offset, target.shape};
        TAILRACE_TRY(check_box(array->global, box, target.memory.size()));
        if (array->differing())
            return Status(Code::corrupt, fmt::format("{}: {}; its pieces can be read as regions",
                                                     streams_.name(), array->global.fault->sentence));
        TAILRACE_ASSIGN(auto parts, assign_parts(*array, box));
        for (Part& part : parts) {
            const uint64_t place = place_of[part.from.rank];
            wanted.push_back({std::move(part), place, box, &target});
        }
    }
    std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
        return std::tie(a.rank_place, a.part.from.region, a.part.box.offset) <
               std::tie(b.rank_place, b.part.from.region, b.part.box.offset);
    });
    Batch batch;
    for (const Wanted& one : wanted) TAILRACE_TRY(add_part(one.part, one.box, *one.target, batch));
    return flush(batch);
}

Status EpochArrays::flush(Batch& batch) {
    if (!batch.blocks.empty()) TAILRACE_TRY(streams_.read(*batch.saved, std::move(batch.blocks)));
    for (const auto& copy : batch.copies) copy();
    batch = Batch{};
    return Status();
}

// Goes through the pieces by rank, and gives each what is still open of the box. So every element
// comes from the lowest rank that saved it. What is open at the end was saved by no rank.
Result<std::vector<EpochArrays::Part>> EpochArrays::assign_parts(const Array& array, const Box& box) {
    std::vector<Part> parts;
    if (box.elements() == 0 && std::count(box.shape.begin(), box.shape.end(), 0) > 0) return parts;
    std::vector<Box> open{box};
    for (const PieceRef& from : array.pieces) {
        if (open.empty()) break;
        TAILRACE_ASSIGN(const Box piece, box_of_piece(from));
        const auto common = intersect(box, piece);
        if (!common) continue;
        std::vector<Box> still_open;
        std::vector<Part> given;
        uint64_t given_elements = 0;
        for (const Box& hole : open) {
            if (auto part = intersect(hole, piece)) {
                given_elements += part->elements();
                given.push_back({from, std::move(*part)});
            }
            for (Box& rest : subtract(hole, piece)) still_open.push_back(std::move(rest));
        }
        // If no earlier piece took any of it, it stays one part, however the open boxes were cut.
        if (given_elements == common->elements()) given = {Part{from, *common}};
        for (Part& part : given) parts.push_back(std::move(part));
        open = std::move(still_open);
    }
    if (open.empty()) return parts;
    const auto what = fmt::format("elements {} of array '{}' of {} were saved by no rank",
                                  box_text(open.front()), array.global.name, streams_.name());
    if (!array.global.may_have_gaps) return Status(Code::corrupt, what);
    return Status(Code::not_found,
                  what + ", because it is declared to have gaps; ask for a piece that leaves them out");
}

Status EpochArrays::add_part(const Part& part, const Box& box, const BoxTarget& target, Batch& batch) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(part.from.rank));
    if (batch.saved != saved) TAILRACE_TRY(flush(batch));
    batch.saved = saved;
    TAILRACE_ASSIGN(Box where, box_of_piece(part.from));
    const Piece piece{*saved, part.from.region, std::move(where)};
    const uint64_t run_elements = common_run_elements(part.box, piece.box, box);
    const bool single = run_elements == part.box.elements();
    if (single || run_elements * piece.element_width() >= long_row_bytes)
        return add_long_rows(piece, part.box, box, target, batch);
    return add_short_rows(piece, part.box, box, target, batch);
}

// Check blocks that lie wholly in a row are read straight into their place. Those at a row's ends
// go to memory of their own, from which the row's share is copied.
Status EpochArrays::add_long_rows(const Piece& piece, const Box& part, const Box& box,
                                  const BoxTarget& target, Batch& batch) {
    Status status;
    const uint64_t width = piece.element_width();
    for_each_common_run(part, piece.box, box, [&](uint64_t start, uint64_t target_start, uint64_t count) {
        const uint64_t from = start * width, to = from + count * width;
        const uint64_t to_target = target_start * width;
        for (uint64_t b = from / check_block_bytes; status.ok() && b * check_block_bytes < to; ++b) {
            const uint64_t block_from = b * check_block_bytes;
            const uint64_t block_to =
                std::min<uint64_t>(block_from + check_block_bytes, piece.region().bytes);
            if (block_from >= from && block_to <= to) {
                std::byte* const place =
                    one_after_another(target.memory.data(), target.strides, to_target + (block_from - from),
                                      block_to - block_from);
                if (place != nullptr) {
                    batch.blocks.push_back(block_of(piece.saved.manifest, piece.number, b, place));
                    continue;
                }
            }
            if (batch.own_bytes >= scratch_bytes) {
                status = flush(batch);
                batch.saved = &piece.saved;
                if (!status.ok()) return;
            }
            const auto own = own_block(piece, b, batch);
            if (!own.ok()) {
                status = own.status();
                return;
            }
            const uint64_t share_from = std::max(from, block_from), share_to = std::min(to, block_to);
            batch.copies.push_back([source = *own + (share_from - block_from), &target,
                                    share = to_target + (share_from - from), bytes = share_to - share_from] {
                scatter({source, bytes}, target.memory.data(), target.strides, share);
            });
        }
    });
    return status;
}

// A few blocks join the batch, and their rows are copied when the blocks are there. Many blocks go
// through a buffer.
Status EpochArrays::add_short_rows(const Piece& piece, const Box& part, const Box& box,
                                   const BoxTarget& target, Batch& batch) {
    const uint64_t width = piece.element_width();
    std::vector<uint64_t> needed;  // the numbers of the blocks, ascending
    for_each_run(piece.box, part, [&](uint64_t start, uint64_t count) {
        const uint64_t last = ((start + count) * width - 1) / check_block_bytes;
        uint64_t b = start * width / check_block_bytes;
        if (!needed.empty()) b = std::max(b, needed.back() + 1);
        for (; b <= last; ++b) needed.push_back(b);
    });
    const uint64_t bytes = needed.size() * check_block_bytes;
    if (batch.own_bytes + bytes > scratch_bytes) {
        TAILRACE_TRY(flush(batch));
        batch.saved = &piece.saved;
    }
    if (bytes > scratch_bytes) return read_short_rows(piece, part, box, target, needed);
    std::vector<const std::byte*> sources;
    for (const uint64_t block : needed) {
        TAILRACE_ASSIGN(const std::byte* own, own_block(piece, block, batch));
        sources.push_back(own);
    }
    batch.copies.push_back([sources = std::move(sources), needed = std::move(needed), piece_box = piece.box,
                            part, box, &target, width] {
        size_t slot = 0;
        for_each_common_run(part, piece_box, box, [&](uint64_t start, uint64_t target_start, uint64_t count) {
            uint64_t from = start * width;
            uint64_t left = count * width;
            uint64_t to = target_start * width;
            while (left > 0) {
                while (needed[slot] < from / check_block_bytes) ++slot;
                const uint64_t into = from % check_block_bytes;
                const uint64_t share = std::min<uint64_t>(left, check_block_bytes - into);
                scatter({sources[slot] + into, share}, target.memory.data(), target.strides, to);
                to += share;
                from += share;
                left -= share;
            }
        });
    });
    return Status();
}

Result<const std::byte*> EpochArrays::own_block(const Piece& piece, uint64_t block, Batch& batch) {
    if (batch.region != piece.number) batch.of_region.clear();
    batch.region = piece.number;
    std::byte*& known = batch.of_region[block];
    if (known == nullptr) {
        const uint64_t bytes =
            std::min<uint64_t>(check_block_bytes, piece.region().bytes - block * check_block_bytes);
        TAILRACE_ASSIGN(auto own, allocate(bytes, "a part of a check block"));
        known = own.get();
        batch.blocks.push_back(block_of(piece.saved.manifest, piece.number, block, known));
        batch.own_bytes += bytes;
        batch.own.push_back(std::move(own));
    }
    return static_cast<const std::byte*>(known);
}

// Goes through the part's rows in the order in which they lie in the region, and pulls the blocks
// that they touch (`needed`, ascending) through one scratch buffer.
Status EpochArrays::read_short_rows(const Piece& piece, const Box& part, const Box& box,
                                    const BoxTarget& target, std::span<const uint64_t> needed) {
    const uint64_t width = piece.element_width();
    const uint64_t slots = std::min<uint64_t>(needed.size(), scratch_bytes / check_block_bytes);
    TAILRACE_ASSIGN(auto scratch, allocate(slots * check_block_bytes, "the rows of a box"));
    size_t batch_first = 0, batch_count = 0;  // the entries of `needed` that lie in the scratch now
    // Within the batch: the block that the last row came from.
    size_t cursor = 0;
    Status status;
    const auto load_next = [&] {
        batch_first += batch_count;
        batch_count = std::min<size_t>(slots, needed.size() - batch_first);
        cursor = 0;
        std::vector<StreamBlock> blocks;
        for (size_t i = 0; i < batch_count; ++i)
            blocks.push_back(block_of(piece.saved.manifest, piece.number, needed[batch_first + i],
                                      scratch.get() + i * check_block_bytes));
        status = streams_.read(piece.saved, std::move(blocks));
    };
    for_each_common_run(part, piece.box, box, [&](uint64_t start, uint64_t target_start, uint64_t count) {
        uint64_t from = start * width;
        uint64_t left = count * width;
        uint64_t to = target_start * width;
        while (status.ok() && left > 0) {
            const uint64_t b = from / check_block_bytes;
            while (cursor < batch_count && needed[batch_first + cursor] < b) ++cursor;
            if (cursor == batch_count) {
                load_next();
                continue;
            }
            const uint64_t into = from - b * check_block_bytes;
            const uint64_t bytes = std::min<uint64_t>(left, check_block_bytes - into);
            scatter({scratch.get() + cursor * check_block_bytes + into, bytes}, target.memory.data(),
                    target.strides, to);
            to += bytes;
            from += bytes;
            left -= bytes;
        }
    });
    return status;
}

}  // namespace tailrace::internal
