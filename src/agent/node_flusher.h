// NodeFlusher: an Aggregator driven by a thread of its own, for a node whose background exchanges no
// messages. Its owner hands in jobs whose offers are known, and takes their results. The node's captured
// parts are verified beside each flush; the leaders' slots wait for that.
//
// Members may be called from any thread.
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
#include "threads/work_queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

class NodeFlusher {
  public:
    // The context and the recorder (which may be null) outlive the flusher.
    static Result<std::unique_ptr<NodeFlusher>> create(const JobContext& context, Recorder* recorder);
    // Ends the thread. What has not ended is given up.
    ~NodeFlusher();
    void begin();

    void start(FlushJob job);
    std::vector<FlushResult> take_results();
    // Sleeps until there is a result to take or the deadline has passed; says whether there is.
    bool wait_result(std::optional<std::chrono::steady_clock::time_point> deadline);

    uint64_t buffer_bytes_used() const;

  private:
    NodeFlusher(const JobContext& context, Recorder* recorder) : context_(context), recorder_(recorder) {}
    void run(const std::stop_token& stop);
    bool step();  // whether something moved
    // Something was thrown: what is under way and what comes fails, without the aggregator.
    void break_down(const Status& why) noexcept;
    void fail_jobs(const Status& why);
    void verify(const FlushJob& job);
    void wake();

    const JobContext& context_;
    Recorder* const recorder_;
    std::unique_ptr<Aggregator> aggregator_;

    mutable Mutex mutex_;  // guards what follows
    Condition changed_;
    std::deque<FlushJob> jobs_ GUARDED_BY(mutex_);
    std::deque<std::pair<EpochKey, Status>> verified_ GUARDED_BY(mutex_);
    std::vector<FlushResult> results_ GUARDED_BY(mutex_);
    std::set<EpochKey> open_ GUARDED_BY(mutex_);  // handed in, without a result
    Status broken_ GUARDED_BY(mutex_);            // by what was thrown in this thread
    Status thrown_ GUARDED_BY(mutex_);            // in the reading one
    bool woken_ GUARDED_BY(mutex_) = false;

    WorkQueue reading_;  // of captured parts
    Worker worker_;
};

}  // namespace tailrace::internal
