// PlanKeeper: keeps the plan records (format/plan_record.h) of this node's epochs, beside their captured
// parts. With its record, the node's share of an epoch can be written after the program has died.
//
// A record is written when three things are known: this node flushes the epoch; which data every node of
// its group has; and the epoch's arrays fit together. It is removed when the epoch has been committed, or
// can never be committed. It stays if the epoch has failed while all of its parts lie in the node-local
// tiers.
//
// An epoch that is kept in the node-local tier gets a record, too, by another name. This record counts if
// the epoch is the newest one when the program has died (drain/recorded_epochs.h). It is removed when a
// newer epoch is committed, and by the session when it removes the captured parts.
//
// If this node keeps a copy of another node's captured parts (setting redundancy), it can also write that
// node's share, if it has that node's record. If both nodes are in one group, this record follows from
// its own. Otherwise the keeper writes it beside the copy, under the same conditions.
//
// If a record cannot be written, the epoch does not fail, and the log says so once.
//
// Files are read and written in a thread of the keeper's own. Only the background's thread calls the
// members.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/job_context.h"
#include "flush/plan.h"
#include "ledger/agent_messages.h"
#include "threads/work_queue.h"

namespace tailrace::internal {

class PlanKeeper {
  public:
    // The context must outlive the keeper.
    explicit PlanKeeper(const JobContext& context) : context_(context) {}
    ~PlanKeeper() { finish(); }

    // Call before begin(): an epoch of an earlier run is flushed again, so its record stays.
    void recovered(EpochKey key) { recovered_.insert(key); }
    // Starts the thread. Removes the records of earlier runs, except those of recovered epochs.
    void begin(Priority priority);
    // Does what was ordered before, and ends the thread.
    void finish() { writing_.finish(); }

    void planned(EpochKey key, std::vector<NodeOffer> offers);  // of every node of the group
    // The same for the group of another node, of which this node keeps a copy.
    void planned_for(EpochKey key, int node, std::vector<NodeOffer> offers);
    // The same as planned() for an epoch that is kept in the node-local tier.
    void planned_local(EpochKey key, std::vector<NodeOffer> offers);
    // One node of a group whose first node is this one brings this to an epoch that is kept in the
    // node-local tier. Returns what all of its `nodes` bring when the last one has said so.
    std::optional<std::vector<NodeOffer>> offered(EpochKey key, NodeOffer offer, size_t nodes);
    void arrays_fit(EpochKey key);
    void ended(const EpochEnded& news);
    // Nothing more comes of an epoch that has ended.
    void forget(EpochKey key) {
        pending_.erase(key);
        written_.erase(key);
        offered_.erase(key);
    }

  private:
    struct Pending {
        std::map<int, std::vector<NodeOffer>> offers;  // by the node whose record is to be written
        bool local = false;                            // kept in the node-local tier
        bool arrays_fit = false;
    };
    struct Record {
        EpochKey key;
        int node = 0;  // whose record it is
        bool local = false;
    };
    void write_if_known(EpochKey key);
    Status write(const Record& record, std::vector<NodeOffer> offers) const;
    void remove_old(const std::set<EpochKey>& spared) const;
    void remove_local_before(EpochKey committed) const;
    std::string path_of(const Record& record, bool unfinished = false) const;

    const JobContext& context_;
    std::set<EpochKey> recovered_;
    std::map<EpochKey, Pending> pending_;
    std::map<EpochKey, std::set<int>> written_;             // or about to be: by epoch, of which nodes
    std::map<EpochKey, std::map<int, NodeOffer>> offered_;  // by epoch and node
    bool any_local_ = false;  // a record of an epoch that was kept may lie there
    bool failed_ = false;     // only the thread uses it
    WorkQueue writing_;
};

}  // namespace tailrace::internal
