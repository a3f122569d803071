// Recorder: writes what the background did where people can read it afterwards. At rank 0's node it keeps the
// job's record (record/records.h); at every node, if asked to, a trace.
//
// News come from the agent and cost a lock and a copy; a thread of its own writes. That a record cannot be
// written is said once in the log and changes nothing else.
//
// Members may be called from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "agent/agent_messages.h"
#include "agent/job_context.h"
#include "config/config.h"
#include "flush/flush_job.h"
#include "record/record_book.h"
#include "record/record_file.h"
#include "storage/storage.h"
#include "threads/executor.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"

namespace tailrace::internal {

class Recorder {
  public:
    // `keeps_record`: at rank 0's node. The storage holds record_dir and trace_dir and outlives the recorder.
    Recorder(const Config& config, SessionRecord session, int node, bool keeps_record, Storage& storage);
    // What this node has to record by the configuration; null where that is nothing.
    static std::unique_ptr<Recorder> create(const JobContext& context);
    ~Recorder();
    void begin(Priority priority);

    // NodeCaptured, NodeFlushed and EpochEnded; others are passed over.
    void hear(const AgentMessage& message);
    void trace(const FlushResult& result);

    // An epoch has ended of which a node's numbers are still missing.
    bool waiting() const;
    // Writes what there is, and the session's end. Nothing is recorded after it.
    void finish();

  private:
    void hear(const NodeCaptured& news) REQUIRES(mutex_);
    void hear(const NodeFlushed& news) REQUIRES(mutex_);
    void hear(const EpochEnded& news) REQUIRES(mutex_);
    void write(const std::vector<EpochRecord>& records) REQUIRES(mutex_);
    void append(std::string text);
    void append_trace(std::string_view text);
    void give_up(const std::string& what, const Status& why);

    const SessionRecord session_;
    const int node_;
    const bool keeps_record_;
    Storage& storage_;
    const std::chrono::steady_clock::time_point began_ = SteadyClock::now();
    const int64_t steady_to_unix_us_;

    mutable Mutex mutex_;
    RecordBook book_ GUARDED_BY(mutex_);
    SessionEnd end_ GUARDED_BY(mutex_);
    bool finished_ GUARDED_BY(mutex_) = false;

    // Of the writing thread.
    RecordFile record_;
    std::string trace_path_;  // empty: no trace
    uint64_t trace_bytes_ = 0;
    bool record_failed_ = false, trace_failed_ = false;
    WorkQueue writing_;  // last: its thread uses the members above
};

}  // namespace tailrace::internal
