// Pruning: which epochs of a directory go when somebody prunes it from outside, without a session.
//
//   1. Heads and tables of regions tell which epochs are whole and can be restored.
//   2. choose_removals says what the rule removes.
//   3. The newest epoch that would stay is read as a whole. If its data is damaged, it does not
//      count, and step 2 is repeated.
// So an epoch goes only in favour of one of which every byte was read. If the rule removes nothing,
// nothing is read.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"
#include "read/judged_epoch.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct PruneRule {
    RetentionRule retention;  // removes nothing if it has neither a number nor an age
    bool leftovers = false;   // also every epoch that lacks files
    // No session holds the directory, so no epoch that lacks files is still being written.
    bool nobody_writes = false;
};

struct PruneSteps {
    // Reads every byte of an epoch. Returns ok, or what is wrong.
    std::function<Status(const JudgedEpoch& epoch)> read_every_byte;
    // Hears why an epoch does not count.
    std::function<void(const std::string& sentence)> tell;
};

struct Pruned {
    size_t epoch = 0;  // index into `epochs`
    std::string_view why;
};

// Epochs without shared files stay. The result ascends.
std::vector<Pruned> choose_pruned(Storage& storage, const std::vector<const JudgedEpoch*>& epochs,
                                  const PruneRule& rule, const PruneSteps& steps);

}  // namespace tailrace::internal
