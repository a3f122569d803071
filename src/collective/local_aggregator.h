// LocalAggregator: a local aggregator at work. It merges the requests of its group, window by window, into
// runs, and moves the runs and their packed bytes between its members and the global aggregators
// (call_message.h has the conversation).
//
// A state machine: start(), handle() for every message, step() in between; none of them blocks. Windows are
// taken up once their owners have opened them, so that it never waits for anything that waits for
// it: an open window has its memory at the owner, and members only copy.
//
// A read's window has its slot from the offer on, if one is free then: the bytes come without asking. Where a
// call has no more windows than there are slots, each is used once, and nobody has to say that it is free
// again: what it holds stays until the next call.
//
// Where nobody of the group but the aggregator has requests, there is nobody to ask and no memory is shared:
// if its bytes are one piece of memory, they are sent from there and received there, as in two-phase I/O.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "collective/member.h"

namespace tailrace::internal::collective {

class LocalAggregator {
  public:
    LocalAggregator(CallContext& context, Member& own);
    // Takes back the transfers of a call that was given up.
    ~LocalAggregator();
    LocalAggregator(const LocalAggregator&) = delete;
    LocalAggregator& operator=(const LocalAggregator&) = delete;

    Status start();
    Status handle(const CallMessage& message);
    // True when something moved.
    Result<bool> step();
    bool done() const;

    // For the global part of the same rank: the runs of a window it was offered, and their packed bytes.
    std::span<const Request> runs(uint64_t window) const;
    std::span<std::byte> packed(uint64_t window);

  private:
    enum class Stage {
        free,
        spent,     // free, but others may still look at it: not for this call
        filling,   // members copy into it
        moving,    // between here and the owner
        emptying,  // members copy out of it
    };
    struct Slot {
        Stage stage = Stage::free;
        uint64_t window = 0;
        std::vector<Request> runs;
        bool failed = false;
        std::span<std::byte> packed;
        size_t members_left = 0;
        bool waits_for_done = false;
        uint64_t steps = 0;  // of the messages up to here, one after the other
        std::unique_ptr<Transfer> runs_transfer, data_transfer;
    };

    // Nobody else has requests: no memory need be shared.
    bool alone() const { return members_.size() == 1 && members_.front() == context_.rank(); }
    // Slots have to be used again, so somebody has to say when they are free.
    bool reuses_slots() const { return windows_ > slots_.size(); }
    bool inside(uint64_t window) const;
    bool by_memory(uint64_t window) const;
    int owner(uint64_t window) const;
    Status begin();
    MergeCounts merge_window(const FileWindow& window, std::vector<Request>& runs);
    std::optional<size_t> free_slot() const;
    Slot* slot_of(uint64_t window);
    Status tell_members(size_t slot, CallMessage::Kind kind);
    Status take_up(size_t slot);
    Status offer(size_t slot);
    Status post_offer(CallMessage& message, uint64_t after);
    Status opened(uint64_t window, uint64_t steps);
    Status ask(uint64_t window, uint64_t steps);
    Status give_memory(size_t slot, CallMessage& message);
    Status grant(size_t slot);
    Status filled(size_t slot);
    Status prepare(size_t slot);
    Status copy_own(Slot& slot);
    Result<bool> advance(size_t slot);
    void release(size_t slot);

    CallContext& context_;
    Member& own_;
    std::vector<int> members_;  // with requests; this rank too, if it has any
    std::map<int, RequestList> lists_;
    struct Laid {  // a member's bytes beside its requests
        Laid(const RequestList& list, std::span<std::byte> bytes) : memory({bytes}), stream(list, memory) {}
        const MemoryList memory;
        const Stream stream;
    };
    std::map<int, Laid> laid_;
    uint64_t windows_ = 0, windows_left_ = 0;
    std::map<int, std::vector<uint64_t>> unsaid_;           // what the first offer to an owner has to name
    std::map<uint64_t, uint64_t> opened_;                   // and not yet taken up; the steps up to it
    std::map<uint64_t, std::vector<Request>> asked_;        // reads: windows whose runs the owner has
    std::map<uint64_t, std::unique_ptr<Transfer>> asking_;  // their transfers
    std::deque<std::pair<uint64_t, uint64_t>> ready_;       // reads: waiting for a slot; the steps up to it
    std::vector<Slot> slots_;
    Cuts cuts_;  // of the windows that were merged
};

}  // namespace tailrace::internal::collective
