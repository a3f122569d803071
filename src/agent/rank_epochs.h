// RankEpochs: what one rank knows about the epochs it has saved in this session.
//
// Invariants: an epoch that has come to its end (committed, kept_local, failed) never changes again; epochs
// and sequence numbers ascend together. Thread-safe: the program's threads read and wait, the node agent (or
// whoever polls this rank's messages) tells it news.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/epoch_state.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class RankEpochs {
  public:
    struct Entry {
        EpochInfo info;
        bool for_shared = true;
        bool captured_everywhere = false;
        // Failed because nothing more is heard: other ranks may have captured it as well.
        bool unheard = false;
        // ... and the node's agent may not know yet: a flush may still read this rank's part.
        bool still_read = false;
    };

    // A capture that went well (state captured) or did not (state failed). News that came before it counts.
    void add(const EpochInfo& info, bool for_shared);
    void set_blocked(uint64_t epoch, double seconds);
    void flushing(EpochKey key);
    void ended(const EpochEnded& news);
    // Every epoch that has not ended fails with `why`: nothing more will be heard of it. `let_go`: the
    // node's agent says so itself, and reads no part any more.
    void fail_all(const Status& why, bool let_go);

    std::optional<Entry> find(uint64_t epoch) const;
    std::vector<Entry> all() const;  // ascending
    std::optional<uint64_t> newest() const;
    std::vector<uint64_t> unfinished() const;
    Status first_failure() const;
    Status broken() const;  // fail_all()'s reason, if there was one

    // Sleeps until `done` (called under the table's lock, so it must use `entries` alone) is true or the
    // deadline has passed; says whether it is true.
    using Entries = std::map<uint64_t, Entry>;
    static size_t unfinished_for_shared(const Entries& entries);
    bool wait_until(const std::function<bool(const Entries&)>& done,
                    std::optional<std::chrono::steady_clock::time_point> deadline);

  private:
    static void end(Entry& entry, const EpochEnded& news);
    void note_failure(uint64_t epoch, const Status& why) REQUIRES(mutex_);
    void forget_old() REQUIRES(mutex_);

    mutable Mutex mutex_;
    Condition changed_;
    Entries entries_ GUARDED_BY(mutex_);
    std::map<EpochKey, EpochEnded> early_
        GUARDED_BY(mutex_);  // ends that became known before this rank's capture
    Status broken_ GUARDED_BY(mutex_);
    bool let_go_ GUARDED_BY(mutex_) = true;
    Status first_failure_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
