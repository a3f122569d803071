// Functions that every node's background needs for its flushes, whether its ranks communicate by messages
// or by collective calls.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "agent/job_context.h"
#include "agent/recorder.h"
#include "aggregate/aggregator.h"
#include "read/array_judge.h"
#include "threads/throttle.h"
#include "threads/worker.h"

namespace tailrace::internal {

// Makes the aggregator that the configuration asks for. The context must outlive it. `wake` is that
// of Aggregator::create.
Result<std::unique_ptr<Aggregator>> make_aggregator(const JobContext& context, std::function<void()> wake);

// How the job's flushes are planned.
PlanSettings plan_settings(const JobContext& context);

// The priority of a node's background threads, and that of those among them that write much data.
Priority background_priority(const Config& config);
Priority writer_priority(const Config& config);

// Reports in the log and the trace how a flush went. `recorder` may be null.
void report_flush(const JobContext& context, Recorder* recorder, const FlushResult& result);

// Reads the captured parts back and compares their checksums: ok, or what is wrong. Until the flush
// the parts lie in memory or on a disk of the node. A part that has changed there must not be
// committed, and must not push out an older epoch. Without checksums a change cannot be detected,
// so nothing is read.
Status verify_before_commit(const JobContext& context, std::span<const PartPlace> parts);

// What a node does before an epoch may be committed: verify_before_commit, and then step 1 of
// shared/originals.h. corrupt if a captured part is to blame. Closing the throttle ends it.
Status prepare_commit(const JobContext& context, std::span<const PartPlace> parts, Throttle& throttle);
// Step 1 of shared/originals.h alone.
Status write_originals_before_commit(const JobContext& context, std::span<const PartPlace> parts,
                                     Throttle& throttle);

}  // namespace tailrace::internal
