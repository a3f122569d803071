// EpochArrays: puts the global arrays of an epoch together from the pieces that its ranks saved,
// and reads boxes of them into memory.
//
// The steps of read_boxes:
//   1. assign_parts finds which rank's piece serves which part of each box.
//   2. All parts are sorted in file order.
//   3. The blocks that a batch of parts needs are read together. Blocks in long rows go straight
//      into their box. Others go to bounded memory, from which rows are copied.
//
// Invariant: every element comes from the lowest rank that saved it. A box with an element that no
// rank saved is not read.
//
// Thread-safety: all members may be called from several threads at once. The table of arrays is
// made on first use, from every rank's manifest, and kept.
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
    // `streams` must outlive this object.
    explicit EpochArrays(EpochStreams& streams) : streams_(streams) {}

    // These do what EpochReader::arrays, array and read_boxes promise.
    Result<std::vector<GlobalArray>> list();
    Result<GlobalArray> one(std::string_view name);
    Status read_boxes(std::span<const BoxTarget> boxes);

  private:
    struct PieceRef {
        uint32_t rank = 0;
        uint32_t region = 0;
        uint64_t list_offset = 0;  // of a list: how many items lower ranks have
    };
    struct Array {
        GlobalArray global;
        std::vector<PieceRef> pieces;  // ascending by rank
        // Whether the pieces differ in type or global shape. Then no box can be put together.
        bool differing() const { return global.fault && global.fault->kind == ArrayFault::Kind::differing; }
    };
    using Table = std::vector<Array>;
    // The part of a box that one rank's piece serves.
    struct Part {
        PieceRef from;
        Box box;
    };
    // The piece from which a part is read.
    struct Piece {
        const SavedRank& saved;
        uint32_t number = 0;  // the region's
        Box box;

        const Region& region() const { return saved.manifest.regions[number]; }
        uint64_t element_width() const { return element_bytes(region().array->type); }
    };

    // Check blocks of one rank that are read together. Some of them go to memory of the batch's
    // own, from which `copies` bring the wanted shares to their places.
    struct Batch {
        const SavedRank* saved = nullptr;
        std::vector<StreamBlock> blocks;
        std::vector<Memory> own;
        uint64_t own_bytes = 0;
        std::vector<std::function<void()>> copies;
        // The blocks of the last region that went to own memory. The next part may want the rest of
        // them.
        uint32_t region = 0;
        std::map<uint64_t, std::byte*> of_region;
    };

    Result<const Table*> table();
    Status judge(Array& array);                       // sets `complete` and `fault`, and lays a list out
    Result<Box> box_of_piece(const PieceRef& piece);  // in the whole array
    Result<const Array*> find(std::string_view name);
    Result<std::vector<Part>> assign_parts(const Array& array, const Box& box);
    Status add_part(const Part& part, const Box& box, const BoxTarget& target, Batch& batch);
    Status add_long_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                         Batch& batch);
    Status add_short_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                          Batch& batch);
    Status read_short_rows(const Piece& piece, const Box& part, const Box& box, const BoxTarget& target,
                           std::span<const uint64_t> needed);
    // Adds block `block` to the batch, to be read into memory of the batch's own, and returns that
    // memory.
    Result<const std::byte*> own_block(const Piece& piece, uint64_t block, Batch& batch);
    Status flush(Batch& batch);

    EpochStreams& streams_;
    Mutex mutex_;  // guards the pointer; the table never changes once it is made
    std::unique_ptr<const Table> table_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
