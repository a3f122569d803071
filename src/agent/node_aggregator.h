// What a node's background does with its Aggregator, however its ranks communicate.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "agent/array_judge.h"
#include "agent/job_context.h"
#include "agent/recorder.h"
#include "aggregate/aggregator.h"
#include "threads/worker.h"

namespace tailrace::internal {

// The aggregator that the configuration asks for. The context outlives it. `wake`: Aggregator::create's.
Result<std::unique_ptr<Aggregator>> make_aggregator(const JobContext& context, std::function<void()> wake);

// The priority of a node's background threads; writers have a lower one for their I/O as well.
Priority background_priority(const Config& config);

// Tells the log and the trace how a flush went. `recorder` may be null.
void report_flush(const JobContext& context, Recorder* recorder, const FlushResult& result);

// What is captured lies in memory, or on a disk of the node, until it is flushed. What has changed there must
// not be committed, still less push an older epoch out: ok, or what is wrong. Without checksums nobody can
// tell, and nothing is read.
Status verify_before_commit(const JobContext& context, std::span<const PartPlace> parts);

}  // namespace tailrace::internal
