// NodeShare: one node's share of an epoch whose program has died, by its plan record (format/plan_record.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "agent/job_context.h"
#include "base/status.h"
#include "config/config.h"
#include "flush/flush_job.h"
#include "flush/plan.h"
#include "format/plan_record.h"
#include "storage/storage.h"

namespace tailrace::internal {

// The epochs in the shared directory that are complete. Of those that are not older than the record's, heads
// and indices were read, because captured parts are given up for them.
Result<std::vector<EpochKey>> whole_in(Storage& shared, const PlanRecord& record);

class NodeShare {
  public:
    // Of `config`, what NodeDrain says counts.
    static Result<NodeShare> create(const Config& config, std::shared_ptr<BandwidthCap> cap,
                                    const PlanRecord& record, std::shared_ptr<Storage> local,
                                    std::shared_ptr<Storage> shared);

    const PlanRecord& record() const { return record_; }
    const FlushPlan& plan() const { return plan_; }
    uint64_t bytes() const;
    std::vector<SharedHeader> headers() const;  // of the files of its group
    Result<bool> is_written() const;

    enum class Lock { must, if_possible };
    enum class End {
        written,
        not_needed,  // it was written already, or newer epochs have made it pointless
        elsewhere,   // another process writes it
        stopped,     // stop() said so
    };
    using Streams = std::function<Result<std::vector<LocalStream>>()>;
    using Progress = std::function<void(uint64_t bytes)>;
    // Reads the captured parts that `streams` names, and writes and commits the node's segments. `stop` and
    // `progress` are called several times a second.
    Result<End> write(const Streams& streams, Lock lock, const std::function<bool()>& stop,
                      const Progress& progress);
    // Whether the last write() has failed because what was captured is missing or damaged.
    bool parts_unusable() const { return parts_unusable_; }

  private:
    NodeShare(JobContext context, PlanRecord record, FlushPlan plan)
        : context_(std::move(context)), record_(std::move(record)), plan_(std::move(plan)) {}

    JobContext context_;
    PlanRecord record_;
    FlushPlan plan_;
    bool parts_unusable_ = false;
};

}  // namespace tailrace::internal
