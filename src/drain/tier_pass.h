// TierPass: one pass over all nodes' directories of a node-local tier, as `tailrace drain` and an agent make
// it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "drain/node_drain.h"
#include "format/plan_record.h"
#include "storage/storage.h"

namespace tailrace::internal {

// A plan record of whose epoch a pass says nothing.
struct UntoldRecord {
    std::string path;
    PlanFileName name;
    std::string shared_dir;  // empty: not known
    Status why;              // busy: others hold its directories; else it, or its directory, cannot be used
};

struct DirectoryPass {
    std::string directory;
    DrainPass pass;  // empty if it failed
    Status failed;   // why the directory could not be looked through
    std::vector<UntoldRecord> untold;
};

// NodeDrain::pass or NodeDrain::look.
using PassOverDirectory = std::function<Result<DrainPass>(const std::string& directory)>;

// Calls `pass` for each node's directory that has a plan record and is of `job` (empty: of any), and
// `hear` right after it. Returns sentences about directories that cannot be listed or are not trusted. Fails
// only if local_dir is there and cannot be listed.
Result<std::vector<std::string>> pass_over_tier(Storage& local, const std::string& local_dir,
                                                const std::string& job, const PassOverDirectory& pass,
                                                const std::function<void(const DirectoryPass&)>& hear);

// The job of a node's directory, from its name or path: <job>-<hash>.node<number>. Empty if it is none.
std::string job_of_directory(const std::string& directory);

}  // namespace tailrace::internal
