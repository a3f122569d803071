// MemoryList: a rank's data of one call, as one stream of bytes that lies in one or more pieces of
// memory.
//
// The stream's bytes belong to the rank's requests, one after the other. The memory is the caller's
// and must stay while the list exists. Pieces may lie anywhere and in any order. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tailrace::internal::collective {

class MemoryList {
  public:
    using Memory = std::span<std::byte>;

    MemoryList() = default;
    explicit MemoryList(std::vector<Memory> pieces) : pieces_(std::move(pieces)) {
        begins_.reserve(pieces_.size());
        for (const Memory& piece : pieces_) {
            begins_.push_back(bytes_);
            bytes_ += piece.size();
        }
    }

    uint64_t bytes() const { return bytes_; }

    // The stream's bytes [begin, begin + bytes) if they are contiguous in memory; else empty.
    Memory contiguous(uint64_t begin, uint64_t bytes) const {
        if (pieces_.empty()) return {};
        const size_t piece = piece_at(begin);
        const uint64_t within = begin - begins_[piece];
        if (within + bytes > pieces_[piece].size()) return {};
        return pieces_[piece].subspan(static_cast<size_t>(within), static_cast<size_t>(bytes));
    }

    // The contiguous bytes from `begin` to the end of a piece.
    Memory piece_from(uint64_t begin) const {
        const size_t piece = piece_at(begin);
        return pieces_[piece].subspan(static_cast<size_t>(begin - begins_[piece]));
    }

    // Copies between the stream, from `begin` on, and other memory.
    void copy_out(uint64_t begin, Memory target) const {
        for_each(begin, target.size(), [&](Memory memory, size_t at) {
            std::memcpy(target.data() + at, memory.data(), memory.size());
        });
    }
    void copy_in(uint64_t begin, std::span<const std::byte> source) const {
        for_each(begin, source.size(), [&](Memory memory, size_t at) {
            std::memcpy(memory.data(), source.data() + at, memory.size());
        });
    }

    // Calls use(memory, bytes before it) for the pieces of [begin, begin + bytes) in order.
    template <class Use>
    void for_each(uint64_t begin, uint64_t bytes, Use use) const {
        uint64_t done = 0;
        if (bytes == 0) return;
        for (size_t piece = piece_at(begin); done < bytes; ++piece) {
            const uint64_t within = begin + done - begins_[piece];
            const uint64_t part = std::min<uint64_t>(bytes - done, pieces_[piece].size() - within);
            if (part > 0)
                use(pieces_[piece].subspan(static_cast<size_t>(within), static_cast<size_t>(part)),
                    static_cast<size_t>(done));
            done += part;
        }
    }

  private:
    // The last piece that begins at `offset` or before. Calls usually go forwards, so the search
    // begins at the last answer.
    size_t piece_at(uint64_t offset) const {
        if (begins_.size() == 1) return 0;
        size_t first = begins_[last_] <= offset ? last_ : 0;
        if (first + 1 < begins_.size() && begins_[first + 1] <= offset) {
            first = static_cast<size_t>(std::upper_bound(begins_.begin() + static_cast<std::ptrdiff_t>(first),
                                                         begins_.end(), offset) -
                                        begins_.begin()) -
                    1;
        }
        return last_ = first;
    }

    std::vector<Memory> pieces_;
    std::vector<uint64_t> begins_;  // positions in the stream
    uint64_t bytes_ = 0;
    mutable size_t last_ = 0;
};

}  // namespace tailrace::internal::collective
