// BufferPool: all data memory of one node agent. It has a fixed number of equal, aligned buffers,
// made once.
//
// Invariants: at most count() buffers are out at any time. The destructor of a Buffer returns it to
// the pool. The memory is one mapping, so that an I/O engine can register it once (region()). Pages
// are touched only on first use, so a follower that never receives pays only for the buffers it
// sends from. The pool must outlive its buffers. All members may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class BufferPool;

// A buffer on loan from a pool: a movable handle that returns it on destruction. `used` is for the
// holder.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer moved(std::move(other));
        swap(moved);
        return *this;
    }
    ~Buffer();

    bool valid() const { return pool_ != nullptr; }
    std::span<std::byte> memory() const { return memory_; }

  private:
    friend class BufferPool;
    Buffer(BufferPool* pool, std::span<std::byte> memory) : pool_(pool), memory_(memory) {}
    void swap(Buffer& other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(memory_, other.memory_);
    }

    BufferPool* pool_ = nullptr;
    std::span<std::byte> memory_;
};

class BufferPool {
  public:
    // buffer_bytes must be a multiple of alignment, and alignment a power of two. out_of_memory if
    // the mapping cannot be made.
    static Result<std::unique_ptr<BufferPool>> create(size_t count, size_t buffer_bytes, size_t alignment,
                                                      bool huge_pages = true);
    // A hint, for buffers that will be used as a whole. The pool works without it.
    void use_huge_pages();
    ~BufferPool();
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;

    // A free buffer, or an invalid one if all are out.
    Buffer try_take();

    size_t count() const { return count_; }
    size_t buffer_bytes() const { return buffer_bytes_; }
    size_t free_count() const;
    // The greatest number of buffers that were out at once since the pool was made.
    size_t most_taken() const;
    std::span<std::byte> region() const { return region_; }

    // What all pools of this process have, and what of it is out.
    struct Usage {
        uint64_t pool_bytes = 0, taken_bytes = 0;
    };
    static Usage usage();

  private:
    friend class Buffer;
    BufferPool(size_t count, size_t buffer_bytes, std::span<std::byte> region);
    void give_back(std::span<std::byte> memory);

    const size_t count_;
    const size_t buffer_bytes_;
    const std::span<std::byte> region_;
    mutable Mutex mutex_;
    std::vector<std::byte*> free_ GUARDED_BY(mutex_);
    size_t most_taken_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tailrace::internal
