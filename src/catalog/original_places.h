// OriginalPlaces: where the files of an epoch lie as the program wrote them (format/original_files.h).
#pragma once

#include <string>

#include "base/status.h"
#include "format/original_files.h"
#include "storage/storage.h"

namespace tailrace::internal {

// The mark in a directory. not_found if there is none, corrupt if it is damaged.
Result<FileList> read_file_list(Storage& storage, const std::string& directory);

struct OriginalPlace {
    std::string directory;
    std::string otherwise;  // where a session that runs may put it meanwhile; may be empty
};
// Of an epoch that is committed. The directory need not be there: then its files are lost.
OriginalPlace place_of_originals(Storage& storage, const std::string& shared_dir, const std::string& job,
                                 EpochKey key);
// corrupt if neither directory is there.
Status are_originals_there(Storage& storage, const std::string& shared_dir, const std::string& job,
                           EpochKey key);

}  // namespace tailrace::internal
