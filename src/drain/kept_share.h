// KeptShare: another node's share of an epoch, as far as this node can write it, because it keeps a copy
// of what that node has captured (setting redundancy).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "flush/flush_job.h"
#include "format/plan_record.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct KeptShare {
    PlanRecord record;  // the other node's
    std::vector<LocalStream> streams;
};

// What lies in a node's directory beside its own plan record `own`. Nothing if there is no copy, or if
// the other node's place in the files is not known: its record follows from `own` if both nodes are of
// one group, and otherwise lies beside the copy. Returns corrupt if copy and records do not agree. The
// data of the copy is not read.
Result<std::optional<KeptShare>> find_kept_share(Storage& storage, const std::string& directory,
                                                 const PlanRecord& own);

}  // namespace tailrace::internal
