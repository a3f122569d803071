// Messages between the nodes of a set, and their encoding. Pure.
//
// Every message starts with protect_message_mark, its type, and the key of its epoch. Data never
// travels in messages.
//
// The way of an epoch:
//   1. TABLE    member -> members: what it has captured. Who has all tables knows the layout.
//   2. ASK      keeper -> member: a run of the member's logical part, for which the keeper has memory.
//      DATA     member -> keeper, as an answer: the run follows under the tag protect_tag(number).
//      REFUSED  member -> keeper, as the other answer: nothing follows.
//   3. DONE     member -> members: its object has its name. Who has its own and heard of all others'
//               is at the end.
//      FAILED   member -> members, at any time before: the epoch cannot be protected. Objects go.
//
// Decoders treat every byte as hostile, and trust counts only as far as there are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "protect/protect_file.h"

namespace tailrace::internal {

// The first byte of each message. Those of the agent and of the aggregator start with others.
inline constexpr std::byte protect_message_mark{0xD8};
bool is_protect_message(std::span<const std::byte> message);

struct TableMessage {
    EpochIdentity identity;
    std::vector<StreamInfo> parts;
};
struct AskMessage {
    EpochKey key;
    uint32_t number = 0;  // the keeper counts
    uint64_t offset = 0, bytes = 0;
};
struct DataMessage {
    EpochKey key;
    uint32_t number = 0;
};
struct RefusedMessage {
    EpochKey key;
    uint32_t number = 0;
    Status why;  // ok: the epoch has ended there, or the ask is not sound
};
struct DoneMessage {
    EpochKey key;
};
struct UnprotectedMessage {  // FAILED
    EpochKey key;
    Status why;  // never ok
};

using ProtectMessage =
    std::variant<TableMessage, AskMessage, DataMessage, RefusedMessage, DoneMessage, UnprotectedMessage>;

EpochKey key_of(const ProtectMessage& message);
std::vector<std::byte> encode(const ProtectMessage& message);
Result<ProtectMessage> decode_protect_message(std::span<const std::byte> bytes);

// Odd, because even tags belong to the aggregator's transfers between the same nodes.
inline uint32_t protect_tag(uint32_t number) {
    return 2 * number + 1;
}

}  // namespace tailrace::internal
