// EpochArrays: the global arrays of an epoch, put together from the pieces that its ranks saved, and boxes of
// them read into memory.
//
//   read_boxes   which rank's piece serves which part of each box (assign_parts); all parts in file order;
//                what a batch of them wants is read together: blocks in long rows straight into their box,
//                others into bounded memory, from which rows are copied
//
// Invariant: every element comes from the lowest rank that saved it; a box with an element that nobody saved
// is not read.
//
// Thread-safety: all members may be called from several threads at once. The table of arrays is made on first
// use, from every rank's manifest, and kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "array/hyperslab.h"
#include "base/status.h"
#include "read/epoch_reader.h"
#include "read/epoch_streams.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class EpochArrays {
  public:
    explicit EpochArrays(EpochStreams& streams) : streams_(streams) {}  // which must outlive this object

    // EpochReader::arrays and EpochReader::read_boxes.
    Result<std::vector<GlobalArray>> list();
    Status read_boxes(std::span<const BoxTarget> boxes);

  private:
    struct PieceRef {
        uint32_t rank = 0;
        uint32_t region = 0;
    };
    struct Array {
        GlobalArray global;
        std::vector<PieceRef> pieces;  // ascending by rank
        // In type or global shape: no box of it can be put together.
        bool differing() const { return global.fault && global.fault->kind == ArrayFault::Kind::differing; }
    };
    using Table = std::vector<Array>;
    // What one rank's piece gives to a box.
    struct Part {
        PieceRef from;
        Box box;
    };
    // The piece that a part is read from.
    struct Piece {
        const SavedRank& saved;
        uint32_t number = 0;  // of the region
        Box box;

        const Region& region() const { return saved.manifest.regions[number]; }
        uint64_t element_width() const { return element_bytes(region().array->type); }
    };

    // Check blocks of one rank that are read together, some of them into memory of the batch's own, from
    // which `copies` bring the shares that are wanted to their places.
    struct Batch {
        const SavedRank* saved = nullptr;
        std::vector<StreamBlock> blocks;
        std::vector<Memory> own;
        uint64_t own_bytes = 0;
        std::vector<std::function<void()>> copies;
        // The blocks of the last region that went to own memory: the next part may want the rest of them.
        uint32_t region = 0;
        std::map<uint64_t, std::byte*> of_region;
    };

    Result<const Table*> table();
    Status judge(Array& array);  // sets what the pieces say about the whole
    Result<const Array*> find(std::string_view name);
    Result<std::vector<Part>> assign_parts(const Array& array, const Box& box);
    Status add_part(const Part& part, const Box& box, const BoxTarget& target, Batch& batch);
    Status add_long_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                         Batch& batch);
    Status add_short_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                          Batch& batch);
    Status read_short_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                           std::span<const uint64_t> needed);
    // Own memory for block `block`, which is read with the batch.
    Result<const std::byte*> own_block(const Piece& piece, uint64_t block, Batch& batch);
    Status flush(Batch& batch);

    EpochStreams& streams_;
    Mutex mutex_;  // guards the pointer; the table is not changed once it is there
    std::unique_ptr<const Table> table_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
