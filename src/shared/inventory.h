// Inventory: what lies in the shared directory when a session begins, with the rest of earlier runs cleared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "storage/storage.h"

namespace tailrace::internal {

// What rank 0 found and did in the shared tier before a session begins.
struct SharedInventory {
    uint32_t greatest_run = 0;
    std::optional<EpochKey> newest_committed;  // what a restore of the newest epoch would try first
    std::vector<EpochKey> committed;           // all; older ones than the newest by their names alone
    std::vector<EpochKey> unclean;             // incomplete, and files of it could not be removed
};

// Lists the shared directory, finds the newest complete epoch, removes the files of unfinished ones, gives
// complete files their final name, and removes attempts that a later run's has replaced. Nothing that could
// be a complete epoch whose file was moved away or cannot be read is touched; that is logged.
// No other session may use the directory.
Result<SharedInventory> clean_shared(Storage& storage, const std::string& directory, const std::string& job);

}  // namespace tailrace::internal
