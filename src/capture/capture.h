// Capture copies a rank's regions into a file of the node-local tier, and computes their checksums
// in the same pass.
//
// Invariants:
//   - Nothing under a final part name is ever incomplete. The stream is written first and the
//     header last, under the name with ".unfinished". The rename comes after both.
//   - A recycled part gets the unfinished name, and loses its header, before its bytes change.
//   - After a failure the part is gone, and no other part was touched except a recycled one.
//
// On file systems in memory the part is mapped, and regions are copied into the mapping. Fresh
// pages cost more than the copy there, so the file and mapping of a part that is no longer needed
// can be recycled. On other file systems the part is written.
//
// Not thread-safe: one capture at a time. Capture brings its own threads for large regions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "capture/copy_team.h"
#include "capture/region_copy.h"
#include "format/manifest.h"
#include "format/part_file.h"
#include "storage/storage.h"

namespace tailrace::internal {

// A captured part that this rank has written.
struct OwnPart {
    EpochKey key;
    std::string path;
    StreamInfo stream;
    uint64_t apart_bytes = 0;  // see PartHeader
    std::vector<std::string> names_apart;
    std::unique_ptr<File> file;    // kept open when mapped
    std::span<std::byte> mapping;  // of the file, at least header and stream; empty when not mapped
};

class Capture {
  public:
    struct Options {
        std::string directory;  // exists; if it is removed, the next capture makes it again
        uint32_t threads = 1;
        bool checksum = true;
        bool sync = false;  // also sync file and directory, for tiers that survive a power cut
    };
    // `storage` must outlive the capture and every OwnPart it made.
    Capture(Storage& storage, Options options);
    ~Capture();

    // Whether these regions can be captured at all. Touches no file.
    Status check(const PartHeader& header, std::span<const RegionSource> regions) const;

    // `header` is complete, except that of `stream` only the rank is set. `recycled` is a part
    // whose space may be used; it is gone afterwards in any case, also after a failure.
    Result<OwnPart> capture(PartHeader header, std::span<const RegionSource> regions,
                            std::optional<OwnPart> recycled);

  private:
    PartManifest manifest_of(const PartHeader& header, std::span<const RegionSource> regions) const;
    Result<std::unique_ptr<File>> open_unfinished(const std::string& path);
    bool take_over(const OwnPart& recycled, uint64_t file_bytes, const std::string& unfinished_path);
    Result<OwnPart> write_part(const PartHeader& header, PartManifest& manifest,
                               std::span<const RegionSource> regions, std::optional<OwnPart> recycled,
                               const std::string& unfinished_path);
    Status open_file(OwnPart& part, std::optional<OwnPart> recycled, uint64_t file_bytes,
                     const std::string& unfinished_path);
    Status map_file(OwnPart& part, uint64_t file_bytes) const;
    Status write_tables(const PartHeader& header, const PartManifest& manifest, OwnPart& part) const;
    Status with_space(Status failure, uint64_t needed) const;

    Storage& storage_;
    const Options options_;
    std::unique_ptr<CopyTeam> team_;  // made when the first large capture comes
};

}  // namespace tailrace::internal
