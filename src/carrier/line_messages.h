// The messages between a rank and the agent process that carries its session's epochs, over the rank's
// AgentLine (agent/agent_link.h).
//
//   1. The node's representative sends the CarriedJob in pieces. The locks of the session's directories
//      come with the first piece. The other ranks then join. The agent answers each rank.
//   2. The representative sends the recovered epochs in pieces, and the agent begins. The agent answers
//      this, too.
//   3. Mail goes both ways: messages about epochs and questions (ledger/agent_messages.h). A rank that
//      waits asks for a sign of life (Ping), which the agent gives at once (Pong).
//   4. When the session is closed, the representative asks when the node has nothing more to do (Close,
//      answered by Idle). Every rank says goodbye. When the work has ended on all nodes, and the agent
//      has let go of the locks, it sends Ended to the representative.
//
// Pure. The decoder treats every byte as hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"

namespace tailrace::internal::line {

// ---- from ranks
struct JobPiece {  // of an encoded CarriedJob
    bool last = false;
    std::vector<std::byte> bytes;
};
struct Join {
    uint64_t session = 0;  // the run's run_uid
    uint32_t node = 0, rank = 0;
};
struct BeginPiece {  // of encoded FlushJobs (carried_job.h)
    bool last = false;
    std::vector<std::byte> bytes;
};
struct Damaged {  // NodeAgent::found_damaged
    EpochKey key;
};
struct Close {};
struct Goodbye {
    bool give_up = false;  // whatever is under way is given up
};
struct Ping {};

// ---- both ways
struct Mail {
    std::vector<std::byte> bytes;
    bool last = true;  // false: more of the message follows; only ranks send such
};

// ---- from the agent
struct Answer {
    Status status;
};
struct Idle {
    Status recovery_failure, why_ended;
};
struct Ended {};
struct Pong {};

using Message =
    std::variant<JobPiece, Join, BeginPiece, Damaged, Close, Goodbye, Mail, Answer, Idle, Ended, Ping, Pong>;

// A piece has at most this many bytes, and all of them together at most that many.
inline constexpr size_t piece_bytes = size_t{1} << 16;
inline constexpr size_t most_bytes_of_pieces = size_t{1} << 28;

std::vector<std::byte> encode(const Message& message);
Result<Message> decode(std::span<const std::byte> bytes);

// Calls send(piece, last) for each piece of `bytes`, of which there is one at least.
template <class Send>
Status in_pieces(std::span<const std::byte> bytes, const Send& send) {
    do {
        const auto piece = bytes.first(std::min(bytes.size(), piece_bytes));
        bytes = bytes.subspan(piece.size());
        TAILRACE_TRY(send(piece, bytes.empty()));
    } while (!bytes.empty());
    return {};
}

}  // namespace tailrace::internal::line
