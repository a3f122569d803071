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
    bool local = false;  // the program has kept the epoch in the node-local tier
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
enum class EpochNeed {
    flush,
    committed,
    // A later run has gone on from an earlier epoch, or retention would remove the epoch at once. Or the
    // program has kept it in the node-local tier, and a newer one is committed.
    superseded,
    // The program has kept it in the node-local tier, and a newer one is to be finished.
    stays,
};
// Of an epoch that was meant for the shared directory. `whole`: the complete epochs.
EpochNeed epoch_need(EpochKey key, uint32_t keep_shared, const std::vector<EpochKey>& whole);

// The rule for what a program that has died leaves on a node, in one place. Every epoch that was meant for
// the shared directory is finished. Of those that the program has kept in the node-local tier, the newest
// one is finished, because the node may go away with the job.
//
// Nodes do not talk to each other, and the program may have died when some of them had the record of the
// newest epoch and others not yet. They see which epochs others have begun (`begun`: takeovers of them, or
// unfinished files, lie in the shared directory). So a node finishes
//   - its own newest epoch,
//   - what another one has begun,
//   - where another one has begun an epoch that this node cannot finish, its own newest one before that.
// So the newest epoch that all nodes can finish is finished: the least epoch after it that somebody has
// begun is one that some node cannot finish, and that node begins this one.
//
// `usable`: the keys of this node's records of the job, but for those of epochs whose captured parts are
// damaged.
EpochNeed need_of(const RecordedEpoch& recorded, const std::vector<EpochKey>& usable,
                  const std::vector<EpochKey>& begun, const std::vector<EpochKey>& whole);

}  // namespace tailrace::internal
