// Stream: a rank's requests, and where in its memory the bytes of each request are.
//
// The place of the bytes among the packed bytes of a group is found by walking the group's runs
// beside the rank's own list. So no message needs to tell it.
#pragma once

#include "requests/memory_list.h"
#include "requests/requests.h"

namespace tailrace::internal::collective {

class Stream {
  public:
    // Both must outlive the stream. memory.bytes() is the sum of the list's.
    Stream(const RequestList& list, const MemoryList& memory);

    const RequestList& list() const { return list_; }

    // Copies the bytes of the window from the memory to `packed`, the bytes of `runs`, or back.
    // transport if these are not the runs of a group that this list belongs to. Then some bytes may
    // have been copied.
    Status copy_out(const FileWindow& window, std::span<const Request> runs,
                    std::span<std::byte> packed) const;
    Status copy_in(const FileWindow& window, std::span<const Request> runs,
                   std::span<std::byte> packed) const;

    // The memory of the window's bytes if it is one piece in their order; else empty.
    std::span<std::byte> memory_of(const FileWindow& window) const;

  private:
    template <class Copy>
    Status for_each(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed,
                    Copy copy) const;

    const RequestList& list_;
    const MemoryList& memory_;
    std::vector<uint64_t> begins_;  // where each request's bytes begin in the memory
};

}  // namespace tailrace::internal::collective
