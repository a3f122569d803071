// EpochArrays: the global arrays of an epoch, put together from the pieces that its ranks saved, and boxes of
// them read into memory.
//
//   read_box   which rank's piece serves which part of the box (assign_parts), then part by part: long rows
//              straight into the box, short rows through a bounded scratch buffer
//
// Invariant: every element comes from the lowest rank that saved it; a box with an element that nobody saved
// is not read.
//
// Thread-safety: all members may be called from several threads at once. The table of arrays is made on first
// use, from every rank's manifest, and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/epoch_reader.h"
#include "checkpoint/epoch_streams.h"
#include "checkpoint/hyperslab.h"

namespace tailrace {

class EpochArrays {
  public:
    explicit EpochArrays(EpochStreams& streams) : streams_(streams) {}  // which must outlive this object

    // EpochReader::arrays and EpochReader::read_box.
    Result<std::vector<GlobalArray>> list();
    Status read_box(std::string_view name, std::span<const uint64_t> offset, std::span<const uint64_t> shape,
                    std::span<std::byte> memory);

  private:
    struct PieceRef {
        uint32_t rank = 0;
        uint32_t region = 0;
    };
    struct Array {
        GlobalArray global;
        std::vector<PieceRef> pieces;       // ascending by rank
        std::optional<uint32_t> differing;  // the first rank whose piece has another type or global shape
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

    Result<const Table*> table();
    Result<const Array*> find(std::string_view name);
    Result<std::vector<Part>> assign_parts(const Array& array, const Box& box);
    Status read_part(const Part& part, const Box& box, std::span<std::byte> memory);
    Status read_long_rows(const Piece& piece, const Box& part, const Box& box, std::span<std::byte> memory);
    Status read_short_rows(const Piece& piece, const Box& part, const Box& box, std::span<std::byte> memory);

    EpochStreams& streams_;
    std::mutex mutex_;  // guards the pointer; the table is not changed once it is there
    std::unique_ptr<const Table> table_;
};

}  // namespace tailrace
