// Writes regions from the program's memory straight into shared files. Every process does this for
// itself in an epoch without a session. (direct_epoch.h has the rest, and the order of things.)
//
// A rank's regions are laid out as in its stream, without the manifest, and cut into runs. Run i
// goes to the rank's i-th file as one piece. Data goes through a few buffers. Each byte is copied
// once, and checksummed in the same pass. These buffers are all the memory that this takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"
#include "storage/storage.h"

namespace tailrace::internal {

// A region without its bytes.
struct RegionShape {
    std::string name;
    uint64_t bytes = 0;
    std::optional<ArrayPiece> array;
};

// Adds regions of these shapes behind the manifest's regions. They are still to be laid out. Pure.
void add_regions(PartManifest& manifest, const std::vector<RegionShape>& shapes);

// Consecutive regions [first, last) that lie in one file.
struct RegionRun {
    uint32_t first = 0, last = 0;
    uint64_t start = 0;  // of the first region, counted from the end of the manifest
    // Up to the next run's start (or the end), rounded up to the alignment.
    uint64_t bytes = 0;
    bool operator==(const RegionRun&) const = default;
};

struct RegionLayout {
    std::vector<uint64_t> offsets;  // each region's, counted from the end of the manifest
    std::vector<RegionRun> runs;    // as equal in size as whole regions allow; some may be empty
    uint64_t bytes = 0;             // where the last region ends
};

// Pure, so that all who know the regions get the same result. invalid_argument as lay_out().
Result<RegionLayout> lay_out_regions(const std::vector<RegionShape>& regions, uint32_t run_count);

struct DirectWriteOptions {
    uint32_t threads = 2;
    uint64_t buffer_bytes = 8 << 20;  // per thread; a multiple of 4 KiB
    DirectIo direct = DirectIo::automatic;
    int nice = 0;  // as in nice(1); lowers the threads' priority
};

// Where a run goes. An empty run needs no place.
struct RunPlace {
    std::string path;  // the file must exist
    uint64_t file_offset = 0;
};

// Runs that lie in their files, but are not durable yet.
struct UnsyncedRuns {
    std::vector<std::vector<uint32_t>> crcs;   // of each region, in the form that its manifest has
    std::vector<std::unique_ptr<File>> files;  // what is to be synced
    Status sync();
};

// Writes the regions' memory. The memory must not change meanwhile. After a failure nothing that
// was written counts.
Result<UnsyncedRuns> copy_runs(Storage& storage, const RegionLayout& layout,
                               std::span<const std::span<const std::byte>> memory,
                               const std::vector<RunPlace>& places, const DirectWriteOptions& options);

// The same, and syncs the files. Returns the checksums.
Result<std::vector<std::vector<uint32_t>>> write_runs(Storage& storage, const RegionLayout& layout,
                                                      std::span<const std::span<const std::byte>> memory,
                                                      const std::vector<RunPlace>& places,
                                                      const DirectWriteOptions& options);

}  // namespace tailrace::internal
