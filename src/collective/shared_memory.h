// SharedMemory: memory that the processes of a node share, for lists and data on their way through
// a local aggregator. One process makes it. Others attach to it by its SharedName, which fits into
// a message.
//
// It is an anonymous file in memory (memfd). It has no name in any file system, does not count
// against a limit of /dev/shm, and is freed with its last user, however that ends. Others reach it
// through /proc, which only works for processes of one user and one pid namespace; can_share()
// finds out.
//
// Pages take memory once they are touched. Messages of the transport decide who writes and reads
// when. A message that has arrived makes visible the memory that was written before it was posted.
// Not thread-safe.
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
    uint64_t serial = 0;  // distinguishes memories that had the same descriptor one after the other
    bool operator==(const SharedName&) const = default;
};
// Encodes it as a part of a message.
template <class Codec>
void fields(Codec& codec, SharedName& name) {
    codec(name.process, name.descriptor, name.bytes, name.serial);
}

// Memory of this process to which others may attach.
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

    // Whether the sizes of files are limited (RLIMIT_FSIZE). Shared memory counts as a file.
    static bool is_limited();

    // Makes at least `bytes` zeros. Beyond such a limit it is memory to which nobody can attach,
    // and its name has process 0. out_of_memory, or what the system says.
    static Result<SharedMemory> create(uint64_t bytes);

    // Keeps the memory if it is large enough. Otherwise makes a new one with `spare` bytes more.
    // Then the old content is lost, and a process that has attached to it keeps the old one until
    // it detaches.
    Status ensure(uint64_t bytes, uint64_t spare = 0);

    std::span<std::byte> memory() const { return memory_; }
    const SharedName& name() const { return name_; }

  private:
    void swap(SharedMemory& other) noexcept;

    int descriptor_ = -1;
    std::span<std::byte> memory_;
    SharedName name_;
};

// Memory of another process (or of this one, a second time): one mapping.
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

// Keeps attached memories by place: a peer's rank and which of its memories it is. A new name in a
// place replaces the memory that was attached there.
class Attachments {
  public:
    Result<std::span<std::byte>> at(int rank, int which, const SharedName& name);

  private:
    std::map<std::pair<int, int>, AttachedMemory> attached_;
};

}  // namespace tailrace::internal::collective
