// TransferEngine: moves bytes between memory and an open descriptor. It is the only difference
// between a posix file and an io_uring file. Paths, direct I/O, locks and messages are in
// posix_storage.
//
// Data enters and leaves through the caller's memory, which is in use only while a call runs.
// Failures are errno values, because only the caller knows path and purpose. Any number of threads
// may call.
//
// Route::uncached needs a file for which can_go_uncached() is true. Route::direct needs a
// descriptor with O_DIRECT and multiples of direct_unit_bytes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "storage/storage.h"

namespace tailrace::internal {

// The alignment that direct I/O needs of memory, offset and length. No logical block of today's
// disks is larger.
inline constexpr size_t direct_unit_bytes = 4096;

// The result of a transfer: the first `bytes` were moved, then it met `error` (an errno value), or
// 0.
struct Moved {
    size_t bytes = 0;
    int error = 0;
};

// Whether a kernel's release, as uname() reports it ("6.18.44-1-amd64"), is at least major.minor.
bool release_at_least(const char* release, int major, int minor);

class TransferEngine {
  public:
    virtual ~TransferEngine() = default;

    // Reads adjacent bytes of the file, from `offset` on, into `targets` one after the other.
    // Retries short reads and interruptions. Stops without an error where the file ends and, on the
    // direct route, after a part that is not a multiple of direct_unit_bytes.
    virtual Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) = 0;

    // Like read, the other way. Moves everything, unless there is an error or, on the direct route,
    // such a part.
    virtual Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) = 0;

    // Makes data and size durable. Returns 0 or an errno value.
    virtual int sync(int descriptor) = 0;

    // Whether an open file can be read and written on the uncached route. Asks the kernel and
    // touches no data. False before Linux 6.16, because earlier implementations could drop pages
    // that had been written to again.
    virtual bool can_go_uncached(int descriptor);

    // Like Storage::use_memory and forget_memory.
    virtual void use_memory(std::span<std::byte>) {}
    virtual void forget_memory() {}

    virtual std::string_view name() const = 0;
};

// Uses plain system calls: preadv2, pwritev2, fdatasync.
class PosixEngine : public TransferEngine {
  public:
    Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) override;
    Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) override;
    int sync(int descriptor) override;
    std::string_view name() const override { return "posix"; }
};

}  // namespace tailrace::internal
