// Member: what every rank does for its own requests: it copies its bytes between its memory and the
// group's packed bytes when its local aggregator says so. Every byte is copied once, by the rank it belongs
// to; only those of a small write are copied by the aggregator from where the rank has laid them.
#pragma once

#include "collective/call_context.h"
#include "requests/stream.h"

namespace tailrace::internal::collective {

class Member {
  public:
    // `list` and `memory` must outlive the part; memory.bytes() is the sum of the list's.
    Member(CallContext& context, const RequestList& list, const MemoryList& memory);

    Status handle(int source, const CallMessage& message);
    bool done() const { return windows_left_ == 0; }

    // Copies this rank's bytes of the window between its memory and `packed`, the bytes of `runs`.
    // As Stream's.
    Status copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed);

    const Stream& stream() const { return stream_; }

  private:
    CallContext& context_;
    const Stream stream_;
    uint64_t windows_left_ = 0;  // of which the aggregator will have a message
};

}  // namespace tailrace::internal::collective
