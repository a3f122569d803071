// RankEpochs: what one rank knows about the epochs it has saved in this session.
//
// Invariants: an epoch that has ended (committed, kept_local, failed) never changes again, except that
// it may be protected later; epochs and sequence numbers ascend together.
//
// Thread-safe: the program's threads read and wait, and the node agent (or the code that polls this
// rank's messages) brings news.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ledger/agent_messages.h"
#include "ledger/epoch_state.h"
#include "threads/mutex.h"
#include "when/rules.h"

namespace tailrace::internal {

// The epochs from `first` to `last`. Naming them needs no memory, which may run out on one rank alone.
struct EpochRange {
    uint64_t first = 0, last = 0;
};

class RankEpochs {
  public:
    struct Entry {
        EpochInfo info;
        bool for_shared = true;
        bool captured_everywhere = false;
        // No more news can come (it has failed for that, or is uncarried). Other ranks may have captured
        // the epoch as well.
        bool unheard = false;
        // The same, and the node's agent may not know it yet. A flush may still read this rank's
        // part.
        bool still_read = false;
    };

    // Adds an epoch whose capture has succeeded (state captured) or failed (state failed). News
    // that came before it is applied.
    void add(const EpochInfo& info, bool for_shared);
    // The save of this epoch has ended now.
    void set_blocked(uint64_t epoch, double seconds);
    void flushing(EpochKey key);
    // Nodes may be lost, `losses` of each set, and the captured epoch comes back.
    void protected_from(EpochKey key, uint32_t losses);
    void ended(const EpochEnded& news);
    // The session has flushed, at its end, an epoch that had been kept in the node-local tier.
    void flushed_at_close(EpochKey key);
    // Every epoch that has not ended fails with `why`, because no more news of it can come.
    // `let_go`: the node's agent itself says so, and no longer reads captured parts.
    void fail_all(const Status& why, bool let_go);

    // The agent process that carried the epochs is gone, or only its line: nobody brings news any more.
    // Epochs that have not ended stay captured, or protected, and so do later ones.
    void uncarried();

    std::optional<Entry> find(uint64_t epoch) const;
    std::vector<Entry> all() const;           // ascending
    std::optional<EpochRange> range() const;  // from the oldest to the newest
    std::vector<uint64_t> unfinished() const;
    Status first_failure() const;
    // What the last saves have cost this rank, and when the last one ended.
    SaveCosts costs() const;
    std::optional<SteadyClock::time_point> last_save() const;
    Status broken() const;  // the reason given to fail_all(); ok if it was not called
    // Grows with every change. It costs no lock, for those who look all the time.
    uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }

    // Sleeps until done() is true or the deadline has passed. Returns whether it is true. done() is
    // called under the lock, so it must use nothing but its argument.
    using Entries = std::map<uint64_t, Entry>;
    static size_t unfinished_for_shared(const Entries& entries);
    bool wait_until(const std::function<bool(const Entries&)>& done,
                    std::optional<std::chrono::steady_clock::time_point> deadline);

  private:
    Entry* entry_of(EpochKey key) REQUIRES(mutex_);  // null: this rank has not saved it
    static void end(Entry& entry, const EpochEnded& news);
    void note_failure(uint64_t epoch, const Status& why) REQUIRES(mutex_);
    void forget_old() REQUIRES(mutex_);
    void tell_of_change() REQUIRES(mutex_);

    mutable Mutex mutex_;
    Condition changed_;
    std::atomic<uint64_t> changes_{0};
    Entries entries_ GUARDED_BY(mutex_);
    // How epochs ended that this rank has not captured yet.
    std::map<EpochKey, EpochEnded> early_ GUARDED_BY(mutex_);
    Status broken_ GUARDED_BY(mutex_);
    bool let_go_ GUARDED_BY(mutex_) = true;
    bool uncarried_ GUARDED_BY(mutex_) = false;
    Status first_failure_ GUARDED_BY(mutex_);
    uint64_t saves_ GUARDED_BY(mutex_) = 0;  // that succeeded
    std::optional<SteadyClock::time_point> last_save_ GUARDED_BY(mutex_);
    std::deque<double> blocked_seconds_ GUARDED_BY(mutex_), flush_seconds_ GUARDED_BY(mutex_);  // recent
};

}  // namespace tailrace::internal
