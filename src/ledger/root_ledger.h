// RootLedger: keeps the books of all epochs of a job, at rank 0's node. It hears of every node's
// captures and every party's flush results. It decides by the queue policy which epochs are
// flushed, has each epoch's arrays judged when all nodes have captured it, and declares how each
// one ended. It is a pure state machine without threads, clocks or files. Its driver carries out
// the orders that it gives.
//
// The news come from other nodes. The driver has checked that each is about its sender, and that its
// node or party is one of the job's; the ledger takes no node for two.
//
// Where ranks may not communicate in the background, every rank runs the same RootLedger on the
// same inputs in the same order, and so arrives at the same orders.
//
// No epoch is committed before its arrays are judged and its nodes are prepared: captured parts are verified,
// and files written as they were, on all nodes: leaders wait for MayCommit. No epoch is kept before its
// arrays are judged, and before it is known whether it is protected from the loss of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "format/file_table.h"
#include "ledger/agent_messages.h"

namespace tailrace::internal {

// An order: find out whether the arrays of this epoch can be restored, and report it by judged().
struct JudgeArrays {
    EpochKey key;
    std::vector<Residues> arrays;  // by node
};

// What RootLedger wants done, in this order. Its driver carries out JudgeArrays; the others go to
// every node.
using Order = std::variant<Decision, EpochEnded, JudgeArrays, MayCommit, ArraysFit, EpochProtected>;

class RootLedger {
  public:
    // `parties`: how many results complete an epoch's flush (one from each group, or from each
    // node). `redundancy_every`: the first save and every n-th after it are to be protected; 0: none is.
    RootLedger(size_t nodes, size_t parties, QueuePolicy policy, uint32_t queue_epochs,
               uint32_t redundancy_every = 0)
        : nodes_(nodes),
          parties_(parties),
          policy_(policy),
          queue_epochs_(queue_epochs),
          redundancy_every_(redundancy_every) {}

    // Returns transport, and changes nothing, if the node has said before that it has captured this
    // epoch, or an epoch of this save.
    Status captured(const NodeCaptured& news);
    // A node's set has protected an epoch, or could not. Every node says so once, unless the epoch has
    // failed.
    void node_protected(const NodeProtected& news);
    // An epoch of an earlier run that every node will flush.
    void recovered(EpochKey key);
    void result(const GroupResult& result);
    // One node is prepared: ok, or why the epoch must not be committed.
    void prepared(const NodePrepared& news);
    // The verdict on an epoch's arrays: ok, or why it cannot be restored and is refused.
    void judged(EpochKey key, const Status& verdict);
    // As NodeLedger::end_from. An epoch fails even if some nodes have captured it completely,
    // because others never will.
    void end_from(uint64_t first, const Status& why);

    std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
    // Failed epochs that may have left files in the shared tier, since the last call.
    std::vector<EpochKey> take_leftovers() { return std::exchange(leftovers_, {}); }

  private:
    struct Epoch {
        std::set<int> captured_by;     // nodes
        std::vector<Residues> arrays;  // by node
        FileNames names_apart;
        Status names_fit;  // invalid_argument: two ranks' files cannot lie together
        bool to_protect = false;
        std::set<int> protecting_ended;  // nodes
        bool unprotected = false;        // some set could not protect it
        double protect_seconds = 0;      // of the slowest node
        std::set<int> nodes_prepared;
        bool judged = false;  // with a good verdict
        bool refused = false;
        std::optional<bool> flush;  // empty: not decided yet
        std::set<int> results;      // parties
        Status failure;             // the first failure of a party, or of a node's parts
        bool given_up = false;      // a node cannot allow its commit
        bool part_lost = false;     // a party found a captured part missing or cut short
        std::string note;           // why it is kept local
        double seconds = 0;
        bool ended = false;
        bool everywhere(size_t nodes) const { return captured_by.size() == nodes; }
        bool flush_is_over(size_t parties) const { return given_up || results.size() == parties; }
    };
    struct Sequence {
        std::vector<EpochKey> keys;
        std::set<int> captured_by;  // nodes
        int first_node = 0;
        Status failure;
    };
    Status check_new(const NodeCaptured& news) const;
    static void add_names(Epoch& epoch, const NodeCaptured& news);
    void decide(EpochKey key, bool for_shared);
    void start(EpochKey key);
    void keep_local(EpochKey key, std::string note);
    // Of an epoch that has failed, the sentence says here, and only here, what is left.
    void end(EpochKey key, EpochState state, Status why);
    void end_if_whole(EpochKey key);
    void allow_if_sound(EpochKey key);
    void start_waiting();
    void forget_old();

    const size_t nodes_, parties_;
    const QueuePolicy policy_;
    const uint32_t queue_epochs_, redundancy_every_;
    std::map<EpochKey, Epoch> epochs_;
    std::map<uint64_t, Sequence> sequences_;
    std::map<int, uint64_t> newest_of_node_;  // the last sequence number that it has captured
    std::set<EpochKey> running_;              // to be flushed, and not ended
    std::vector<EpochKey> waiting_;           // with drop_oldest: captured by the root's node, not decided
    std::optional<uint64_t> end_from_;
    Status end_why_;
    std::vector<Order> orders_;
    std::vector<EpochKey> leftovers_;
};

}  // namespace tailrace::internal
