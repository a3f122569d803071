// Design notes
//
// Direct I/O. A file has a plain descriptor, and a second one with O_DIRECT where direct I/O is wanted and
// can be had. Of every transfer the part whose memory, offset and length are multiples of direct_unit_bytes
// goes through the second, the rest (at most a head and a tail of less than a unit) through the first. The
// two never touch the same page, so the kernel's write-back and invalidation of the page cache keep them
// coherent. A file system may accept O_DIRECT at open and refuse it at the first transfer: then `automatic`
// goes on without, and `on` says unsupported.
//
// Failed sync. The kernel reports a lost write once and then forgets it; so a file remembers, and every later
// sync of it fails as well.
//
// Durability of new directories. make_directories syncs the parent of each directory that it makes: a durable
// file in a directory that is lost would be lost too.
#include "storage/posix_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>

#include "base/log.h"
#include "base/units.h"

namespace tailrace {

namespace {

constexpr long tmpfs_magic = 0x01021994, ramfs_magic = static_cast<long>(0x858458f6);

// A descriptor that is closed when forgotten.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() { (void)close(); }

    bool valid() const { return number_ >= 0; }
    int get() const { return number_; }
    int close() {  // 0 or an errno value. Never retried: after EINTR Linux has closed it
        if (number_ < 0) return 0;
        return ::close(std::exchange(number_, -1)) == 0 || errno == EINTR ? 0 : errno;
    }

  private:
    int number_ = -1;
};

Descriptor open_descriptor(const std::string& path, int flags) {
    int number = -1;
    do {
        number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (number < 0 && errno == EINTR);
    return Descriptor(number);
}

std::string parent_of(const std::string& path) {
    size_t end = path.find_last_not_of('/');
    if (end == std::string::npos) return path.empty() ? "." : "/";
    const size_t slash = path.find_last_of('/', end);
    if (slash == std::string::npos) return ".";
    end = path.find_last_not_of('/', slash);
    return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

bool may(const std::string& directory, int mode) {
    return faccessat(AT_FDCWD, directory.c_str(), mode, AT_EACCESS) == 0;
}

// Says what about the directories above `path` explains an error, or nothing.
std::string directory_hint(const std::string& path, int error) {
    if (error != ENOENT && error != ENOTDIR && error != EACCES && error != EPERM && error != EROFS) return "";
    std::string directory = parent_of(path);
    struct stat info {};
    if (stat(directory.c_str(), &info) == 0) {
        if (!S_ISDIR(info.st_mode)) return fmt::format(" ('{}' is not a directory)", directory);
        if (!may(directory, W_OK | X_OK)) {
            return fmt::format(" (the directory '{}' may not be written by this user)", directory);
        }
        return "";
    }
    // Climb to the first directory that is there: the one below it is the trouble.
    while (true) {
        const std::string above = parent_of(directory);
        if (above == directory) return "";
        if (stat(above.c_str(), &info) == 0) {
            if (!S_ISDIR(info.st_mode)) return fmt::format(" ('{}' is not a directory)", above);
            if (!may(above, X_OK)) {
                return fmt::format(" (the directory '{}' may not be searched by this user)", above);
            }
            return fmt::format(" (the directory '{}' does not exist)", directory);
        }
        directory = above;
    }
}

Status path_error(int error, std::string_view doing, const std::string& path) {
    return errno_status(error, fmt::format("{} '{}'{}", doing, path, directory_hint(path, error)));
}

long file_system_magic(int descriptor) {
    struct statfs info {};
    return fstatfs(descriptor, &info) == 0 ? static_cast<long>(info.f_type) : 0;
}

bool is_in_memory(long magic) {
    return magic == tmpfs_magic || magic == ramfs_magic;
}

// A transfer's parts: [0, direct_begin) plain, [direct_begin, direct_end) direct, the rest plain.
struct DirectPart {
    size_t begin = 0, end = 0;
};
DirectPart direct_part(const void* memory, size_t bytes, uint64_t offset) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (address % direct_unit_bytes != offset % direct_unit_bytes) return {};
    const size_t begin = (direct_unit_bytes - offset % direct_unit_bytes) % direct_unit_bytes;
    if (begin >= bytes || bytes - begin < direct_unit_bytes) return {};
    return {begin, begin + (bytes - begin) / direct_unit_bytes * direct_unit_bytes};
}

// ---- file ---------------------------------------------------------------------------------------------

class PosixFile : public File {
  public:
    PosixFile(std::shared_ptr<TransferEngine> engine, std::string path, Descriptor plain, Descriptor direct,
              DirectIo wish, bool in_memory)
        : engine_(std::move(engine)),
          path_(std::move(path)),
          plain_(std::move(plain)),
          direct_(std::move(direct)),
          wish_(wish),
          in_memory_(in_memory),
          use_direct_(direct_.valid()) {}

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
        for (const ReadRun& run : read_runs(targets, offset)) {
            TAILRACE_ASSIGN(const size_t count, read_run(run, offset + total));
            total += count;
            if (count < run.bytes) break;  // the file ends here
        }
        return total;
    }

    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        TAILRACE_TRY(check_range("writing", source.size(), offset));
        DirectPart part;
        if (use_direct_.load()) part = direct_part(source.data(), source.size(), offset);
        // In ascending order, so that a growing file is written from front to back.
        TAILRACE_TRY(write_plain(source.first(part.begin), offset));
        TAILRACE_TRY(write_direct(source.subspan(part.begin, part.end - part.begin), offset + part.begin));
        return write_plain(source.subspan(part.end), offset + part.end);
    }

    Status reserve(uint64_t bytes) override {
        TAILRACE_TRY(check_range("reserving", bytes, 0));
        if (bytes == 0) return Status();
        // Linux's own call. The C library's posix_fallocate would write zeros where the file system cannot.
        while (fallocate(plain_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
            const int error = errno;
            if (error == EINTR) continue;
            return errno_status(error, fmt::format("reserving {} bytes for '{}'", bytes, path_));
        }
        return Status();
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
                          fmt::format("syncing '{}': an earlier sync of it failed ({}), and what was written "
                                      "before that may be lost",
                                      path_, std::strerror(error)));
        }
        error = engine_->sync(plain_.get());
        if (error == 0) return Status();
        failed_sync_.store(error);
        return errno_status(
            error, fmt::format("syncing '{}' (what was written since the last sync may be lost)", path_));
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
        // Pages that exist cannot fail when they are touched; a hole would raise SIGBUS on a full disk.
        if (Status reserved = reserve(bytes); !reserved.ok()) return reserved.with_context("mapping");
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, plain_.get(), 0);
        if (memory == MAP_FAILED) {
            const int error = errno;
            return errno_status(error, fmt::format("mapping {} bytes of '{}'", bytes, path_));
        }
        std::span<std::byte> mapping(static_cast<std::byte*>(memory), bytes);
        std::lock_guard lock(mappings_mutex_);
        mappings_.push_back(mapping);
        return mapping;
    }

    void will_read(uint64_t offset, uint64_t bytes) override {
        (void)posix_fadvise(plain_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                            POSIX_FADV_WILLNEED);
    }
    void drop_cache() override { (void)posix_fadvise(plain_.get(), 0, 0, POSIX_FADV_DONTNEED); }

    Status close() override {
        for (std::span<std::byte> mapping : std::exchange(mappings_, {})) {
            munmap(mapping.data(), mapping.size());
        }
        const int direct_error = direct_.close();
        const int plain_error = plain_.close();
        const int error = plain_error != 0 ? plain_error : direct_error;
        return error == 0 ? Status() : path_error(error, "closing", path_);
    }

  private:
    // Pieces next to each other that go through the same descriptor.
    struct ReadRun {
        bool direct = false;
        size_t bytes = 0;
        std::vector<iovec> pieces;
    };

    Status check_range(std::string_view doing, uint64_t bytes, uint64_t offset) const {
        if (!plain_.valid()) {
            return Status(Code::failed_state, fmt::format("{} '{}': it has been closed", doing, path_));
        }
        if (bytes > INT64_MAX || offset > INT64_MAX - bytes) {
            return Status(Code::invalid_argument,
                          fmt::format("{} {} bytes at offset {} of '{}': no file is that "
                                      "large",
                                      doing, bytes, offset, path_));
        }
        return Status();
    }

    std::vector<ReadRun> read_runs(std::span<const Piece> targets, uint64_t offset) const {
        std::vector<ReadRun> runs;
        auto add = [&](std::span<std::byte> bytes, bool direct) {
            if (bytes.empty()) return;
            if (runs.empty() || runs.back().direct != direct) runs.push_back({direct, 0, {}});
            runs.back().bytes += bytes.size();
            runs.back().pieces.push_back({bytes.data(), bytes.size()});
        };
        for (const Piece& target : targets) {
            DirectPart part;
            if (use_direct_.load()) part = direct_part(target.data(), target.size(), offset);
            add(target.first(part.begin), false);
            add(target.subspan(part.begin, part.end - part.begin), true);
            add(target.subspan(part.end), false);
            offset += target.size();
        }
        return runs;
    }

    Result<size_t> read_run(const ReadRun& run, uint64_t offset) {
        std::vector<iovec> rest = run.pieces;
        size_t done = 0;
        if (run.direct) {
            const Moved moved = engine_->read(direct_.get(), rest, offset, direct_unit_bytes);
            TAILRACE_TRY(judge_direct(moved, run.bytes, offset, "reading"));
            done = moved.bytes;
            if (done == run.bytes) return done;
            // Where the file ends within a unit, or direct I/O was refused: the rest the plain way.
            size_t skip = done;
            auto first = rest.begin();
            while (skip >= first->iov_len) skip -= (first++)->iov_len;
            first->iov_base = static_cast<char*>(first->iov_base) + skip;
            first->iov_len -= skip;
            rest.erase(rest.begin(), first);
        }
        const Moved moved = engine_->read(plain_.get(), rest, offset + done, 1);
        if (moved.error != 0) return transfer_error(moved, run.bytes - done, offset + done, "reading", "of");
        return done + moved.bytes;
    }

    Status write_plain(std::span<const std::byte> source, uint64_t offset) {
        if (source.empty()) return Status();
        const Moved moved = engine_->write(plain_.get(), source, offset, 1);
        if (moved.error != 0) return transfer_error(moved, source.size(), offset, "writing", "to");
        return Status();
    }

    Status write_direct(std::span<const std::byte> source, uint64_t offset) {
        if (source.empty()) return Status();
        const Moved moved = engine_->write(direct_.get(), source, offset, direct_unit_bytes);
        TAILRACE_TRY(judge_direct(moved, source.size(), offset, "writing"));
        return write_plain(source.subspan(moved.bytes), offset + moved.bytes);
    }

    // Ok when what is left of a direct transfer (perhaps nothing) may go the plain way.
    Status judge_direct(const Moved& moved, size_t bytes, uint64_t offset, std::string_view doing) {
        if (moved.error == 0 || moved.bytes > 0) direct_worked_.store(true);
        if (moved.error == 0) return Status();
        if (moved.error != EINVAL && moved.error != EOPNOTSUPP) {
            return transfer_error(moved, bytes, offset, doing, doing == "reading" ? "of" : "to");
        }
        if (direct_worked_.load()) return Status();  // an exception (the end of a file), not the rule
        if (wish_ == DirectIo::on) {
            return Status(
                Code::unsupported,
                fmt::format("{} {} bytes at offset {} of '{}': the file system refuses direct I/O; set "
                            "direct_io to off or auto",
                            doing, bytes, offset, path_));
        }
        if (use_direct_.exchange(false)) {
            log(LogLevel::info, "'{}' goes without direct I/O: the file system refused it", path_);
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
    const bool in_memory_;
    std::atomic<bool> use_direct_;
    std::atomic<bool> direct_worked_{false};
    std::atomic<int> failed_sync_{0};  // the errno value of the first sync that failed
    std::mutex mappings_mutex_;
    std::vector<std::span<std::byte>> mappings_;
};

// ---- storage ------------------------------------------------------------------------------------------

class PosixLock : public DirectoryLock {
  public:
    explicit PosixLock(Descriptor directory) : directory_(std::move(directory)) {}

  private:
    Descriptor directory_;  // flock's lock belongs to the open directory and goes when it is closed
};

std::string_view file_system_name(long magic) {
    struct Known {
        long magic;
        std::string_view name;
    };
    static constexpr std::array<Known, 20> known = {{{0xEF53, "ext4"},
                                                     {tmpfs_magic, "tmpfs"},
                                                     {ramfs_magic, "ramfs"},
                                                     {0x58465342, "xfs"},
                                                     {static_cast<long>(0x9123683E), "btrfs"},
                                                     {0x6969, "nfs"},
                                                     {0x65735546, "fuse"},
                                                     {0x794c7630, "overlay"},
                                                     {0x0BD00BD0, "lustre"},
                                                     {0x47504653, "gpfs"},
                                                     {0x19830326, "beegfs"},
                                                     {0x00C36400, "ceph"},
                                                     {0x20030528, "pvfs2"},
                                                     {0x2FC12FC1, "zfs"},
                                                     {static_cast<long>(0xF2F52010), "f2fs"},
                                                     {0x01021997, "9p"},
                                                     {static_cast<long>(0xFF534D42), "cifs"},
                                                     {static_cast<long>(0xFE534D42), "smb2"},
                                                     {0x4d44, "vfat"},
                                                     {static_cast<long>(0xCA451A4E), "bcachefs"}}};
    for (const Known& entry : known) {
        if (entry.magic == magic) return entry.name;
    }
    return "unknown";
}

class PosixStorage : public Storage {
  public:
    explicit PosixStorage(std::shared_ptr<TransferEngine> engine) : engine_(std::move(engine)) {}

    std::string_view name() const override { return engine_->name(); }
    void use_memory(std::span<std::byte> region) override { engine_->use_memory(region); }
    void forget_memory() override { engine_->forget_memory(); }

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        static constexpr std::string_view doing_what[] = {"opening for reading", "opening for writing",
                                                          "creating"};
        const std::string_view doing = doing_what[static_cast<int>(options.access)];
        TAILRACE_TRY(check_path(doing, path));
        const int mode = options.access == Access::read ? O_RDONLY : O_RDWR;
        const int create = options.access == Access::read    ? 0
                           : options.access == Access::write ? O_CREAT
                                                             : O_CREAT | O_EXCL;
        // O_NONBLOCK: a pipe that lies there must not hold us up.
        Descriptor plain = open_descriptor(path, mode | create | O_NONBLOCK);
        if (!plain.valid()) return path_error(errno, doing, path);
        struct stat info {};
        if (fstat(plain.get(), &info) != 0) return path_error(errno, doing, path);
        if (!S_ISREG(info.st_mode)) {
            return Status(Code::invalid_argument,
                          fmt::format("{} '{}': it is {}, not a file", doing, path,
                                      S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
        }
        (void)fcntl(plain.get(), F_SETFL, fcntl(plain.get(), F_GETFL) & ~O_NONBLOCK);

        const bool in_memory = is_in_memory(file_system_magic(plain.get()));
        Descriptor direct;
        if (options.direct != DirectIo::off && !in_memory) {
            direct = open_descriptor(path, mode | O_DIRECT);
            // Should the path name another file by now, direct I/O must not reach it.
            struct stat again {};
            if (direct.valid() && (fstat(direct.get(), &again) != 0 || again.st_ino != info.st_ino ||
                                   again.st_dev != info.st_dev)) {
                direct = Descriptor();
            }
        }
        if (options.direct == DirectIo::on && !direct.valid()) {
            return Status(Code::unsupported,
                          fmt::format("{} '{}' for direct I/O: its file system ({}) does not offer it; set "
                                      "direct_io to off or auto",
                                      doing, path, file_system_name(file_system_magic(plain.get()))));
        }
        return std::unique_ptr<File>(std::make_unique<PosixFile>(
            engine_, path, std::move(plain), std::move(direct), options.direct, in_memory));
    }

    Status rename(const std::string& from, const std::string& to) override {
        TAILRACE_TRY(check_path("renaming", from));
        TAILRACE_TRY(check_path("renaming", to));
        if (::rename(from.c_str(), to.c_str()) == 0) return Status();
        const int error = errno;
        return errno_status(error,
                            fmt::format("renaming '{}' to '{}'{}", from, to, directory_hint(to, error)));
    }

    Status remove(const std::string& path) override {
        TAILRACE_TRY(check_path("removing", path));
        return unlink(path.c_str()) == 0 ? Status() : path_error(errno, "removing", path);
    }

    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        TAILRACE_TRY(check_path("listing", directory));
        Descriptor descriptor = open_descriptor(directory, O_RDONLY | O_DIRECTORY);
        if (!descriptor.valid()) return path_error(errno, "listing", directory);
        // fdopendir takes the descriptor over, so it gets one of its own.
        const int own = fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0);
        std::unique_ptr<DIR, int (*)(DIR*)> stream(own < 0 ? nullptr : fdopendir(own), closedir);
        if (!stream) {
            const int error = errno;
            if (own >= 0) ::close(own);
            return path_error(error, "listing", directory);
        }
        std::vector<DirectoryEntry> entries;
        while (true) {
            errno = 0;
            const dirent* found = readdir(stream.get());
            if (found == nullptr) {
                if (errno != 0) return path_error(errno, "listing", directory);
                break;
            }
            const std::string_view entry_name(found->d_name);
            if (entry_name == "." || entry_name == "..") continue;
            struct stat info {};
            // What is gone by now, or a link that leads nowhere, holds nothing.
            if (fstatat(descriptor.get(), found->d_name, &info, 0) != 0) continue;
            DirectoryEntry entry;
            entry.name = entry_name;
            entry.is_directory = S_ISDIR(info.st_mode);
            entry.bytes = entry.is_directory ? 0 : static_cast<uint64_t>(info.st_size);
            entry.modified = std::chrono::system_clock::time_point(
                std::chrono::seconds(info.st_mtim.tv_sec) +
                std::chrono::duration_cast<std::chrono::system_clock::duration>(
                    std::chrono::nanoseconds(info.st_mtim.tv_nsec)));
            entries.push_back(std::move(entry));
        }
        std::sort(entries.begin(), entries.end(),
                  [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
        return entries;
    }

    Status make_directories(const std::string& path) override {
        TAILRACE_TRY(check_path("making the directory", path));
        if (mkdir(path.c_str(), 0777) == 0) return sync_name_in(parent_of(path));
        int error = errno;
        if (error == ENOENT && parent_of(path) != path) {
            TAILRACE_TRY(make_directories(parent_of(path)));
            if (mkdir(path.c_str(), 0777) == 0) return sync_name_in(parent_of(path));
            error = errno;
        }
        struct stat info {};
        if (stat(path.c_str(), &info) ==
            0) {  // whatever mkdir says of a directory that is there: it is there
            if (S_ISDIR(info.st_mode)) return Status();
            return Status(Code::invalid_argument,
                          fmt::format("making the directory '{}': a file of that name is in the way", path));
        }
        return path_error(error, "making the directory", path);
    }

    Status sync_directory(const std::string& path) override {
        TAILRACE_TRY(check_path("syncing the directory", path));
        Descriptor directory = open_descriptor(path, O_RDONLY | O_DIRECTORY);
        if (!directory.valid()) return path_error(errno, "syncing the directory", path);
        while (fsync(directory.get()) != 0) {
            if (errno == EINTR) continue;
            if (errno == EINVAL || errno == EBADF || errno == ENOTSUP) {
                // A file system without it keeps names in its own way: nothing is left to be done here.
                log(LogLevel::debug, "the file system of '{}' cannot sync a directory", path);
                return Status();
            }
            return path_error(errno, "syncing the directory", path);
        }
        return Status();
    }

    Result<SpaceInfo> space(const std::string& path) override {
        TAILRACE_TRY(check_path("asking for the space of", path));
        struct statfs system {};
        struct statvfs volume {};
        struct stat info {};
        if (statfs(path.c_str(), &system) != 0 || statvfs(path.c_str(), &volume) != 0 ||
            stat(path.c_str(), &info) != 0) {
            return path_error(errno, "asking for the space of", path);
        }
        SpaceInfo space;
        // Network file systems name their wish in one place or the other; beyond 1 MiB it would cost more
        // room between extents than it gains.
        const auto wish =
            std::max<uint64_t>(static_cast<uint64_t>(system.f_bsize), static_cast<uint64_t>(info.st_blksize));
        space.block_bytes = std::bit_floor(std::clamp<uint64_t>(wish, direct_unit_bytes, MiB));
        space.free_bytes = static_cast<uint64_t>(volume.f_bavail) * volume.f_frsize;
        space.in_memory = is_in_memory(static_cast<long>(system.f_type));
        space.file_system = file_system_name(static_cast<long>(system.f_type));
        return space;
    }

    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path) override {
        TAILRACE_TRY(check_path("locking the directory", path));
        Descriptor directory = open_descriptor(path, O_RDONLY | O_DIRECTORY);
        if (!directory.valid()) return path_error(errno, "locking the directory", path);
        while (flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
            switch (errno) {
                case EINTR:
                    continue;
                case EWOULDBLOCK:
                    return Status(Code::busy,
                                  fmt::format("locking the directory '{}': another holds it", path));
                case ENOTSUP:
                case ENOSYS:
                case EBADF:
                case ENOLCK:
                case EINVAL:
                    return Status(Code::unsupported,
                                  fmt::format("locking the directory '{}': its file system has no locks for "
                                              "directories",
                                              path));
                default:
                    return path_error(errno, "locking the directory", path);
            }
        }
        return std::unique_ptr<DirectoryLock>(std::make_unique<PosixLock>(std::move(directory)));
    }

  private:
    // A directory that may be written but not read cannot be synced; what was made in it is there all the
    // same.
    Status sync_name_in(const std::string& parent) {
        return may(parent, R_OK) ? sync_directory(parent) : Status();
    }

    // The system would silently stop at a NUL and work on another path.
    static Status check_path(std::string_view doing, const std::string& path) {
        if (path.empty())
            return Status(Code::invalid_argument, fmt::format("{} '': the path is empty", doing));
        if (path.find('\0') != std::string::npos) {
            return Status(Code::invalid_argument,
                          fmt::format("{} '{}': the path holds a NUL character", doing, path.c_str()));
        }
        return Status();
    }

    const std::shared_ptr<TransferEngine> engine_;
};

}  // namespace

std::shared_ptr<Storage> make_file_storage(std::shared_ptr<TransferEngine> engine) {
    return std::make_shared<PosixStorage>(std::move(engine));
}

std::shared_ptr<Storage> make_posix_storage() {
    return make_file_storage(std::make_shared<PosixEngine>());
}

}  // namespace tailrace
