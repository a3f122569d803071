// EpochFinisher: the root's work in the shared directory after the end of a flush. It gives committed
// epochs and their original files their final names, removes older epochs as keep_shared says, and removes
// the files of failed flushes.
//
// Two threads do this. One of them only gives names, because a program that waits for an epoch must not
// wait for the removal of an old one.
//
// Any thread may call any member, except begin() and finish().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"

namespace tailrace::internal {

class EpochFinisher {
  public:
    // The context must outlive the finisher.
    explicit EpochFinisher(const JobContext& context) : context_(context) {}
    ~EpochFinisher() { finish(); }
    // `thrown` is called in a catch block of the naming thread. Some epoch may then never be
    // announced.
    void begin(Priority priority, std::function<void()> thrown);
    // Does all work that was ordered before, and ends the threads.
    void finish();

    // All groups have written and committed this epoch. When its files have their final names, or
    // that has failed, `named` gets the news to announce. The naming thread calls it while naming()
    // is still true.
    using Named = std::function<void(const EpochEnded& ended)>;
    void commit(const EpochEnded& ended, Named named);
    void remove_leftovers(const std::vector<EpochKey>& keys);
    // A restore could not read this epoch. From now on, no older epoch is removed in its favour.
    void found_damaged(EpochKey key);

    // Whether some epoch is about to get its names.
    bool naming() const;
    // Sleeps until none is, or until the deadline. Returns whether none is.
    bool wait_named(std::optional<std::chrono::steady_clock::time_point> deadline);

  private:
    class BeingNamed;
    EpochEnded give_names(EpochEnded ended);
    void apply_retention(EpochKey key);
    Status check_directory() const;

    const JobContext& context_;
    mutable Mutex mutex_;
    Condition changed_;
    size_t being_named_ GUARDED_BY(mutex_) = 0;
    // Only the removing thread uses these two.
    std::vector<EpochKey> known_complete_;
    std::set<EpochKey> known_damaged_;
    WorkQueue removing_, naming_;  // the naming thread hands work to the removing one
};

}  // namespace tailrace::internal
