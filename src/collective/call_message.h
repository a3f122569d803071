// CallMessage: what ranks of one collective call tell each other. Small; data goes by the transport's
// transfers or through shared memory.
//
// Where every rank's requests are, and of a small write the bytes too, all know from the collective step that
// opens a call (RankSummary). Who says what then, for every window w (L: local aggregator, G: global
// aggregator that owns w):
//   once        L -> G        windows   the windows to which my group contributes (1)
//   write       G -> L        open      there is memory for w: L may take it up (2)
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
// Every message costs time, so those that are not needed are not sent:
// (1) With the first offer, if that does not have to wait for `open`; without any window, alone.
// (2) Not for windows of the first rounds, for which every owner has memory from the beginning.
// (3) Not to members whose bytes lie beside their requests already.
// (4) Only where the slot is needed again in this call: the call's end tells everybody that it is free.
// (5) Not where L had a slot for the packed bytes when it made its offer, and said so in it.
// Every message is answered or ends a chain. So when all chains of a call have ended, none is under way.
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
    uint32_t slot = 0;          // which of the local aggregator's; its packed bytes are at slot x window
    bool failed = false;        // the sender could not do its part: there are no bytes
    bool granted = false;       // an offer of a read: there is memory for the packed bytes, as in a grant
    bool answer = false;        // the sender waits for done or taken
    bool shared = false;        // runs and packed bytes are in shared memory, at these names
    SharedName list;            // requests or runs
    SharedName data;            // packed bytes
    std::vector<uint64_t> ids;  // windows
    std::vector<Request> runs;  // when they are few and not shared
};

std::vector<std::byte> encode(const CallMessage& message);
// transport when the bytes are no message.
Result<CallMessage> decode_call_message(std::span<const std::byte> bytes);

// In place and take, with failed: the aggregator could not see the member's list, so there will be no message
// for any of its windows. Needs no answer.
inline constexpr uint64_t every_window = UINT64_MAX;

// As many runs travel in the message itself; more have a transfer of their own.
inline constexpr uint64_t most_runs_in_message = 512;

// Tags of the transfers that belong to a window. Between two ranks at most a few are under way, of rounds
// that follow each other; a round has one window of each owner.
inline uint32_t runs_tag(const Domains& domains, uint64_t window) {
    return static_cast<uint32_t>(domains.round(window) % 8192 * 2);
}
inline uint32_t data_tag(const Domains& domains, uint64_t window) {
    return runs_tag(domains, window) + 1;
}

}  // namespace tailrace::internal::collective
