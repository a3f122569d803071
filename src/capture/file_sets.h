// Directories, within a node's directory of the node-local tier, in which a rank keeps files that the
// program writes or reads by itself (files/own_files.h). The program reaches them by path, so they lie in
// the system's files, whatever the storage of the session is.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "storage/storage.h"

namespace tailrace::internal {

// `number` counts those of the rank in a run.
std::string file_set_name(uint32_t run, int rank, uint64_t number);
// Whether this entry of a node's directory is one. If no session uses the directory, it is a leftover.
bool is_file_set(const DirectoryEntry& entry);

// Removes all of them from a node's directory, and logs what it cannot remove. The caller holds the
// directory's lock, so no session uses them: a program that died has left them.
void remove_file_sets(Storage& local, const std::string& directory);

// Removes a directory with everything in it, and follows no link. ok if there is none.
Status remove_directory_tree(const std::string& path);

}  // namespace tailrace::internal
