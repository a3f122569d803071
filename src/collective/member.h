// Member: what every rank does for its own requests. It copies its bytes between its memory and the
// group's packed bytes when its local aggregator tells it to. Every byte is copied once, by the
// rank it belongs to. Only the bytes of a small write are copied by the aggregator, from where the
// rank has laid them.
#pragma once

#include "collective/call_context.h"
#include "requests/stream.h"

namespace tailrace::internal::collective {

class Member {
  public:
    // `list` and `memory` must outlive the part. memory.bytes() is the sum of the list's.
    Member(CallContext& context, const RequestList& list, const MemoryList& memory);

    Status handle(int source, const CallMessage& message);
    bool done() const { return windows_left_ == 0; }

    // Copies this rank's bytes of the window between its memory and `packed`, the bytes of `runs`,
    // as Stream does.
    Status copy(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed);

    const Stream& stream() const { return stream_; }

  private:
    CallContext& context_;
    const Stream stream_;
    uint64_t windows_left_ = 0;  // for which the aggregator will send a message
};

}  // namespace tailrace::internal::collective
