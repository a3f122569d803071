// Design notes
//
// Direct I/O. A file has a plain descriptor, and a second one with O_DIRECT if direct I/O is wanted
// and possible. The part of a transfer whose memory, offset and length are multiples of
// direct_unit_bytes goes through the second one. The rest, at most a head and a tail of less than a
// unit, goes through the first. The two never touch the same page, so the kernel's write-back and
// invalidation of the page cache keep them coherent. A file system may accept O_DIRECT at open and
// refuse it at the first transfer. Then `automatic` goes on without it, and `on` returns
// unsupported.
//
// Reading from the page cache. A large read around the cache has the rate of the disk, although its
// bytes may lie in memory. So a file that may choose (`automatic`, and unchanging) asks the kernel
// before each read. If all bytes are in the cache, it reads them through the plain descriptor. Both
// descriptors see the same bytes. A page that is dropped meanwhile only costs its transfer.
//
// Uncached. All transfers go through the plain descriptor, and the kernel drops their bytes from
// the page cache: after a read at once, after a write when they are on the disk. Nothing has to be
// aligned.
//
// Failed sync. The kernel reports a lost write once and then forgets it. So a file remembers it,
// and every later sync of the file fails as well.
#include "storage/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "storage/file_range.h"
#include "storage/page_cache.h"
#include "storage/posix_storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// The bytes [begin, end) of a transfer go around the page cache; what lies before and behind them
// goes through it.
struct DirectRange {
    size_t begin = 0, end = 0;
};
DirectRange direct_range(const void* memory, size_t bytes, uint64_t offset) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (address % direct_unit_bytes != offset % direct_unit_bytes) return {};
    const size_t begin = (direct_unit_bytes - offset % direct_unit_bytes) % direct_unit_bytes;
    if (begin >= bytes || bytes - begin < direct_unit_bytes) return {};
    return {begin, begin + (bytes - begin) / direct_unit_bytes * direct_unit_bytes};
}

uint64_t page_bytes() {
    static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

class PosixFile : public File {
  public:
    PosixFile(std::shared_ptr<TransferEngine> engine, std::string path, Descriptor plain, Descriptor direct,
              const OpenOptions& options, Route route, bool in_memory)
        : engine_(std::move(engine)),
          path_(std::move(path)),
          plain_(std::move(plain)),
          direct_(std::move(direct)),
          wish_(options.direct),
          prefers_cache_(options.unchanging && options.direct == DirectIo::automatic),
          in_memory_(in_memory),
          route_(route) {}

    ~PosixFile() override {
        if (Status status = close(); !status.ok()) log(LogLevel::warning, "{}", status.message());
    }

    const std::string& path() const override { return path_; }

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        return read_pieces(std::span<const Piece>(&target, 1), offset);
    }

    Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset) override {
        uint64_t wanted = 0;
        for (const Piece& target : targets) wanted += target.size();
        TAILRACE_TRY(check_range("reading", wanted, offset));
        size_t total = 0;
        const bool direct = read_route(offset, wanted) == Route::direct;
        for (const ReadRun& run : read_runs(targets, offset, direct)) {
            TAILRACE_ASSIGN(const size_t count, read_run(run, offset + total));
            total += count;
            if (count < run.bytes) break;  // the file ends here
        }
        return total;
    }

    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        TAILRACE_TRY(check_range("writing", source.size(), offset));
        DirectRange direct;
        if (route() == Route::direct) direct = direct_range(source.data(), source.size(), offset);
        // In ascending order, so that a growing file is written from front to back.
        TAILRACE_TRY(write_plain(source.first(direct.begin), offset));
        TAILRACE_TRY(
            write_direct(source.subspan(direct.begin, direct.end - direct.begin), offset + direct.begin));
        return write_plain(source.subspan(direct.end), offset + direct.end);
    }

    Status reserve(uint64_t offset, uint64_t bytes) override {
        TAILRACE_TRY(check_range("reserving", bytes, offset));
        if (bytes == 0) return Status();
        const int error = reserve_space(plain_.get(), offset, bytes);
        if (error == 0) return Status();
        return errno_status(error,
                            fmt::format("reserving {} bytes at offset {} of '{}'", bytes, offset, path_));
    }

    Status truncate(uint64_t bytes) override {
        TAILRACE_TRY(check_range("truncating to", bytes, 0));
        while (ftruncate(plain_.get(), static_cast<off_t>(bytes)) != 0) {
            const int error = errno;
            if (error == EINTR) continue;
            return errno_status(error, fmt::format("setting the length of '{}' to {} bytes", path_, bytes));
        }
        return Status();
    }

    Status sync() override {
        TAILRACE_TRY(check_range("syncing", 0, 0));
        int error = failed_sync_.load();
        if (error != 0) {
            return Status(Code::io_error,
                          fmt::format("syncing '{}': an earlier sync of it failed ({}), and data written "
                                      "before that may be lost",
                                      path_, std::strerror(error)));
        }
        error = engine_->sync(plain_.get());
        if (error == 0) return Status();
        failed_sync_.store(error);
        return errno_status(
            error, fmt::format("syncing '{}' (data written since the last sync may be lost)", path_));
    }

    Result<uint64_t> size() override {
        TAILRACE_TRY(check_range("asking the size of", 0, 0));
        struct stat info {};
        if (fstat(plain_.get(), &info) != 0) return path_error(errno, "asking the size of", path_);
        return static_cast<uint64_t>(info.st_size);
    }

    Result<std::span<std::byte>> map(uint64_t bytes) override {
        TAILRACE_TRY(check_range("mapping", bytes, 0));
        if (!in_memory_) {
            return Status(
                Code::unsupported,
                fmt::format("mapping {} bytes of '{}': only file systems in memory offer it", bytes, path_));
        }
        if (bytes == 0) return std::span<std::byte>();
        // Touching existing pages cannot fail. A hole would raise SIGBUS on a full disk.
        if (Status reserved = reserve(0, bytes); !reserved.ok()) return reserved.with_context("mapping");
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, plain_.get(), 0);
        if (memory == MAP_FAILED) {
            const int error = errno;
            return errno_status(error, fmt::format("mapping {} bytes of '{}'", bytes, path_));
        }
        std::span<std::byte> mapping(static_cast<std::byte*>(memory), bytes);
        MutexLock lock(mappings_mutex_);
        mappings_.push_back(mapping);
        return mapping;
    }

    Result<View> view(uint64_t offset, uint64_t bytes) override {
        TAILRACE_TRY(check_range("viewing", bytes, offset));
        const auto doing = [&] {
            return fmt::format("viewing {} bytes at offset {} of '{}'", bytes, offset, path_);
        };
        if (!in_memory_)
            return Status(Code::unsupported,
                          fmt::format("{}: only file systems in memory offer it", doing()));
        TAILRACE_ASSIGN(const uint64_t there, size());
        if (bytes > there || offset > there - bytes)
            return Status(Code::io_error, fmt::format("{}: it has only {} bytes", doing(), there));
        if (bytes == 0) return View();
        const uint64_t before = offset % page_bytes();  // a mapping begins at a page
        void* memory = mmap(nullptr, before + bytes, PROT_READ, MAP_SHARED, plain_.get(),
                            static_cast<off_t>(offset - before));
        if (memory == MAP_FAILED) {
            const int error = errno;
            return errno_status(error, doing());
        }
        std::shared_ptr<void> mapping(memory,
                                      [length = before + bytes](void* start) { munmap(start, length); });
        return View(std::move(mapping), static_cast<const std::byte*>(memory) + before);
    }

    Route route() const override { return route_.load(); }

    Route read_route(uint64_t offset, uint64_t bytes) const override {
        const bool may_choose = prefers_cache_ && route() == Route::direct;
        return may_choose && lies_in_page_cache(plain_.get(), offset, bytes) ? Route::cached : route();
    }

    void will_read(uint64_t offset, uint64_t bytes) override {
        if (route() != Route::cached) return;  // otherwise the bytes would come into the cache and stay
        (void)posix_fadvise(plain_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                            POSIX_FADV_WILLNEED);
    }
    void drop_cache() override { (void)posix_fadvise(plain_.get(), 0, 0, POSIX_FADV_DONTNEED); }

    Status close() override {
        {
            MutexLock lock(mappings_mutex_);
            for (std::span<std::byte> mapping : std::exchange(mappings_, {}))
                munmap(mapping.data(), mapping.size());
        }
        const int direct_error = direct_.close();
        const int plain_error = plain_.close();
        const int error = plain_error != 0 ? plain_error : direct_error;
        return error == 0 ? Status() : path_error(error, "closing", path_);
    }

  private:
    // Adjacent pieces that go through the same descriptor.
    struct ReadRun {
        bool direct = false;
        size_t bytes = 0;
        std::vector<iovec> pieces;
    };

    Status check_range(std::string_view doing, uint64_t bytes, uint64_t offset) const {
        if (!plain_.valid()) {
            return Status(Code::failed_state, fmt::format("{} '{}': it has been closed", doing, path_));
        }
        return check_file_range(doing, bytes, offset, path_);
    }

    std::vector<ReadRun> read_runs(std::span<const Piece> targets, uint64_t offset,
                                   bool may_go_direct) const {
        std::vector<ReadRun> runs;
        auto add = [&](std::span<std::byte> bytes, bool direct) {
            if (bytes.empty()) return;
            if (runs.empty() || runs.back().direct != direct) runs.push_back({direct, 0, {}});
            runs.back().bytes += bytes.size();
            runs.back().pieces.push_back({bytes.data(), bytes.size()});
        };
        for (const Piece& target : targets) {
            DirectRange direct;
            if (may_go_direct) direct = direct_range(target.data(), target.size(), offset);
            add(target.first(direct.begin), false);
            add(target.subspan(direct.begin, direct.end - direct.begin), true);
            add(target.subspan(direct.end), false);
            offset += target.size();
        }
        return runs;
    }

    Result<size_t> read_run(const ReadRun& run, uint64_t offset) {
        std::vector<iovec> rest = run.pieces;
        size_t done = 0;
        if (run.direct) {
            const Moved moved = engine_->read(direct_.get(), rest, offset, Route::direct);
            TAILRACE_TRY(judge_direct(moved, run.bytes, offset, "reading"));
            done = moved.bytes;
            if (done == run.bytes) return done;
            // The file ends within a unit, or direct I/O was refused: read the rest through the
            // plain descriptor.
            size_t skip = done;
            auto first = rest.begin();
            while (skip >= first->iov_len) skip -= (first++)->iov_len;
            first->iov_base = static_cast<char*>(first->iov_base) + skip;
            first->iov_len -= skip;
            rest.erase(rest.begin(), first);
        }
        const Moved moved = engine_->read(plain_.get(), rest, offset + done, plain_route());
        if (moved.error != 0) return transfer_error(moved, run.bytes - done, offset + done, "reading", "of");
        return done + moved.bytes;
    }

    // The route of bytes that go through the plain descriptor.
    Route plain_route() const { return route() == Route::uncached ? Route::uncached : Route::cached; }

    Status write_plain(std::span<const std::byte> source, uint64_t offset) {
        if (source.empty()) return Status();
        const Moved moved = engine_->write(plain_.get(), source, offset, plain_route());
        if (moved.error != 0) return transfer_error(moved, source.size(), offset, "writing", "to");
        return Status();
    }

    Status write_direct(std::span<const std::byte> source, uint64_t offset) {
        if (source.empty()) return Status();
        const Moved moved = engine_->write(direct_.get(), source, offset, Route::direct);
        TAILRACE_TRY(judge_direct(moved, source.size(), offset, "writing"));
        return write_plain(source.subspan(moved.bytes), offset + moved.bytes);
    }

    // Ok if the rest of a direct transfer (perhaps nothing) may go through the plain descriptor.
    Status judge_direct(const Moved& moved, size_t bytes, uint64_t offset, std::string_view doing) {
        if (moved.error == 0 || moved.bytes > 0) direct_worked_.store(true);
        if (moved.error == 0) return Status();
        if (moved.error != EINVAL && moved.error != EOPNOTSUPP) {
            return transfer_error(moved, bytes, offset, doing, doing == "reading" ? "of" : "to");
        }
        if (direct_worked_.load()) return Status();  // an exception, such as the end of a file
        if (wish_ == DirectIo::on) {
            return Status(
                Code::unsupported,
                fmt::format("{} {} bytes at offset {} of '{}': the file system refuses direct I/O; set "
                            "direct_io to off or auto",
                            doing, bytes, offset, path_));
        }
        if (route_.exchange(Route::cached) == Route::direct) {
            log(LogLevel::info, "'{}' is used without direct I/O: the file system refused it", path_);
        }
        return Status();
    }

    Status transfer_error(const Moved& moved, size_t bytes, uint64_t offset, std::string_view doing,
                          std::string_view preposition) const {
        return errno_status(moved.error, fmt::format("{} {} bytes at offset {} {} '{}' ({} were done)", doing,
                                                     bytes, offset, preposition, path_, moved.bytes));
    }

    const std::shared_ptr<TransferEngine> engine_;
    const std::string path_;
    Descriptor plain_, direct_;
    const DirectIo wish_;
    const bool prefers_cache_;  // reads what lies in the cache from there
    const bool in_memory_;
    std::atomic<Route> route_;  // the route of transfers that can take it
    std::atomic<bool> direct_worked_{false};
    std::atomic<int> failed_sync_{0};  // the errno value of the first sync that failed
    Mutex mappings_mutex_;
    std::vector<std::span<std::byte>> mappings_ GUARDED_BY(mappings_mutex_);
};

}  // namespace

std::unique_ptr<File> make_posix_file(std::shared_ptr<TransferEngine> engine, std::string path,
                                      Descriptor plain, Descriptor direct, const OpenOptions& options,
                                      Route route, bool in_memory) {
    return std::make_unique<PosixFile>(std::move(engine), std::move(path), std::move(plain),
                                       std::move(direct), options, route, in_memory);
}

}  // namespace tailrace::internal
