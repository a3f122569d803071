// Recorder: records the work of the background, so that people can read about it afterwards. At rank 0's
// node it keeps the job's record (record/records.h). Every node writes a trace if the configuration asks
// for it.
//
// The agent brings news, at the cost of a lock and a copy. A thread of the recorder's own writes. If a
// record cannot be written, the log says so once, and nothing else changes.
//
// Any thread may call the members, except begin().
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "agent/job_context.h"
#include "config/config.h"
#include "flush/flush_job.h"
#include "ledger/agent_messages.h"
#include "record/record_book.h"
#include "record/record_file.h"
#include "storage/storage.h"
#include "threads/executor.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"

namespace tailrace::internal {

class Recorder {
  public:
    // `keeps_record` is true at rank 0's node. The storage holds record_dir and trace_dir, and must
    // outlive the recorder. `redundancy_every`: as in the configuration; 0 where nothing is protected.
    Recorder(const Config& config, SessionRecord session, int node, bool keeps_record, Storage& storage,
             uint32_t redundancy_every = 0);
    // Makes the recorder that the configuration asks for at this node. Null if there is nothing to
    // record.
    static std::unique_ptr<Recorder> create(const JobContext& context);
    ~Recorder();
    void begin(Priority priority);

    // Uses NodeCaptured, NodeProtected, NodeFlushed and EpochEnded. Ignores other messages.
    void hear(const AgentMessage& message);
    void trace(const FlushResult& result);

    // Whether an epoch has ended while a node's numbers for it are still missing.
    bool waiting() const;
    // Writes what there is, and the session's end. Nothing can be recorded afterwards. Throws nothing.
    void finish();

  private:
    void hear(const NodeCaptured& news) REQUIRES(mutex_);
    void hear(const NodeProtected& news) REQUIRES(mutex_);
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
    const uint32_t redundancy_every_;
    const std::chrono::steady_clock::time_point began_ = SteadyClock::now();
    const int64_t steady_to_unix_us_;

    mutable Mutex mutex_;
    RecordBook book_ GUARDED_BY(mutex_);
    SessionEnd end_ GUARDED_BY(mutex_);
    bool finished_ GUARDED_BY(mutex_) = false;

    // Only the writing thread uses these.
    RecordFile record_;
    std::string trace_path_;  // empty: no trace
    uint64_t trace_bytes_ = 0;
    bool record_failed_ = false, trace_failed_ = false;
    WorkQueue writing_;  // last, because its thread uses the members above
};

}  // namespace tailrace::internal
