// SavedFiles: the files of the program that an epoch holds (format/file_table.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {

// A file of an epoch.
struct EpochFile {
    std::string name;
    uint32_t rights = 0;
    uint64_t bytes = 0;
};

// The files that a rank saved; none if it saved none, or the epoch was saved without files. corrupt if
// the table names a file that is not there.
Result<std::vector<EpochFile>> files_of(EpochReader& reader, uint32_t rank);

// Whether the rank wants its files written as they were as well (format/original_files.h).
bool wants_originals(const PartManifest& manifest);

// The checksum of all of a region's bytes, from those of its blocks. Empty if there are none.
std::optional<uint32_t> whole_checksum(const PartManifest& manifest, const Region& region);

}  // namespace tailrace::internal
