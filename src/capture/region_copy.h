// RegionCopy: a rank's regions on their way into a captured part, in pieces that threads share; each byte is
// read once, for the copy and its checksum together.
#pragma once

#include <cstddef>
#include <cstdint>
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

// A region of the program's memory, as it is registered now. `memory` begins with its first byte and is as
// long as the region; where strides are given the bytes lie by these.
struct RegionSource {
    std::string name;
    std::span<const std::byte> memory;
    std::optional<ArrayPiece> array;
    Strides strides = {};
};

// Where a part's header and stream go: the mapped file, or where it cannot be mapped, the file.
struct PartSink {
    std::span<std::byte> mapping;
    File* file = nullptr;
};

class RegionCopy {
  public:
    // `manifest` is laid out, and its regions are `regions`; it gets their checksums if it has any. All must
    // outlive the copy.
    RegionCopy(PartManifest& manifest, std::span<const RegionSource> regions, const PartSink& sink);

    // How many threads are worth their waking.
    uint32_t useful_threads(uint32_t most) const;
    // Copies everything, with the team's threads if there is a team. The first failure.
    Status run(CopyTeam* team);

  private:
    // A run of the stream that one thread copies: a part of one large region, or several small regions whole.
    struct Piece {
        size_t first_region = 0, last_region = 0;  // [first, last)
        uint64_t region_offset = 0;                // within the region, when it is a single one
        uint64_t bytes = 0;                        // of it; 0: several regions, whole
    };
    std::vector<Piece> pieces() const;
    Status failure();
    Status copy(const Piece& piece);
    void copy_region(size_t index, uint64_t from, uint64_t bytes, std::byte* target);
    void copy_small(const Piece& piece, std::byte* target);
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
