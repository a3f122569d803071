#include "memory/buffer_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>

#include "base/invariant.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

std::atomic<uint64_t> all_pool_bytes{0}, all_taken_bytes{0};

}  // namespace

Buffer::~Buffer() {
    if (pool_ != nullptr) pool_->give_back(memory_);
}

Result<std::unique_ptr<BufferPool>> BufferPool::create(size_t count, size_t buffer_bytes, size_t alignment,
                                                       bool huge_pages) {
    // A mapping is aligned to a page at least, and direct I/O needs no more.
    if (count == 0 || buffer_bytes == 0 || !std::has_single_bit(alignment) || buffer_bytes % alignment != 0 ||
        buffer_bytes % 4096 != 0) {
        return Status(Code::invalid_argument,
                      fmt::format("a pool of {} buffers of {} bytes aligned to {} cannot be made: the size "
                                  "must be a positive multiple of 4096 and of the alignment",
                                  count, buffer_bytes, alignment));
    }
    if (buffer_bytes > SIZE_MAX / count) {
        return Status(Code::invalid_argument,
                      fmt::format("{} buffers of {} bytes exceed the address space", count, buffer_bytes));
    }
    void* mapping = mmap(nullptr, count * buffer_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        return Status(Code::out_of_memory,
                      fmt::format("mapping {} buffers of {} bytes failed", count, buffer_bytes));
    }
    std::span<std::byte> region(static_cast<std::byte*>(mapping), count * buffer_bytes);
    std::unique_ptr<BufferPool> pool(new BufferPool(count, buffer_bytes, region));
    if (huge_pages) pool->use_huge_pages();
    return pool;
}

void BufferPool::use_huge_pages() {
    (void)madvise(region_.data(), region_.size(), MADV_HUGEPAGE);
}

BufferPool::BufferPool(size_t count, size_t buffer_bytes, std::span<std::byte> region)
    : count_(count), buffer_bytes_(buffer_bytes), region_(region) {
    free_.reserve(count);
    // Last in, first out: the warmest buffer is used again first, and cold ones stay untouched.
    for (size_t i = count; i > 0; --i) free_.push_back(region.data() + (i - 1) * buffer_bytes);
    all_pool_bytes.fetch_add(region.size(), std::memory_order_relaxed);
}

BufferPool::~BufferPool() {
    // What somebody still holds stays mapped.
    if (!INVARIANT_HOLDS(free_.size() == count_)) return;
    munmap(region_.data(), region_.size());
    all_pool_bytes.fetch_sub(region_.size(), std::memory_order_relaxed);
}

BufferPool::Usage BufferPool::usage() {
    return {all_pool_bytes.load(std::memory_order_relaxed), all_taken_bytes.load(std::memory_order_relaxed)};
}

Buffer BufferPool::try_take() {
    MutexLock lock(mutex_);
    INVARIANT(free_.size() <= count_);
    if (free_.empty()) return Buffer();
    std::byte* memory = free_.back();
    free_.pop_back();
    most_taken_ = std::max(most_taken_, count_ - free_.size());
    all_taken_bytes.fetch_add(buffer_bytes_, std::memory_order_relaxed);
    return Buffer(this, std::span<std::byte>(memory, buffer_bytes_));
}

size_t BufferPool::free_count() const {
    MutexLock lock(mutex_);
    return free_.size();
}

size_t BufferPool::most_taken() const {
    MutexLock lock(mutex_);
    return most_taken_;
}

void BufferPool::give_back(std::span<std::byte> memory) {
    MutexLock lock(mutex_);
    if (!INVARIANT_HOLDS(free_.size() < count_)) return;
    free_.push_back(memory.data());
    all_taken_bytes.fetch_sub(buffer_bytes_, std::memory_order_relaxed);
}

}  // namespace tailrace::internal
