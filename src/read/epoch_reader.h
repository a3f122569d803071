// EpochReader: reads a complete epoch's regions and arrays, from the nearest tier that has them, checking
// every checksum. Needs no running job: the command-line tool uses it as a restart does.
//
// A stream may be available in several places (a captured part in this node's local tier, extents in the K
// shared files). They are tried in the order given; a mismatch or an error in one is logged with file,
// offset and region, and the next one serves. Only when none can does a read fail.
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
#include "format/catalog.h"
#include "format/manifest.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Where an epoch can be read from. At least one of the two must cover every rank that is asked for.
struct EpochSources {
    EpochKey key;
    uint32_t rank_count = 0;
    std::vector<CapturedPart> local_parts;  // those this node can open; any subset of the ranks
    std::optional<SharedEpoch> shared;
    // Without `shared`: where the shared files are, asked when captured parts are not sound. Called from
    // whichever thread reads, not from two at once; it must work as long as the reader.
    std::function<Result<SharedEpoch>()> find_shared = nullptr;
};

// A region's memory for read_regions.
struct RegionTarget {
    std::string name;
    std::span<std::byte> memory;  // exactly the region's bytes
    Strides strides = {};  // where given: `memory` begins with the first of them, and they lie by these
};

// A box [offset, offset + shape) of a global array, and memory for it: row-major, exactly the box's bytes.
struct BoxTarget {
    std::string name;
    std::vector<uint64_t> offset;
    std::vector<uint64_t> shape;
    std::span<std::byte> memory;
    Strides strides = {};  // as of a RegionTarget
};

// A global array as the union of what the ranks saved.
struct GlobalArray {
    std::string name;
    ElementType type = ElementType::bytes;
    std::vector<uint64_t> shape;
    // As declared by the first rank that saved it; another declaration of a later one is a fault.
    bool may_have_gaps = false, may_overlap = false;
    bool complete = false;            // the pieces cover the whole shape
    std::optional<ArrayFault> fault;  // why it would be refused when it is saved, or cannot be restored
};

class EpochReader {
  public:
    // The storages must outlive the reader. `direct`: how shared files are read; captured parts, which are
    // likely to be cached still, go through the cache.
    static Result<std::unique_ptr<EpochReader>> open(Storage& local, Storage& shared, EpochSources sources,
                                                     DirectIo direct = DirectIo::automatic);
    virtual ~EpochReader() = default;

    // Opens the epoch's files, up to the number that is kept open (64): those stay readable when the epoch is
    // replaced and its files are removed. Otherwise each is opened when it is first read from. not_found when
    // one is gone already.
    virtual Status open_files() = 0;

    // Which epochs would have come before this one and are damaged, each with the reason: "epoch 9 of run 2:
    // ...". Empty: none. For who opens the reader to set before anybody else has it.
    const std::string& passed_over() const { return passed_over_; }
    void set_passed_over(std::string epochs) { passed_over_ = std::move(epochs); }

    virtual EpochKey key() const = 0;
    virtual uint32_t rank_count() const = 0;

    // What `rank` saved. Read on first use and kept. The pointer lives as long as the reader.
    virtual Result<const PartManifest*> manifest(uint32_t rank) = 0;

    // For ranks that open one epoch together, so that not each must read everything: the encoded manifest of
    // `rank` from the nearest tier that has it right, and the way in for one that another rank has read.
    // keep_manifest checks it as if it came from a file: what is not this rank's manifest of this epoch is
    // corrupt, and nothing is kept. When one is there already, that one stays.
    virtual Result<std::vector<std::byte>> manifest_bytes(uint32_t rank) = 0;
    virtual Status keep_manifest(uint32_t rank, std::span<const std::byte> bytes) = 0;

    virtual Result<uint64_t> region_bytes(uint32_t rank, std::string_view name) = 0;

    // Fills the targets from rank's regions of those names: in file order, large pieces, straight into the
    // targets' memory, checksums verified. not_found names the nearest region there is; invalid_argument
    // when a size differs (nothing was read then). After any other failure the memory is undefined.
    virtual Status read_regions(uint32_t rank, std::span<const RegionTarget> targets) = 0;

    // All global arrays of the epoch. Reads every rank's manifest.
    virtual Result<std::vector<GlobalArray>> arrays() = 0;

    // Fills the boxes, each assembled from all pieces that overlap it: rank by rank in file order, what lies
    // near each other in one large read, whichever box it is for. corrupt when some element of a box was
    // saved by nobody; where pieces overlap, the lowest rank's counts. Nothing is read when a box does not
    // lie in its array or its memory has another size.
    virtual Status read_boxes(std::span<const BoxTarget> boxes) = 0;

    // As read_boxes, of one box.
    Status read_box(std::string_view name, std::span<const uint64_t> offset, std::span<const uint64_t> shape,
                    std::span<std::byte> memory) {
        const BoxTarget box{
            std::string(name), {offset.begin(), offset.end()}, {shape.begin(), shape.end()}, memory};
        return read_boxes({&box, 1});
    }

    // Reads and checks everything `rank` saved, in pieces of at most `memory_bytes` (1 MiB or more).
    // `progress` is called with bytes done since the last call.
    static constexpr uint64_t verify_memory_bytes = 32 << 20;
    virtual Status verify(uint32_t rank, const std::function<void(uint64_t)>& progress,
                          uint64_t memory_bytes = verify_memory_bytes) = 0;

  private:
    std::string passed_over_;
};

}  // namespace tailrace::internal
