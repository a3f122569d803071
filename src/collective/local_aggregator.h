// LocalAggregator: the work of a local aggregator. It merges the requests of its group, window by
// window, into runs. It moves the runs and their packed bytes between its members and the global
// aggregators. (call_message.h has the messages.)
//
// It is a state machine: start(), handle() for every message, and step() in between. None of them
// blocks. It starts with a window only when the owner has opened it. An open window has its memory
// at the owner, and members only copy. So it never waits for anything that waits for it.
//
// A window of a read has its slot from the offer on, if a slot is free then, and its bytes come
// without a further request. If a call has no more windows than there are slots, each slot is used
// once. Then no message has to say that a slot is free again, and it keeps its bytes until the next
// call.
//
// If only the aggregator itself has requests in its group, it asks nobody and shares no memory. If
// its bytes are one piece of memory, they are sent from there and received there, as in two-phase
// I/O.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "collective/member.h"

namespace tailrace::internal::collective {

class LocalAggregator {
  public:
    LocalAggregator(CallContext& context, Member& own);
    // Takes back the transfers of an abandoned call.
    ~LocalAggregator();
    LocalAggregator(const LocalAggregator&) = delete;
    LocalAggregator& operator=(const LocalAggregator&) = delete;

    Status start();
    Status handle(const CallMessage& message);
    // True if something moved.
    Result<bool> step();
    bool done() const;

    // For the global aggregator of the same rank: the runs of a window it was offered, and their
    // packed bytes.
    std::span<const Request> runs(uint64_t window) const;
    std::span<std::byte> packed(uint64_t window);

  private:
    enum class Stage {
        free,
        spent,     // free, but others may still read it: not for this call
        filling,   // members copy into it
        moving,    // between this rank and the owner
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
        uint64_t steps = 0;  // the length of the chain of messages up to here
        std::unique_ptr<Transfer> runs_transfer, data_transfer;
    };

    // Only this rank has requests, so no memory need be shared.
    bool alone() const { return members_.size() == 1 && members_.front() == context_.rank(); }
    // Slots must be used again, so a message has to say when they are free.
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
    std::vector<int> members_;  // members with requests; this rank too, if it has any
    std::map<int, RequestList> lists_;
    struct Laid {  // the bytes of a member beside its requests
        Laid(const RequestList& list, std::span<std::byte> bytes) : memory({bytes}), stream(list, memory) {}
        const MemoryList memory;
        const Stream stream;
    };
    std::map<int, Laid> laid_;
    uint64_t windows_ = 0, windows_left_ = 0;
    std::map<int, std::vector<uint64_t>> unsaid_;           // what the first offer to an owner must name
    std::map<uint64_t, uint64_t> opened_;                   // not started yet; the steps up to it
    std::map<uint64_t, std::vector<Request>> asked_;        // reads: windows whose runs the owner has
    std::map<uint64_t, std::unique_ptr<Transfer>> asking_;  // their transfers
    std::deque<std::pair<uint64_t, uint64_t>> ready_;       // reads: waiting for a slot; the steps up to it
    std::vector<Slot> slots_;
    Cuts cuts_;  // of windows that were merged
};

}  // namespace tailrace::internal::collective
