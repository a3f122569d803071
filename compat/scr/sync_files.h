// sync_files.h - files and directories on the disk. Calls throw tailrace::Error.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "prefix.h"

namespace scr_on_tailrace {

// For a failed operation of the system, by errno.
[[noreturn]] void failed(const std::string& what);

// Returns the file's size.
uint64_t sync_file(const std::string& path);
// The directories that name these files, as far as the prefix. The files' names are on the disk then.
void sync_directories_of(const Prefix& prefix, const std::set<std::string>& keys);

// The directory of a file below the prefix; empty for the prefix itself.
std::string parent_of(const std::string& key);

}  // namespace scr_on_tailrace
