// RecordedEpochs: the plan records of a node's directory, and what of their epochs is left to do.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"
#include "flush/flush_job.h"
#include "format/plan_record.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct RecordedEpoch {
    std::string path;  // of the record
    PlanRecord record;
};

// The records of one directory, ascending by key. A record that is damaged, or belongs to another
// node or job than its name says, is passed over with a warning. Unfinished ones are passed over.
Result<std::vector<RecordedEpoch>> list_plan_records(Storage& storage, const std::string& directory);
// The paths of the others, which stay as they are.
Result<std::vector<std::string>> list_unusable_records(Storage& storage, const std::string& directory);

// A record in a file of any name.
Result<PlanRecord> read_plan_record(Storage& storage, const std::string& path);

// Whether this is the captured part with that stream, of the epoch that the record is of: corrupt if not.
Status check_captured(const CapturedPart& part, const PlanRecord& record, const StreamInfo& stream);

// The captured parts of this node that the record names, in its directory. Returns corrupt or
// not_found if one is missing or is another run's.
Result<std::vector<LocalStream>> captured_streams(Storage& storage, const std::string& directory,
                                                  const PlanRecord& record);

// What the shared directory says of an epoch by names and heads.
enum class EpochNeed { flush, committed, superseded };
// superseded: a later run has gone on from an earlier epoch, or retention would remove the epoch at
// once. `whole`: the complete epochs.
EpochNeed epoch_need(EpochKey key, uint32_t keep_shared, const std::vector<EpochKey>& whole);

}  // namespace tailrace::internal
