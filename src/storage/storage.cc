// What all storages share, and the choice of the one for this machine.
#include "storage/storage.h"

#include <fmt/format.h>

#include <fstream>

#include "base/log.h"
#include "storage/posix_storage.h"
#if TAILRACE_HAVE_IO_URING
#include "storage/io_uring_storage.h"
#endif

namespace tailrace::internal {

Result<size_t> File::read_pieces(std::span<const Piece> targets, uint64_t offset) {
    size_t total = 0;
    for (const Piece& target : targets) {
        TAILRACE_ASSIGN(const size_t count, read_at(target, offset + total));
        total += count;
        if (count < target.size()) break;
    }
    return total;
}

Result<std::span<std::byte>> File::map(uint64_t bytes) {
    return Status(Code::unsupported, fmt::format("mapping {} bytes of '{}': the storage offers no mappings; "
                                                 "reading and writing work",
                                                 bytes, path()));
}

Result<View> File::view(uint64_t offset, uint64_t bytes) {
    return Status(Code::unsupported,
                  fmt::format("viewing {} bytes at offset {} of '{}': the storage offers no views; reading "
                              "works",
                              bytes, offset, path()));
}

Route File::read_route(uint64_t, uint64_t) const {
    return route();
}

void File::will_read(uint64_t, uint64_t) {}
void File::drop_cache() {}
Status Storage::make_own_directories(const std::string& path) {
    return make_directories(path);
}
Status Storage::remove_directory(const std::string& path) {
    return Status(Code::unsupported,
                  fmt::format("removing the directory '{}': the storage removes none", path));
}
Result<std::unique_ptr<NumberLock>> Storage::lock_number(const std::string& path, uint64_t number) {
    return Status(Code::unsupported,
                  fmt::format("locking number {} by '{}': the storage offers no such locks", number, path));
}
void Storage::use_memory(std::span<std::byte>) {}
void Storage::forget_memory() {}

uint32_t usual_file_rights() {
    // umask() tells only by changing it, which other threads would notice.
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (uint32_t mask = 0; word == "Umask:" && status >> std::oct >> mask) return 0666 & ~mask;
    return 0;
}

std::string join_path(const std::string& directory, const std::string& name) {
    if (directory.empty()) return name;
    if (directory.back() == '/') return directory + name;
    return directory + "/" + name;
}

Status remove_if_there(Storage& storage, const std::string& path) {
    Status removed = storage.remove(path);
    return removed.code() == Code::not_found ? Status() : removed;
}
Status reserve_if_possible(File& file, uint64_t offset, uint64_t bytes) {
    Status reserved = file.reserve(offset, bytes);
    return reserved.code() == Code::unsupported ? Status() : reserved;
}

Result<std::shared_ptr<Storage>> make_system_storage(const SystemStorageOptions& options) {
    if (options.engine == IoEngine::posix) return make_posix_storage(options.rules);
#if TAILRACE_HAVE_IO_URING
    auto storage = make_io_uring_storage(options.queue_depth, options.request_bytes, options.rules);
    if (storage.ok() || options.engine == IoEngine::io_uring) return storage;
    log(LogLevel::info, "files are accessed by plain system calls: {}", storage.status().message());
    return make_posix_storage(options.rules);
#else
    if (options.engine == IoEngine::io_uring) {
        return Status(Code::unsupported,
                      "this build of tailrace has no io_uring engine; choose posix or auto");
    }
    return make_posix_storage(options.rules);
#endif
}

}  // namespace tailrace::internal
