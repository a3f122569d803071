// EpochReader: reads a complete epoch's regions and arrays from the nearest tier that has them, and
// checks every checksum. It needs no running job: the command-line tool uses it as a restart does.
//
// A stream may be available in several places: a captured part in this node's local tier, and
// extents in the K shared files. They are tried in that order. If a checksum is wrong in one place,
// or it cannot be read, the log says so with file, offset and region, and the next place serves. A
// read fails only when no place is left.
//
// Thread-safety: all members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array/array_check.h"
#include "array/strides.h"
#include "base/status.h"
#include "catalog/catalog.h"
#include "format/manifest.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Where an epoch can be read from. At least one of the two must cover every rank that is asked for.
struct EpochSources {
    EpochKey key;
    uint32_t rank_count = 0;
    // The captured parts that this node can open, for any subset of the ranks.
    std::vector<CapturedPart> local_parts;
    std::optional<SharedEpoch> shared;
    // Used without `shared`: finds the shared files when captured parts are not sound. Any reading
    // thread may call it, but never two at once. It must work for as long as the reader exists.
    std::function<Result<SharedEpoch>()> find_shared = nullptr;
};

// A region's memory for read_regions.
struct RegionTarget {
    std::string name;
    std::span<std::byte> memory;  // as large as the region
    // If given, the bytes lie as these say, and `memory` begins at the first.
    Strides strides = {};
};

// A box [offset, offset + shape) of a global array, and memory for it, which is row-major and as
// large as the box.
struct BoxTarget {
    std::string name;
    std::vector<uint64_t> offset;
    std::vector<uint64_t> shape;
    std::span<std::byte> memory;
    Strides strides = {};  // as in RegionTarget
};

// A global array: the union of what the ranks saved.
struct GlobalArray {
    std::string name;
    ElementType type = ElementType::bytes;
    std::vector<uint64_t> shape;
    // As the first rank declared it that saved the array. If another rank declares otherwise, that
    // is a fault.
    bool may_have_gaps = false, may_overlap = false;
    bool is_list = false;             // then shape[0] counts the items of all ranks
    bool complete = false;            // the pieces cover the whole shape
    std::optional<ArrayFault> fault;  // why it would be refused at a save, or cannot be restored
};

// Where all bytes of a region lie one after another in one file.
struct RegionPlace {
    std::string path;
    uint64_t offset = 0;
};

class EpochReader {
  public:
    // The storages must outlive the reader. `direct` says how shared files are read. Captured parts
    // are read through the cache, because they are likely to be in it still.
    static Result<std::unique_ptr<EpochReader>> open(Storage& local, Storage& shared, EpochSources sources,
                                                     DirectIo direct = DirectIo::automatic);
    virtual ~EpochReader() = default;

    // Opens the epoch's files, up to the number that is kept open (64). These stay readable when
    // the epoch is replaced and its files are removed. Other files are opened when they are first
    // read. not_found if a file has been removed already.
    virtual Status open_files() = 0;

    // The damaged epochs that would have come before this one, each with the reason: "epoch 9 of
    // run 2: ...". Empty if there are none. Set by the code that opens the reader, before anybody
    // else has it.
    const std::string& passed_over() const { return passed_over_; }
    void set_passed_over(std::string epochs) { passed_over_ = std::move(epochs); }

    virtual EpochKey key() const = 0;
    virtual uint32_t rank_count() const = 0;

    // What `rank` saved. It is read on first use and kept. The pointer is valid as long as the
    // reader.
    virtual Result<const PartManifest*> manifest(uint32_t rank) = 0;

    // For ranks that open one epoch together, so that not each must read everything. manifest_bytes
    // returns the encoded manifest of `rank`, from the nearest tier that has it right.
    // keep_manifest takes one that another rank has read, and checks it as if it came from a file:
    // if it is not this rank's manifest of this epoch, it returns corrupt and keeps nothing. A
    // manifest that is kept already stays.
    virtual Result<std::vector<std::byte>> manifest_bytes(uint32_t rank) = 0;
    virtual Status keep_manifest(uint32_t rank, std::span<const std::byte> bytes) = 0;

    virtual Result<uint64_t> region_bytes(uint32_t rank, std::string_view name) = 0;

    // Fills the targets from the rank's regions of those names. Reads in file order, in large
    // pieces, straight into the targets' memory, and verifies checksums. not_found names the
    // nearest region that exists. invalid_argument if a size differs; nothing is read then. After
    // any other failure the content of the memory is undefined.
    virtual Status read_regions(uint32_t rank, std::span<const RegionTarget> targets) = 0;

    // Reads a region from its beginning to its end, in pieces of at most `memory_bytes` (check_block_bytes or
    // more), verifies their checksums, and gives each to `take` with its offset. Ends with its failure.
    using TakePiece = std::function<Status(uint64_t offset, std::span<const std::byte> piece)>;
    virtual Status read_in_pieces(uint32_t rank, std::string_view name, uint64_t memory_bytes,
                                  const TakePiece& take) = 0;

    // All global arrays of the epoch. Reads every rank's manifest.
    virtual Result<std::vector<GlobalArray>> arrays() = 0;

    // One of them. not_found names the nearest.
    virtual Result<GlobalArray> array(std::string_view name) = 0;

    // Fills the boxes, each from all pieces that overlap it. Goes rank by rank in file order, and
    // reads in one call what lies near each other, whichever box it is for. Where pieces overlap,
    // the lowest rank's counts. corrupt if no rank saved some element of a box. If a box does not
    // lie in its array, or its memory has another size, nothing is read.
    virtual Status read_boxes(std::span<const BoxTarget> boxes) = 0;

    // As read_boxes, for one box.
    Status read_box(std::string_view name, std::span<const uint64_t> offset, std::span<const uint64_t> shape,
                    std::span<std::byte> memory) {
        const BoxTarget box{
            std::string(name), {offset.begin(), offset.end()}, {shape.begin(), shape.end()}, memory};
        return read_boxes({&box, 1});
    }

    // Reads and checks everything that `rank` saved, in pieces of at most `memory_bytes` (1 MiB or
    // more). Calls `progress` with the bytes done since its last call.
    static constexpr uint64_t verify_memory_bytes = 32 << 20;
    virtual Status verify(uint32_t rank, const std::function<void(uint64_t)>& progress,
                          uint64_t memory_bytes = verify_memory_bytes) = 0;

    // Reads and checks these regions of a rank, in the given order, and ends with the first failure.
    // It reads through the page cache, where whoever maps the files finds the bytes. Memory:
    // mapped_memory_bytes.
    static constexpr uint64_t mapped_memory_bytes = 16 << 20;
    virtual Status verify_regions(uint32_t rank, std::span<const std::string> names) = 0;

    // Where the rank's regions lie in the nearest tier, in the order of its manifest, for programs
    // that map the files. Empty for a region without bytes, and for one whose bytes are not together.
    // The files may have been replaced under their names since the epoch was opened.
    virtual Result<std::vector<std::optional<RegionPlace>>> places(uint32_t rank) = 0;

  private:
    std::string passed_over_;
};

}  // namespace tailrace::internal
