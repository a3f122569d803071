// A file of MemoryStorage: what its bytes are, what a power cut would leave of them, and the File through
// which they are read and written. Names and directories are memory_storage's.
//
// Every file is a MemoryInode with two contents: `current`, which calls see, and `durable`, which a crash
// goes back to; `pending` holds, in order, what lies between them. sync() carries pending over to durable;
// settle_crash() carries a random part of it over and makes that current.
//
// A mapping has no list of writes: from the first map() on, the mapped beginning of the file lives in one
// block of memory, sync() takes it over whole, and a crash page by page.
//
// Invariant: MemoryDisk::used_pages is the sum of charged_pages of all inodes that have a name or are open.
// Thread-safety: a File takes its disk's mutex in every call; whoever else touches an inode or a disk holds
// it already.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "doubles/memory_storage.h"
#include "storage/storage.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

inline constexpr uint64_t memory_page_bytes = 4096;

// The number of pages that so many bytes touch, from a page's beginning on.
constexpr uint64_t memory_pages_of(uint64_t bytes) {
    return (bytes + memory_page_bytes - 1) / memory_page_bytes;
}

// A file's bytes: pages that were written, and a length. The rest is zeros.
class SparseBytes {
  public:
    uint64_t size() const { return size_; }
    uint64_t page_count() const { return pages_.size(); }
    bool has_page(uint64_t page) const { return pages_.contains(page); }

    void set_size(uint64_t bytes);
    void write(std::span<const std::byte> source, uint64_t offset);
    // The bytes there are, up to the end of the file; their number.
    size_t read(std::span<std::byte> target, uint64_t offset) const;

    // Calls visit(page, offset in the page, offset in the range, count) for every page of a range.
    template <class Visit>
    static void for_each_page(uint64_t offset, size_t bytes, Visit visit) {
        for (size_t at = 0; at < bytes;) {
            const uint64_t in_page = (offset + at) % memory_page_bytes;
            const size_t count = std::min<size_t>(bytes - at, memory_page_bytes - in_page);
            visit((offset + at) / memory_page_bytes, in_page, at, count);
            at += count;
        }
    }

  private:
    std::map<uint64_t, std::vector<std::byte>> pages_;
    uint64_t size_ = 0;
};

// A change of a file's content that is not durable yet.
struct PendingChange {
    enum Kind { write, set_size, grow } kind = write;
    uint64_t offset = 0;           // set_size and grow: the length
    std::vector<std::byte> bytes;  // of a write
};

// The toss for one thing that a crash may keep or lose.
bool crash_keeps(std::mt19937_64& random);

struct MemoryInode {
    SparseBytes current, durable;
    std::vector<PendingChange> pending;
    uint64_t reserved_pages = 0;  // [0, reserved_pages) is paid for, written or not
    uint64_t charged_pages = 0;
    int names = 0;  // 0 or 1, as calls see it
    int opens = 0;
    std::shared_ptr<std::vector<std::byte>> mapped;  // the file's beginning, once it was mapped
    int mappings = 0;
    std::chrono::system_clock::time_point modified = time_of_day();

    // A power cut: what it leaves becomes current and durable. Ends all mappings and opens.
    void settle_crash(std::mt19937_64& random);
};

// What all files of one storage share.
struct MemoryDisk {
    MemoryStorageOptions options;
    // Over everything here, in derived classes and in the inodes. (The inodes' members are not annotated:
    // their mutex is another object's.)
    mutable Mutex mutex;
    uint64_t life GUARDED_BY(mutex) = 0;  // a File of an earlier life is dead
    uint64_t used_pages GUARDED_BY(mutex) = 0;

    uint64_t free_pages() const REQUIRES(mutex);
    // Takes pages for the file; false, and nothing is taken, when there are not as many.
    bool charge(MemoryInode& inode, uint64_t pages) REQUIRES(mutex);
    // Counts the file's pages anew: after it shrank, got its name back or lost its last user.
    void recharge(MemoryInode& inode) REQUIRES(mutex);
};

// An open file; the disk's mutex is held. The File keeps disk and inode alive.
std::unique_ptr<File> make_memory_file(std::shared_ptr<MemoryDisk> disk, std::shared_ptr<MemoryInode> inode,
                                       std::string path, bool writable);

}  // namespace tailrace::internal
