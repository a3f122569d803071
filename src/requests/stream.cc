#include "requests/stream.h"

#include <fmt/format.h>

namespace tailrace::internal::collective {

Stream::Stream(const RequestList& list, const MemoryList& memory) : list_(list), memory_(memory) {
    begins_.reserve(list.all().size());
    uint64_t begin = 0;
    for (const Request& request : list.all()) {
        begins_.push_back(begin);
        begin += request.bytes;
    }
}

template <class Copy>
Status Stream::for_each(const FileWindow& window, std::span<const Request> runs, std::span<std::byte> packed,
                        Copy copy) const {
    const std::span<const Request> all = list_.all();
    const RequestList::Range range = list_.within(window);
    RunWalk walk(runs);
    for (size_t i = range.first; i < range.last; ++i) {
        const Request part = clip(all[i], window);
        if (part.bytes == 0) continue;
        const std::optional<uint64_t> place = walk.place(part);
        if (!place || *place > packed.size() || part.bytes > packed.size() - *place)
            return Status(Code::transport,
                          fmt::format("a group's packed data of a collective call have no room for the {} "
                                      "bytes at {} of one of its ranks",
                                      part.bytes, part.offset));
        copy(begins_[i] + (part.offset - all[i].offset),
             packed.subspan(static_cast<size_t>(*place), static_cast<size_t>(part.bytes)));
    }
    return Status();
}

Status Stream::copy_out(const FileWindow& window, std::span<const Request> runs,
                        std::span<std::byte> packed) const {
    return for_each(window, runs, packed,
                    [&](uint64_t begin, std::span<std::byte> place) { memory_.copy_out(begin, place); });
}

Status Stream::copy_in(const FileWindow& window, std::span<const Request> runs,
                       std::span<std::byte> packed) const {
    return for_each(window, runs, packed,
                    [&](uint64_t begin, std::span<std::byte> place) { memory_.copy_in(begin, place); });
}

std::span<std::byte> Stream::memory_of(const FileWindow& window) const {
    if (list_.overlapping()) return {};
    const RequestList::Range range = list_.within(window);
    if (range.first == range.last) return {};
    const std::span<const Request> all = list_.all();
    const Request first = clip(all[range.first], window), last = clip(all[range.last - 1], window);
    const uint64_t begin = begins_[range.first] + (first.offset - all[range.first].offset);
    const uint64_t end = begins_[range.last - 1] + (last.end() - all[range.last - 1].offset);
    return memory_.contiguous(begin, end - begin);
}

}  // namespace tailrace::internal::collective
