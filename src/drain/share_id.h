// ShareId: a node's share of an epoch, by which a process remembers what it has tried.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "format/epoch_key.h"

namespace tailrace::internal {

struct ShareId {
    std::string shared_dir, job;
    EpochKey key;
    uint32_t node = 0;
    bool kept = false;  // not the node's own share, but the one of which it keeps a copy
    bool operator<(const ShareId& other) const {
        return std::tie(shared_dir, job, key, node, kept) <
               std::tie(other.shared_dir, other.job, other.key, other.node, other.kept);
    }
};

}  // namespace tailrace::internal
