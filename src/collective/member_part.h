// MemberPart: what every rank does for its own requests: it shows its list to its local aggregator, and
// copies its bytes between its memory and the group's packed bytes when it is told to.
//
// Where its bytes are among the packed ones it finds by walking the group's runs beside its own list: nobody
// has to tell it, and every byte is copied once, by the rank it belongs to.
#pragma once

#include "collective/call_context.h"
#include "collective/memory_list.h"

namespace tailrace::collective {

class MemberPart {
  public:
    // `list` and `memory` must outlive the part; memory.bytes() is the sum of the list's.
    MemberPart(CallContext& context, const RequestList& list, const MemoryList& memory);

    // Tells the aggregator where the list is, unless it is this rank.
    Status start();
    Status handle(int source, const Word& word);
    bool done() const { return windows_left_ == 0; }

    // Copies this rank's bytes of the window between its memory and `packed`, the bytes of `runs`.
    void copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed);

    // The packed bytes of a window where they lie already, when this rank is a group of its own: its memory
    // for them, if that is one piece; else empty.
    std::span<std::byte> memory_of(const FileWindow& window) const;

    const RequestList& list() const { return list_; }

  private:
    uint64_t stream_begin(size_t request) const { return stream_begins_[request]; }

    CallContext& context_;
    const RequestList& list_;
    const MemoryList& memory_;
    std::vector<uint64_t> stream_begins_;  // of each request's bytes in the rank's stream
    uint64_t windows_left_ = 0;
};

}  // namespace tailrace::collective
