// Forgetting: what this machine's node-local tier holds for one shared directory, and its removal. A shared
// directory may be gone for good. Drains wait for it then, and only sessions on it clean up.
//
// A node's directory is for one shared directory. It is found by what its files say, and by the hash in
// its name where none can be read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct HeldFile {
    std::string path;
    uint64_t bytes = 0;
};
struct HeldEpoch {
    std::string job;
    EpochKey key;
    uint32_t ranks_here = 0, rank_count = 0;  // captured parts that can be used; no count if there is none
    // Captured parts, protect objects and plan records, in the order in which they may be removed: who is
    // interrupted leaves nothing that a drain would begin with.
    std::vector<HeldFile> files;
    uint64_t bytes() const;
};
struct HeldForDirectory {
    std::vector<std::string> directories;  // the nodes' directories that hold something
    std::vector<HeldEpoch> epochs;         // by job and key
    std::vector<std::string> file_sets;    // directories that programs left (capture/file_sets.h)
    std::vector<std::string> skipped;      // sentences about directories that are left alone
};

// `job`: only this job's; empty: all. Fails only if local_dir is there and cannot be listed.
Result<HeldForDirectory> find_held(Storage& local, const std::string& local_dir,
                                   const std::string& shared_dir, const std::string& job);

// While they are held, no session, agent or drain uses what was found. busy if one does.
Result<std::vector<std::unique_ptr<DirectoryLock>>> lock_held(Storage& local, const HeldForDirectory& held);

// Removes everything that was found, but not the nodes' directories. Who calls has the locks.
Status remove_held(Storage& local, const HeldForDirectory& held);

}  // namespace tailrace::internal
