// What an agent process and its clients (sessions, and `tailrace agent status`) tell each other.
//
// Each message is one packet of a SOCK_SEQPACKET socket, between processes of one user. Pure; the
// decoder takes every byte as hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/agent_link.h"
#include "base/status.h"
#include "carrier/carried_node.h"
#include "drain/node_drain.h"

namespace tailrace::internal {

// ---- from clients
struct SessionOpens {  // let go of all locks; answered by MayOpen
    std::string shared_dir;
};
struct SessionOpened {};  // go on
struct StatusAsked {};    // answered by AgentStatus
// Finish the sessions whose programs have ended, and make a pass; answered by AgentStatus then.
struct DrainAsked {};
struct EndAsked {  // end, but first finish what can be finished; answered by AgentStatus at the end
    uint64_t grace_ms = 0;
};

// ---- from the agent
struct MayOpen {                          // it has let go
    std::optional<CarrierPlace> carries;  // the agent can carry the session's epochs
};
struct AgentStatus {
    uint32_t process = 0;
    uint64_t started_unix_ms = 0;
    uint32_t sessions = 0;  // connected now
    bool working = false;   // a pass is under way
    bool stopping = false;
    std::vector<DrainedEpoch> epochs;  // of the last pass, at most max_status_epochs, the newest
    uint32_t left = 0;     // epochs of the last pass that are not finished; `epochs` may lack some
    std::string busy;      // why directories were passed over; empty: none were
    std::string failed;    // why a directory could not be looked through; empty: all could
    bool carries = false;  // it can carry epochs of sessions that live
    std::vector<CarriedStatus> carried;  // at most max_status_epochs
};
inline constexpr size_t max_status_epochs = 50;

// ---- both ways
struct LineBytes {  // a message of carrier/line_messages.h
    std::vector<std::byte> bytes;
};

using AgentProcessMessage = std::variant<SessionOpens, SessionOpened, StatusAsked, DrainAsked, EndAsked,
                                         MayOpen, AgentStatus, LineBytes>;

// A message about an epoch has two sentences and a path, of 64 KiB at most. The texts of a status are cut
// where it would be longer. Linux lets a socket have packets of 208 KiB.
inline constexpr size_t max_agent_message_bytes = size_t{200} << 10;

std::vector<std::byte> encode(const AgentProcessMessage& message);
// unsupported if another version of the protocol made it; transport if it is damaged.
Result<AgentProcessMessage> decode_agent_process_message(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
