// What nodes keep for each other of a captured epoch (setting redundancy), as far as protect objects in
// some directories of node-local tiers tell.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "format/epoch_key.h"
#include "format/redundancy.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

struct KeptSet {
    Redundancy redundancy;
    std::vector<uint32_t> nodes;    // of the set, by position
    std::vector<uint32_t> keepers;  // those of them whose objects lie here, ascending
};

// By job, epoch and run, and by the run's random number.
using KeptKey = std::pair<std::pair<std::string, EpochKey>, uint64_t>;
using KeptSets = std::map<KeptKey, std::vector<KeptSet>>;

// Adds the objects of a directory, of `job` or, if that is empty, of every job. What cannot be read is
// passed over. Only heads are read.
void find_kept_sets(Storage& storage, const std::string& directory, const std::string& job, KeptSets& found);

// "protected by partner in the set of nodes 0 to 3, which survives the loss of 1 node; here lies what node 1
// keeps"
std::string kept_text(const std::vector<KeptSet>& sets);
nlohmann::ordered_json kept_json(const std::vector<KeptSet>& sets);

}  // namespace tailrace::internal::tool
