// TransferEngine: moves bytes between memory and an open descriptor. What a posix file and an io_uring file
// do differently, and nothing else: paths, direct I/O, locks and messages are in posix_storage.
//
// Data enters and leaves through the caller's memory, which is in use only while a call runs. Failures are
// errno values, because only the caller knows path and purpose. Any number of threads may call.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace tailrace {

// What a transfer came to: the first `bytes` were moved, then it met `error` (an errno value), or 0.
struct Moved {
    size_t bytes = 0;
    int error = 0;
};

class TransferEngine {
  public:
    virtual ~TransferEngine() = default;

    // Adjacent bytes of the file, from `offset` on, into `targets` one after the other; retries short reads
    // and interruptions. Stops without an error where the file ends and, since an O_DIRECT descriptor takes
    // multiples of `unit` only, after a part that is none.
    virtual Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, size_t unit) = 0;

    // As read, the other way. Moves everything, but for an error or a part that is no multiple of `unit`.
    virtual Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, size_t unit) = 0;

    // Makes data and size durable; 0 or an errno value.
    virtual int sync(int descriptor) = 0;

    // As Storage::use_memory and forget_memory.
    virtual void use_memory(std::span<std::byte>) {}
    virtual void forget_memory() {}

    virtual std::string_view name() const = 0;
};

// Plain system calls: preadv, pwrite, fdatasync.
class PosixEngine : public TransferEngine {
  public:
    Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, size_t unit) override;
    Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, size_t unit) override;
    int sync(int descriptor) override;
    std::string_view name() const override { return "posix"; }
};

}  // namespace tailrace
