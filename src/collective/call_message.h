// CallMessage: the messages between ranks in one collective call. They are small. Data goes by the
// transport's transfers or through shared memory.
//
// The collective step that opens a call (RankSummary) tells all ranks where every rank's requests
// are, and for a small write also where its bytes are. After that, these messages are sent for
// every window w (L: local aggregator, G: global aggregator that owns w):
//   once        L -> G        windows   the windows to which my group contributes (1)
//   write       G -> L        open      there is memory for w: you may start with it (2)
//               L -> member   place     copy your bytes of w to their places in the group's packed bytes (3)
//               member -> L   placed
//               L -> G        offer     the group's runs and packed bytes of w
//               G -> L        done      (through shared memory) I have copied them (4)
//   read        G -> L        open      I have memory for w: tell me your runs (2)
//               L -> G        offer     the group's runs of w
//               G -> L        ready     the window has been read (5)
//               L -> G        grant     there is memory for the packed bytes: here (5)
//               G -> L        done      (through shared memory) they are there
//               L -> member   take      copy your bytes of w out
//               member -> L   taken     (4)
// Every message costs time, so unnecessary ones are not sent:
//   (1) It goes with the first offer, unless that has to wait for `open`. Without any window it goes alone.
//   (2) Not for windows of the first rounds: every owner has memory for these from the beginning.
//   (3) Not to members whose bytes lie beside their requests already.
//   (4) Only if the slot is needed again in this call. The call's end tells every rank that it is free.
//   (5) Not if L had a slot for the packed bytes when it made its offer, and said so in the offer.
// Every message is answered or ends a chain. So when all chains of a call have ended, none is under
// way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/plan.h"
#include "collective/shared_memory.h"
#include "requests/requests.h"

namespace tailrace::internal::collective {

struct CallMessage {
    enum class Kind : uint8_t {
        windows,
        open,
        place,
        placed,
        offer,
        ready,
        grant,
        done,
        take,
        taken,
    };

    Kind kind = Kind::windows;
    uint64_t step = 0;  // how many messages and transfers led to this one, one after the other
    uint64_t window = 0;
    uint64_t count = 0;         // of requests or runs
    uint64_t bytes = 0;         // packed bytes
    uint32_t slot = 0;          // the local aggregator's slot; its packed bytes are at slot x window
    bool failed = false;        // the sender could not do its part, so there are no bytes
    bool granted = false;       // an offer of a read: there is memory for the packed bytes, as in a grant
    bool answer = false;        // the sender waits for done or taken
    bool shared = false;        // runs and packed bytes are in shared memory, under these names
    SharedName list;            // requests or runs
    SharedName data;            // packed bytes
    std::vector<uint64_t> ids;  // windows
    std::vector<Request> runs;  // if they are few and not shared
};

std::vector<std::byte> encode(const CallMessage& message);
// transport if the bytes are not a message.
Result<CallMessage> decode_call_message(std::span<const std::byte> bytes);

// In place and take, with failed: the aggregator could not see the member's list, so no message
// will come for any of its windows. Needs no answer.
inline constexpr uint64_t every_window = UINT64_MAX;

// At most this many runs travel in the message itself. More have a transfer of their own.
inline constexpr uint64_t most_runs_in_message = 512;

// Tags of the transfers that belong to a window. Between two ranks only a few are under way, of
// rounds that follow each other. A round has one window of each owner.
inline uint32_t runs_tag(const Domains& domains, uint64_t window) {
    return static_cast<uint32_t>(domains.round(window) % 8192 * 2);
}
inline uint32_t data_tag(const Domains& domains, uint64_t window) {
    return runs_tag(domains, window) + 1;
}

}  // namespace tailrace::internal::collective
