// Messages between the nodes of a group, and their encoding. Pure.
//
// Every message starts with aggregator_message_mark, its type, and the key of its epoch. All are
// small except the plan and the offers, which grow with the number of ranks. Data never travels in
// messages.
//
// The way of an epoch:
//   1. OFFER    member -> coordinator: its streams, or why it cannot take part.
//   2. PLAN     coordinator -> members, once every node has offered.
//   3. CREDIT   leader -> follower: one pool buffer is reserved for the follower.
//      CHUNK    follower -> leader, as an answer: what the buffer will get. The data follows under
//               the tag data_tag(credit).
//      EMPTY    follower -> leader, as the other answer: it has no more data, or it failed.
//   4. SEGMENT  leader -> coordinator: the leader's segment is committed, or has failed.
//   5. RESULT   coordinator -> members: how the group's flush ended. No message about the epoch
//               follows.
//      FAILED   anyone -> coordinator, at any time: the epoch cannot come about.
//      ABORT    coordinator -> members, after PLAN: begin nothing more, and answer what is open.
//               Leaders answer with SEGMENT once nothing of theirs is open, and RESULT follows.
//
// Decoders treat every byte as hostile. What they return is consistent in itself: a plan has passed
// check_plan. They trust counts only as far as there are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "flush/plan.h"

namespace tailrace::internal {

// The first byte of each message. Messages of the aggregator's owner start with another byte.
inline constexpr std::byte aggregator_message_mark{0xA6};

struct OfferMessage {
    EpochKey key;
    std::string job;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    NodeOffer offer;
    Status refused;
};
struct PlanMessage {
    FlushPlan plan;
};
struct CreditMessage {
    EpochKey key;
    uint32_t credit = 0;
};
struct ChunkMessage {
    EpochKey key;
    uint32_t credit = 0;
    uint32_t rank = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
};
struct EmptyMessage {
    EpochKey key;
    uint32_t credit = 0;
    Status why;  // ok: everything was sent
};
struct SegmentMessage {
    EpochKey key;
    Status status;
    WrittenChunks written;
};
struct FailedMessage {
    EpochKey key;
    Status why;
};
struct AbortMessage {
    EpochKey key;
    Status why;
};
struct ResultMessage {
    EpochKey key;
    Status status;
};

using AggregatorMessage = std::variant<OfferMessage, PlanMessage, CreditMessage, ChunkMessage, EmptyMessage,
                                       SegmentMessage, FailedMessage, AbortMessage, ResultMessage>;

EpochKey key_of(const AggregatorMessage& message);
std::string_view name_of(const AggregatorMessage& message);  // "OFFER"

// Whether a message of `source` to `target`, both of them nodes, goes the way that it should: between
// nodes of one group, and from or to its coordinator if only that may say or hear it. Returns transport if
// not.
Status check_way(const AggregatorMessage& message, int source, int target, const Group& group);

std::vector<std::byte> encode(const AggregatorMessage& message);
Result<AggregatorMessage> decode_aggregator_message(std::span<const std::byte> bytes);

// The leader numbers its credits itself, so a number is unique among the open credits of any pair
// of nodes. Odd tags belong to the transfers of protect/messages.h. (A transport may use a tag modulo
// a power of two.)
inline uint32_t data_tag(uint32_t credit) {
    return 2 * credit;
}

}  // namespace tailrace::internal
