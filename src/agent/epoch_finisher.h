// EpochFinisher: work in the shared directory that follows the end of a flush, at the root. Committed epochs
// get their final names, older ones go as keep_shared says, and what failed flushes have left is removed.
//
// Two threads do it. Names have one of their own: a program that waits for an epoch must not wait for the
// removal of something old.
//
// Members may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/job_context.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"

namespace tailrace::internal {

class EpochFinisher {
  public:
    // The context outlives the finisher.
    explicit EpochFinisher(const JobContext& context) : context_(context) {}
    ~EpochFinisher() { finish(); }
    // `thrown` is called within a catch block of the naming thread: an epoch may never be heard of again.
    void begin(Priority priority, std::function<void()> thrown);
    // Does what was ordered before, and ends the threads.
    void finish();

    // All groups have written and committed this epoch. `named` hears the same news when its files have their
    // final names, or what became of it instead. It is called by the naming thread, before naming() ends.
    using Named = std::function<void(const EpochEnded& ended)>;
    void commit(const EpochEnded& ended, Named named);
    void remove_leftovers(const std::vector<EpochKey>& keys);
    // A restore could not read this epoch: from now on no older one goes because it is there.
    void found_damaged(EpochKey key);

    // Some epoch is about to get its names.
    bool naming() const;
    void wait_named();

  private:
    EpochEnded give_names(EpochEnded ended);
    void apply_retention(EpochKey key);
    Status check_directory() const;

    const JobContext& context_;
    mutable Mutex mutex_;
    Condition changed_;
    size_t being_named_ GUARDED_BY(mutex_) = 0;
    std::vector<EpochKey> known_complete_;  // of the removing thread
    std::set<EpochKey> known_damaged_;      // the same
    WorkQueue removing_, naming_;           // the naming thread hands work to the removing one
};

}  // namespace tailrace::internal
