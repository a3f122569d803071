// What ranks and node agents tell each other about epochs (the aggregator has messages of its own).
//
//   Captured       rank -> its node's agent    this rank has captured an epoch, or could not
//   NodeCaptured   agent -> root               all ranks of this node have, or one could not
//   Decision       root -> agents              flush it, or keep it in the node-local tier only
//   ArraysAsked    root -> agents              what do the tables of this epoch say (array_judge.h)
//   ArraysAnswered agent -> the agent above it in a tree of two branches, up to the root
//   PartsVerified  agent -> root               whether what this node has captured is sound
//   MayCommit      root -> agents              it can be restored: leaders may write their slots
//   GroupResult    coordinator -> root         how a group's flush ended
//   NodeFlushed    agent -> root               what this node's part in a flush has cost, for the record
//   EpochEnded     root -> agents -> ranks     the epoch's fate
//   EpochFlushing  agent -> its ranks          its flush has begun
//   SavesOver      rank -> its node's agent -> root
//                                              this rank closes its session: it saves no more
//   BackgroundOver any agent -> root -> agents -> ranks
//                                              nothing will be flushed any more, and no answer comes
//
// Pure encode and decode; the decoder takes every byte as hostile. The first byte tells these messages from
// the aggregator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/array_judge.h"
#include "agent/epoch_state.h"
#include "base/status.h"
#include "format/epoch_key.h"
#include "format/part_file.h"
#include "record/records.h"

namespace tailrace::internal {

inline constexpr std::byte agent_message_mark{0xC7};
bool is_agent_message(std::span<const std::byte> message);

struct Captured {
    uint64_t sequence = 0;  // how many saves this rank had tried before this one
    EpochKey key;
    bool for_shared = true;
    Status status;            // not ok: this rank could not capture, and the epoch cannot exist
    StreamInfo stream;        // of this rank
    std::string path;         // of the captured part
    double seconds = 0;       // the capture took
    double wait_seconds = 0;  // before it, for room in the queue
    Residues arrays = {};     // the digest of this rank's arrays
};

struct NodeCaptured {
    int node = 0;
    uint64_t sequence = 0;
    std::vector<EpochKey> keys;  // one; several when ranks of the node saved different epochs
    bool for_shared = true;
    Status status;
    CaptureNumbers capture = {};  // of the ranks of this node
    Residues arrays = {};         // their digests, combined
};

struct Decision {
    EpochKey key;
    bool flush = true;
};

struct GroupResult {
    EpochKey key;
    int party = 0;  // the group (or the node, where every node stands for itself)
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
    bool captured_everywhere = false;  // every rank's part exists: restorable from the node-local tiers
    std::string note = {};             // of kept_local: which setting or queue kept it there
    bool refused = false;              // its arrays cannot be restored: captured parts are removed
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

struct PartsVerified {
    EpochKey key;
    Status status;
};

struct EpochFlushing {
    EpochKey key;
};

struct BackgroundOver {
    Status why;  // never ok
};

struct SavesOver {
    uint64_t sequence = 0;  // how many saves the rank had tried: this one and later ones will never be whole
};

using AgentMessage =
    std::variant<Captured, NodeCaptured, Decision, GroupResult, EpochEnded, EpochFlushing, BackgroundOver,
                 NodeFlushed, SavesOver, ArraysAsked, ArraysAnswered, MayCommit, PartsVerified>;

std::vector<std::byte> encode(const AgentMessage& message);
Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
