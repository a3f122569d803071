// RegionCopy copies a rank's regions into a captured part, in pieces that threads share. Each byte
// is read once, for the copy and its checksum together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/strides.h"
#include "base/status.h"
#include "capture/copy_team.h"
#include "format/manifest.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// The bytes of a region that lie in a file. `open` may be called by several threads at once, and opens
// the file at its first byte; it fails if the file has changed since it was found. It is called once more
// after the copy.
struct FileBytes {
    uint64_t bytes = 0;
    std::function<Result<std::unique_ptr<File>>()> open;
};

// A region of the program's memory, as it is registered now. `memory` begins at the region's first
// byte, and its size is the number of the region's bytes. With strides, these bytes do not lie one
// after another, but as the strides say. With `file` they lie there, and not in memory.
struct RegionSource {
    std::string name;
    std::span<const std::byte> memory;
    std::optional<ArrayPiece> array;
    Strides strides = {};
    std::optional<FileBytes> file = std::nullopt;
    uint64_t bytes() const { return file ? file->bytes : memory.size(); }
};

// Where a part's header and stream go: into the mapping, or into the file if it cannot be mapped.
struct PartSink {
    std::span<std::byte> mapping;
    File* file = nullptr;
};

class RegionCopy {
  public:
    // `manifest` is laid out and describes `regions`. It gets their checksums if it has any. All
    // arguments must outlive the copy.
    RegionCopy(PartManifest& manifest, std::span<const RegionSource> regions, const PartSink& sink);

    // How many threads, up to `most`, are worth waking.
    uint32_t useful_threads(uint32_t most) const;
    // Copies everything, with the team's threads if there is a team. Returns the first failure.
    Status run(CopyTeam* team);

  private:
    // A stretch of the stream that one thread copies: a piece of one large region, or several whole
    // small regions.
    struct Piece {
        size_t first_region = 0, last_region = 0;  // [first, last)
        uint64_t region_offset = 0;                // where the piece starts in a large region
        // The length of a large region's piece; 0: whole small regions.
        uint64_t bytes = 0;
    };
    std::vector<Piece> pieces() const;
    Status failure();
    Status copy(const Piece& piece);
    Status copy_region(size_t index, uint64_t from, uint64_t bytes, std::byte* target);
    Status read_file(size_t index, uint64_t from, uint64_t bytes, std::byte* target);
    Status copy_small(const Piece& piece, std::byte* target);
    Status write_large(const Piece& piece);
    Status write_small(const Piece& piece);
    void zero_gaps();

    PartManifest& manifest_;
    const std::span<const RegionSource> regions_;
    const PartSink sink_;
    Mutex mutex_;
    Status failure_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
