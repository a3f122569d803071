// What all ranks find out and agree on when a collective file is opened: how the ranks lie on
// nodes, which nodes share memory, what the file system is like, and that all ranks open with the
// same options.
#pragma once

#include <string>
#include <vector>

#include "collective/collective_file.h"

namespace tailrace::internal::collective {

struct OpenAgreement {
    Topology topology;
    std::vector<bool> node_shares_memory;  // by node: every rank can attach to the others' memory
    uint64_t block_bytes = 4096;           // of the file system, as the first rank sees it
    std::string file_system;
};

// Collective. `mine`: a mistake that this rank knows of already. `space`: asked only on the first
// rank.
Result<OpenAgreement> agree_on_open(Transport& transport, const Options& options, const Status& mine,
                                    const SpaceInfo& space, const std::string& path);

}  // namespace tailrace::internal::collective
