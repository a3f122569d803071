// TransferEngine: moves bytes between memory and an open descriptor. What a posix file and an io_uring file
// do differently, and nothing else: paths, direct I/O, locks and messages are in posix_storage.
//
// Data enters and leaves through the caller's memory, which is in use only while a call runs. Failures are
// errno values, because only the caller knows path and purpose. Any number of threads may call.
//
// Route::uncached needs a file that can_go_uncached(), Route::direct a descriptor with O_DIRECT and multiples
// of direct_unit_bytes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "storage/storage.h"

namespace tailrace::internal {

// What direct I/O asks of memory, offset and length: no logical block of today's disks is larger.
inline constexpr size_t direct_unit_bytes = 4096;

// What a transfer came to: the first `bytes` were moved, then it met `error` (an errno value), or 0.
struct Moved {
    size_t bytes = 0;
    int error = 0;
};

// Whether a kernel's release, as uname() tells it ("6.18.44-1-amd64"), is at least major.minor.
bool release_at_least(const char* release, int major, int minor);

class TransferEngine {
  public:
    virtual ~TransferEngine() = default;

    // Adjacent bytes of the file, from `offset` on, into `targets` one after the other; retries short reads
    // and interruptions. Stops without an error where the file ends and, on the direct route, after a part
    // that is no multiple of direct_unit_bytes.
    virtual Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) = 0;

    // As read, the other way. Moves everything, but for an error or, on the direct route, such a part.
    virtual Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) = 0;

    // Makes data and size durable; 0 or an errno value.
    virtual int sync(int descriptor) = 0;

    // Whether an open file can be read and written on the uncached route: asks the kernel, touches no data.
    // Never before Linux 6.16: what offered it before could drop pages that had been written to again.
    virtual bool can_go_uncached(int descriptor);

    // As Storage::use_memory and forget_memory.
    virtual void use_memory(std::span<std::byte>) {}
    virtual void forget_memory() {}

    virtual std::string_view name() const = 0;
};

// Plain system calls: preadv2, pwritev2, fdatasync.
class PosixEngine : public TransferEngine {
  public:
    Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) override;
    Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) override;
    int sync(int descriptor) override;
    std::string_view name() const override { return "posix"; }
};

}  // namespace tailrace::internal
