#include "collective/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "base/units.h"
#include "storage/file_size_signal.h"

namespace tailrace::internal::collective {

namespace {

constexpr uint64_t page_bytes = 4096;

Result<std::span<std::byte>> map(int descriptor, uint64_t bytes, const std::string& attempted) {
    const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, kind, descriptor, 0);
    if (address == MAP_FAILED) return errno_status(errno, attempted);
    return std::span<std::byte>(static_cast<std::byte*>(address), static_cast<size_t>(bytes));
}

void unmap(std::span<std::byte> memory) {
    if (!memory.empty()) munmap(memory.data(), memory.size());
}

}  // namespace

bool SharedMemory::is_limited() {
    rlimit limit{};
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Result<SharedMemory> SharedMemory::create(uint64_t bytes) {
    static std::atomic<uint64_t> serial = 0;
    bytes = align_up(std::max<uint64_t>(bytes, 1), page_bytes);
    const std::string attempted = fmt::format("making {} bytes of memory to share with the node", bytes);
    SharedMemory shared;
    shared.descriptor_ = memfd_create("tailrace", MFD_CLOEXEC);
    if (shared.descriptor_ < 0) return errno_status(errno, attempted);
    // Beyond a limit on the sizes of files it is private memory, so that the program is not ended.
    const FileSizeSignalBlocked blocked;
    if (ftruncate(shared.descriptor_, static_cast<off_t>(bytes)) != 0) {
        if (errno != EFBIG) return errno_status(errno, attempted);
        close(std::exchange(shared.descriptor_, -1));
        TAILRACE_ASSIGN(shared.memory_, map(-1, bytes, attempted));
        return shared;
    }
    TAILRACE_ASSIGN(shared.memory_, map(shared.descriptor_, bytes, attempted));
    shared.name_ = {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(shared.descriptor_), bytes,
                    ++serial};
    return shared;
}

Status SharedMemory::ensure(uint64_t bytes, uint64_t spare) {
    if (memory_.size() >= bytes && !memory_.empty()) return Status();
    TAILRACE_ASSIGN(SharedMemory larger, create(bytes + spare));
    swap(larger);
    return Status();
}

SharedMemory::~SharedMemory() {
    unmap(memory_);
    if (descriptor_ >= 0) close(descriptor_);
}

void SharedMemory::swap(SharedMemory& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(memory_, other.memory_);
    std::swap(name_, other.name_);
}

Result<AttachedMemory> AttachedMemory::attach(const SharedName& name) {
    const std::string path = fmt::format("/proc/{}/fd/{}", name.process, name.descriptor);
    const std::string attempted =
        fmt::format("attaching to {} bytes of shared memory of process {}", name.bytes, name.process);
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return errno_status(errno, attempted);
    auto memory = map(descriptor, name.bytes, attempted);
    close(descriptor);
    TAILRACE_TRY(memory.status());
    AttachedMemory attached;
    attached.memory_ = *memory;
    attached.name_ = name;
    return attached;
}

AttachedMemory::~AttachedMemory() {
    unmap(memory_);
}

void AttachedMemory::swap(AttachedMemory& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(name_, other.name_);
}

Result<std::span<std::byte>> Attachments::at(int rank, int which, const SharedName& name) {
    AttachedMemory& place = attached_[{rank, which}];
    if (place.memory().empty() || place.name() != name) {
        TAILRACE_ASSIGN(place, AttachedMemory::attach(name));
    }
    return place.memory();
}

}  // namespace tailrace::internal::collective
