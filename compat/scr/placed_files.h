// placed_files.h - the files of an output of the cached way, which the session has written as they were
// (files_as = original), under their own names below the prefix.
//
// A name is a hard link. Where the file system has no links, the file is copied. What lies under the name is
// replaced. Calls throw tailrace::Error.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "dataset_files.h"

namespace scr_on_tailrace {

// `place.as_written` is the directory of the output's epoch, of which `run` is the run that saved it. Refuses
// a directory that is not that epoch's, or not complete.
void place_files(const Place& place, uint64_t id, uint32_t run, const std::set<std::string>& keys);

// Those of `keys` whose name below the prefix still leads to the file in `place.as_written`.
std::set<std::string> placed_of(const Place& place, const std::set<std::string>& keys);

}  // namespace scr_on_tailrace
