// NodeFlusher: an Aggregator driven by a thread of its own, for a node whose background exchanges
// no messages. The owner hands in jobs whose offers are known, and takes their results. The node's
// captured parts are verified beside each flush, and the leaders write their slots after that.
//
// Any thread may call the members, except begin().
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "agent/job_context.h"
#include "agent/recorder.h"
#include "aggregate/aggregator.h"
#include "threads/mutex.h"
#include "threads/throttle.h"
#include "threads/work_queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

class NodeFlusher {
  public:
    // The context and the recorder (which may be null) must outlive the flusher.
    static Result<std::unique_ptr<NodeFlusher>> create(const JobContext& context, Recorder* recorder);
    // Ends the thread. A flush that has not ended is given up.
    ~NodeFlusher();
    void begin();

    void start(FlushJob job);
    std::vector<FlushResult> take_results();
    // Sleeps until there is a result to take or the deadline has passed. Returns whether there is a
    // result.
    bool wait_result(std::optional<std::chrono::steady_clock::time_point> deadline);

    uint64_t buffer_bytes_used() const;
    // Data that has been written for jobs without a result. Up to date when the flusher last moved.
    uint64_t bytes_under_way() const;

  private:
    NodeFlusher(const JobContext& context, Recorder* recorder)
        : context_(context), recorder_(recorder), writing_originals_(context.config.bandwidth_cap) {}
    void run(const std::stop_token& stop);
    Result<bool> step();  // returns whether something moved
    // Something was thrown. Fails all present and later jobs, without the aggregator.
    void break_down(const Status& why) noexcept;
    bool fail_jobs(const Status& why);  // returns whether there were any
    void prepare(const FlushJob& job);
    void wake();

    const JobContext& context_;
    Recorder* const recorder_;
    std::unique_ptr<Aggregator> aggregator_;

    mutable Mutex mutex_;
    Condition changed_;
    std::deque<FlushJob> jobs_ GUARDED_BY(mutex_);
    std::deque<std::pair<EpochKey, Status>> prepared_ GUARDED_BY(mutex_);
    std::vector<FlushResult> results_ GUARDED_BY(mutex_);
    std::set<EpochKey> open_ GUARDED_BY(mutex_);  // handed in, without a result
    Status broken_ GUARDED_BY(mutex_);            // what was thrown in the flusher's thread
    Status thrown_ GUARDED_BY(mutex_);            // what was thrown in the reading thread
    bool woken_ GUARDED_BY(mutex_) = false;
    uint64_t bytes_under_way_ GUARDED_BY(mutex_) = 0;

    Throttle writing_originals_;
    WorkQueue reading_;  // reads captured parts
    Worker worker_;
};

}  // namespace tailrace::internal
