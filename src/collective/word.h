// Word: what ranks of one collective call tell each other. Small; data goes by the transport's transfers or
// through shared memory.
//
// Who says what, for every window w (L: local aggregator, G: global aggregator that owns w):
//   once        member -> L   lists     where my requests are
//               L -> G        windows   the windows to which my group contributes
//   write       G -> L        open      there is memory for w: L may take it up (*)
//               L -> member   place     copy your bytes of w to their places in the group's packed bytes
//               member -> L   placed
//               L -> G        offer     the group's runs and packed bytes of w
//               G -> L        done      (through shared memory) I have copied them
//   read        G -> L        open      I have memory for w: tell me your runs (*)
//               L -> G        offer     the group's runs of w
//               G -> L        ready     the window has been read
//               L -> G        grant     there is memory for the packed bytes: here
//               G -> L        done      (through shared memory) they are there
//               L -> member   take      copy your bytes of w out
//               member -> L   taken
// (*) Not said for windows of the first rounds, for which every owner has memory from the beginning: a call
// of few rounds has two messages less, one after the other. Their offers may overtake other groups' windows.
// Every word is answered or ends a chain, so when all chains of a call have ended none is under way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/requests.h"
#include "collective/shared_memory.h"

namespace tailrace::collective {

struct Word {
    enum class Kind : uint8_t {
        lists,
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

    Kind kind = Kind::lists;
    uint64_t window = 0;
    uint64_t count = 0;         // of requests or runs
    uint64_t bytes = 0;         // packed bytes
    uint64_t slot_begin = 0;    // where in `data` the packed bytes begin
    bool failed = false;        // the sender could not do its part: there are no bytes
    bool shared = false;        // runs and packed bytes are in shared memory, at these names
    SharedName list;            // requests or runs
    SharedName data;            // packed bytes
    std::vector<uint64_t> ids;  // windows
    std::vector<Request> runs;  // when they are few and not shared
};

std::vector<std::byte> encode(const Word& word);
// transport when the bytes are no word.
Result<Word> decode_word(std::span<const std::byte> bytes);

// In place and take, with failed: the aggregator could not see the member's list, so there will be no word
// for any of its windows. Needs no answer.
inline constexpr uint64_t every_window = UINT64_MAX;

// As many runs travel in the word itself; more have a transfer of their own.
inline constexpr uint64_t most_runs_in_word = 512;

// Tags of the transfers that belong to a window. Between two ranks at most a few windows are under way.
inline uint32_t runs_tag(uint64_t window) {
    return static_cast<uint32_t>(window % 8192 * 2);
}
inline uint32_t data_tag(uint64_t window) {
    return static_cast<uint32_t>(window % 8192 * 2 + 1);
}

}  // namespace tailrace::collective
