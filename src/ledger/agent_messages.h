// What ranks and node agents tell each other about epochs. (The aggregator has messages of its
// own.)
//
//   Captured         rank -> its node's agent  this rank has captured an epoch, or could not
//   NodeCaptured     agent -> root             all ranks of this node have, or one could not
//   Decision         root -> agents            flush it, or keep it in the node-local tier only
//   ArraysAsked      root -> agents            what do the tables of this epoch say
//   ArraysAnswered   agent -> the agent above it in a binary tree, up to the root
//   ArraysFit        root -> agents            all ranks have captured it, and its arrays fit together
//   NodePrepared     agent -> root             whether this node's captured parts are sound,
//                                              and its files written as they were
//   MayCommit        root -> agents            it can be restored: leaders may write their slots
//   NodeProtected    agent -> root             whether this node's set has protected it
//   EpochProtected   root -> agents -> ranks   all sets have
//   PlanToKeep       agent -> agent            what the group of the sender's node brings: the receiver keeps
//                                              a copy of what that node has captured
//   NodeOffered      agent -> first agent of its group
//                                              what this node brings to an epoch that is kept local
//   GroupOffered     first agent of a group -> its agents
//                                              what all nodes of the group bring to it
//   GroupResult      coordinator -> root       how a group's flush ended
//   NodeFlushed      agent -> root             what a flush has cost this node, for the record
//   EpochEnded       root -> agents -> ranks   how the epoch ended
//   EpochFlushing    agent -> its ranks        the flush has begun
//   SavesEnded       rank -> its node's agent -> root
//                                              this rank closes its session and saves no more
//   BackgroundEnded  any agent -> root -> agents -> ranks
//                                              nothing more is flushed, and no answer comes
//   Announced        root -> agents, down a tree -> ranks
//                                              what should_save or should_stop answers at some calls
//   AnswersEnded     the same way              no more of them come
//   StopAsked        rank -> its node's agent -> root
//                                              this rank was asked to stop
//
// Encoding and decoding are pure. The decoder treats every byte as hostile. The first byte tells
// these messages from the aggregator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "flush/plan.h"
#include "format/epoch_key.h"
#include "format/part_file.h"
#include "ledger/epoch_state.h"
#include "read/array_judge.h"
#include "record/records.h"
#include "when/schedule.h"

namespace tailrace::internal {

inline constexpr std::byte agent_message_mark{0xC7};

struct Captured {
    uint64_t sequence = 0;  // how many saves this rank had tried before this one
    EpochKey key;
    bool for_shared = true;
    Status status;             // not ok: this rank could not capture, and the epoch cannot exist
    StreamInfo stream;         // of this rank, as it was captured
    uint64_t apart_bytes = 0;  // of it (PartHeader)
    std::string path;          // the captured part's file
    double seconds = 0;        // how long the capture took
    double wait_seconds = 0;   // how long save waited for room in the queue before it
    Residues arrays = {};      // the digest of this rank's arrays
    std::vector<std::string> names_apart = {};  // its files that lie apart (format/original_files.h)
};

struct NamesApart {
    uint32_t rank = 0;
    std::vector<std::string> names;
};

struct NodeCaptured {
    int node = 0;
    uint64_t sequence = 0;
    std::vector<EpochKey> keys;  // one; several if ranks of the node saved different epochs
    bool for_shared = true;
    Status status;
    CaptureNumbers capture = {};               // over the ranks of this node
    Residues arrays = {};                      // their digests, combined
    std::vector<NamesApart> names_apart = {};  // of the ranks that have such files
};

struct Decision {
    EpochKey key;
    bool flush = true;
};

struct NodeProtected {
    EpochKey key;
    ProtectionRecord node;
};

struct EpochProtected {
    EpochKey key;
    double seconds = 0;   // of the slowest node
    uint32_t losses = 0;  // how many nodes of each set may be lost
};

struct PlanToKeep {
    EpochKey key;
    std::vector<NodeOffer> offers;  // of every node of the group
};

struct NodeOffered {
    EpochKey key;
    NodeOffer offer;
};

struct GroupOffered {
    EpochKey key;
    std::vector<NodeOffer> offers;  // of every node of the group
};

struct GroupResult {
    EpochKey key;
    int party = 0;  // the group; or the node, where every node reports for itself
    Status status;
    double seconds = 0;
};

struct NodeFlushed {
    EpochKey key;
    NodeRecord node;  // without events
};

struct EpochEnded {
    EpochKey key;
    EpochState state = EpochState::unknown;  // committed, kept_local or failed
    Status why;
    double seconds = 0;
    // Every rank's part exists, so the epoch can be restored from the node-local tiers.
    bool captured_everywhere = false;
    // It is not in the shared directory, and can still be brought there from its captured parts.
    bool parts_stay() const { return state != EpochState::committed && captured_everywhere && !refused; }
    std::string note = {};  // for kept_local: which setting or queue kept it there
    bool refused = false;   // its arrays cannot be restored: captured parts are removed
};

struct ArraysAsked {
    EpochKey key;
    ArrayQuestion question;
};

struct ArraysAnswered {
    EpochKey key;
    ArrayFacts facts;
};

struct MayCommit {
    EpochKey key;
};

struct ArraysFit {
    EpochKey key;
};

struct NodePrepared {
    EpochKey key;
    int node = 0;
    // corrupt: a part is not what was captured. invalid_argument: the parts can never be an epoch.
    Status status;
};

struct EpochFlushing {
    EpochKey key;
};

struct BackgroundEnded {
    Status why;  // never ok
};

struct SavesEnded {
    // How many saves the rank had tried. The saves with this number and later ones will never be
    // whole.
    uint64_t sequence = 0;
};

struct Announced {
    Announcement announcement;
};

struct AnswersEnded {
    Status why;  // never ok
};

struct StopAsked {
    std::string why;
};

using AgentMessage = std::variant<Captured, NodeCaptured, Decision, GroupResult, EpochEnded, EpochFlushing,
                                  BackgroundEnded, NodeFlushed, SavesEnded, ArraysAsked, ArraysAnswered,
                                  MayCommit, NodePrepared, ArraysFit, Announced, AnswersEnded, StopAsked,
                                  NodeProtected, EpochProtected, PlanToKeep, NodeOffered, GroupOffered>;

std::vector<std::byte> encode(const AgentMessage& message);
Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
