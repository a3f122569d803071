// SharedMemory: memory that the processes of a node see together, for lists and data on their way through a
// local aggregator. One process makes it, others attach to it by its SharedName, which fits into a message.
//
// It is an anonymous file in memory (memfd): it has no name in any file system, counts against no limit of
// /dev/shm, and is gone with its last user, however that ends. Others reach it through /proc, which only
// works for processes of one user and one pid namespace; can_share() finds out.
//
// Pages take memory once touched. Who writes and who reads when is settled by messages of the transport; a
// message that has arrived makes the memory written before it was posted visible. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace tailrace::internal::collective {

struct SharedName {
    uint64_t process = 0;
    uint64_t descriptor = 0;
    uint64_t bytes = 0;
    uint64_t serial = 0;  // tells apart what had the same descriptor one after the other
    bool operator==(const SharedName&) const = default;
};
// As part of a message.
void put(ByteWriter& writer, const SharedName& name);
SharedName get_shared_name(ByteReader& reader);

// Memory of this process that others may attach to.
class SharedMemory {
  public:
    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept { swap(other); }
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        SharedMemory moved(std::move(other));
        swap(moved);
        return *this;
    }
    ~SharedMemory();

    // Is there a limit on the sizes of files (RLIMIT_FSIZE)? Shared memory counts as a file.
    static bool is_limited();

    // Zeros, at least `bytes` of them. Beyond such a limit it is memory that nobody can attach to: its name
    // has process 0. out_of_memory or what the system says.
    static Result<SharedMemory> create(uint64_t bytes);

    // Keeps what is there when it is large enough, else makes a new one with `spare` bytes more: the old
    // content is lost, and whoever has attached to it keeps the old one until it detaches.
    Status ensure(uint64_t bytes, uint64_t spare = 0);

    std::span<std::byte> memory() const { return memory_; }
    const SharedName& name() const { return name_; }

  private:
    void swap(SharedMemory& other) noexcept;

    int descriptor_ = -1;
    std::span<std::byte> memory_;
    SharedName name_;
};

// Memory of another process (or of this one, a second time). One mapping.
class AttachedMemory {
  public:
    AttachedMemory() = default;
    AttachedMemory(AttachedMemory&& other) noexcept { swap(other); }
    AttachedMemory& operator=(AttachedMemory&& other) noexcept {
        AttachedMemory moved(std::move(other));
        swap(moved);
        return *this;
    }
    ~AttachedMemory();

    static Result<AttachedMemory> attach(const SharedName& name);

    std::span<std::byte> memory() const { return memory_; }
    const SharedName& name() const { return name_; }

  private:
    void swap(AttachedMemory& other) noexcept;

    std::span<std::byte> memory_;
    SharedName name_;
};

// Keeps what is attached, by place: a peer's rank and which of its memories it is. A new name in a place
// replaces what was attached there.
class Attachments {
  public:
    Result<std::span<std::byte>> at(int rank, int which, const SharedName& name);

  private:
    std::map<std::pair<int, int>, AttachedMemory> attached_;
};

}  // namespace tailrace::internal::collective
