// What `tailrace extract --files` does: an epoch's files of the program, under their names in a new
// directory.
//
// If every name belongs to one rank, and all can lie together, they lie under their names. Otherwise each
// rank's files lie in a directory of the rank's own: rank00003/NAME.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "read/epoch_reader.h"

namespace tailrace::internal::tool {

struct ExtractedFile {
    uint32_t rank = 0;
    std::string name;
    std::string path;  // below the directory
    uint64_t bytes = 0;
};

// Writes the files of all ranks, or of one, to `directory`, which must not exist. It appears complete and
// checked, or not at all. `by_rank`: each rank's files lie in a directory of their own in any case.
// not_found if there are no files.
Result<std::vector<ExtractedFile>> extract_files(EpochReader& reader, const std::string& directory,
                                                 std::optional<uint32_t> rank, bool by_rank);

}  // namespace tailrace::internal::tool
