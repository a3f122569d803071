// Design notes
//
// Durability of new directories. make_directories syncs the parent of each directory that it makes,
// because a durable file in a directory that is lost would be lost too.
//
// Names. A file in the directories of FileRules::own_in is reached from its directory, which
// OwnDirectories has opened and checked. Every other file is reached by its path.
#include "storage/posix_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/log.h"
#include "base/units.h"
#include "storage/lock_owner.h"
#include "storage/own_directories.h"
#include "storage/parents_descriptor.h"
#include "storage/posix_file.h"
#include "storage/system_path.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr long tmpfs_magic = 0x01021994, ramfs_magic = static_cast<long>(0x858458f6);
// If a directory or file is made anew each time between our open and our lock, waiting does not help.
constexpr int most_lock_tries = 10;
constexpr mode_t usual_file_mode = 0666, sole_writer_mode = 0644, own_file_mode = 0600,
                 all_file_rights = 07777, permission_bits = 0777;

long file_system_magic(int descriptor) {
    struct statfs info {};
    return fstatfs(descriptor, &info) == 0 ? static_cast<long>(info.f_type) : 0;
}

bool is_in_memory(long magic) {
    return magic == tmpfs_magic || magic == ramfs_magic;
}

// Whether opening `path` leads to what is open here. errno is 0 if something else is there. `above`: the
// directory from which the path begins.
bool leads_to(const std::string& path, const Descriptor& open, int above = AT_FDCWD) {
    struct stat opened {
    }, found{};
    if (fstat(open.get(), &opened) != 0 || fstatat(above, path.c_str(), &found, 0) != 0) return false;
    errno = 0;
    return found.st_dev == opened.st_dev && found.st_ino == opened.st_ino;
}

class PosixDirectoryLock : public DirectoryLock {
  public:
    PosixDirectoryLock(Descriptor directory, std::string path)
        : locked_(std::move(directory)), path_(std::move(path)) {}
    bool still_in_place() const override { return leads_to(path_, locked_.descriptor()); }
    int descriptor() const override { return locked_.descriptor().get(); }

  private:
    const ParentsDescriptor locked_;
    const std::string path_;
};

class PosixNumberLock : public NumberLock {
  public:
    explicit PosixNumberLock(Descriptor file) : locked_(std::move(file)) {}

  private:
    const ParentsDescriptor locked_;
};

// "process 1234 on node7 holds it", or "another process holds it" if nothing is known.
std::string lock_owner_text(int directory) {
    const auto owner = lock_owner(directory);
    if (!owner) return "another process holds it";
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host = {"this machine"};
    if (owner->other_user)
        return fmt::format(
            "process {} of {} on {} holds it; every user who may read the directory can lock it, which "
            "chmod go-r prevents",
            owner->process, user_text(*owner->other_user), host.data());
    return fmt::format("process {} on {}{} holds it", owner->process, host.data(),
                       owner->process == getpid() ? " (this one)" : "");
}

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

// A file that is written: in a directory of our own it is closed to others, elsewhere it gets `rights`
// (0: it keeps those it has). On a file system that has no permissions of its own (FAT, CIFS with fixed
// ones), files have those that the program's would have had.
Status settle_rights(int descriptor, mode_t has, bool own, uint32_t rights, const std::string& path) {
    if (own) {
        if ((has & all_file_rights) == own_file_mode || fchmod(descriptor, own_file_mode) == 0) return {};
        return path_error(errno, "closing to others", path);
    }
    if (rights == 0 || (has & permission_bits) == rights || fchmod(descriptor, rights) == 0) return {};
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return path_error(errno, "giving the permissions of the program's files to", path);
    log(LogLevel::info, "the file system gives {} the permissions {:o}, and does not let them change", path,
        has & permission_bits);
    return {};
}

class PosixStorage : public Storage {
  public:
    PosixStorage(std::shared_ptr<TransferEngine> engine, const FileRules& rules)
        : engine_(std::move(engine)), follow_links_(rules.follow_links), own_(rules.own_in) {}

    std::string_view name() const override { return engine_->name(); }
    void use_memory(std::span<std::byte> region) override { engine_->use_memory(region); }
    void forget_memory() override { engine_->forget_memory(); }

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        static constexpr std::string_view doing_what[] = {"opening for reading", "opening for writing",
                                                          "creating", "opening for writing"};
        const std::string_view doing = doing_what[static_cast<int>(options.access)];
        TAILRACE_TRY(check_path(doing, path));
        TAILRACE_ASSIGN(const Place place, place_of(path));
        const bool writes = options.access != Access::read;
        const bool follow = !place.own() && !options.own && (follow_links_ || !writes);
        const int mode = (writes ? O_RDWR : O_RDONLY) | (follow ? 0 : O_NOFOLLOW);
        const auto open_place = [&](const std::string& name, int flags) {
            const mode_t usual = options.sole_writer ? sole_writer_mode : usual_file_mode;
            return open_descriptor(name, flags, place.above(), place.own() ? own_file_mode : usual);
        };
        const int create = options.access == Access::create_new ? O_CREAT | O_EXCL : 0;
        // O_NONBLOCK, because a pipe under that name must not block us.
        const int flags = mode | create | O_NONBLOCK;
        Descriptor plain = options.access == Access::write ? open_or_create(place.name, flags, open_place)
                                                           : open_place(place.name, flags);
        struct stat info {};
        if (!plain.valid()) {
            const int error = errno;
            if (error == ELOOP &&
                fstatat(place.above(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISLNK(info.st_mode))
                return not_believed(doing, path, "it is a symbolic link, which is not followed here");
            return path_error(error, doing, path);
        }
        if (fstat(plain.get(), &info) != 0) return path_error(errno, doing, path);
        if (!S_ISREG(info.st_mode)) {
            return Status(Code::invalid_argument,
                          fmt::format("{} '{}': it is {}, not a file", doing, path,
                                      S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
        }
        if (const auto why = why_not(place, options, info); !why.empty())
            return not_believed(doing, path, why);
        if (writes) TAILRACE_TRY(settle_rights(plain.get(), info.st_mode, place.own(), options.rights, path));
        (void)fcntl(plain.get(), F_SETFL, fcntl(plain.get(), F_GETFL) & ~O_NONBLOCK);

        const bool in_memory = is_in_memory(file_system_magic(plain.get()));
        const bool uncached =
            options.direct == DirectIo::uncached && !in_memory && engine_->can_go_uncached(plain.get());
        if (options.direct == DirectIo::uncached && !uncached)
            return unsupported(doing, path, "uncached", plain.get());
        Descriptor direct;
        if (options.direct != DirectIo::off && !uncached && !in_memory) {
            // The path may name another file by now, even a pipe. Direct I/O must not reach that one, nor
            // wait for it.
            direct = open_place(place.name, mode | O_DIRECT | O_NONBLOCK);
            struct stat again {};
            if (direct.valid() && (fstat(direct.get(), &again) != 0 || again.st_ino != info.st_ino ||
                                   again.st_dev != info.st_dev)) {
                direct = Descriptor();
            }
        }
        if (options.direct == DirectIo::on && !direct.valid())
            return unsupported(doing, path, "direct", plain.get());
        const Route route = uncached ? Route::uncached : direct.valid() ? Route::direct : Route::cached;
        return make_posix_file(engine_, path, std::move(plain), std::move(direct), options, route, in_memory);
    }

    Status rename(const std::string& from, const std::string& to) override {
        TAILRACE_TRY(check_path("renaming", from));
        TAILRACE_TRY(check_path("renaming", to));
        TAILRACE_ASSIGN(const Place source, place_of(from));
        TAILRACE_ASSIGN(const Place target, place_of(to));
        if (renameat(source.above(), source.name.c_str(), target.above(), target.name.c_str()) == 0)
            return Status();
        const int error = errno;
        return errno_status(error,
                            fmt::format("renaming '{}' to '{}'{}", from, to, directory_hint(to, error)));
    }

    Status remove(const std::string& path) override {
        TAILRACE_TRY(check_path("removing", path));
        TAILRACE_ASSIGN(const Place place, place_of(path));
        return unlinkat(place.above(), place.name.c_str(), 0) == 0 ? Status()
                                                                   : path_error(errno, "removing", path);
    }

    Status remove_directory(const std::string& path) override {
        TAILRACE_TRY(check_path("removing the directory", path));
        TAILRACE_ASSIGN(const Place place, place_of(path));
        return unlinkat(place.above(), place.name.c_str(), AT_REMOVEDIR) == 0
                   ? Status()
                   : path_error(errno, "removing the directory", path);
    }

    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        TAILRACE_TRY(check_path("listing", directory));
        TAILRACE_ASSIGN(Descriptor descriptor, open_directory("listing", directory));
        // Among directories of this user alone there must be no link.
        const int links = own_.is_base(directory) || own_.holds(directory) ? AT_SYMLINK_NOFOLLOW : 0;
        // fdopendir takes the descriptor over, so it gets a copy.
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
            const bool known = fstatat(descriptor.get(), found->d_name, &info, links) == 0;
            // An entry that is gone by now, or a link that leads nowhere, holds nothing. Any other
            // entry that cannot be examined exists, and must not be taken for missing.
            if (!known && errno == ENOENT) continue;
            DirectoryEntry entry;
            entry.name = entry_name;
            entry.is_directory = known ? S_ISDIR(info.st_mode) : found->d_type == DT_DIR;
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
        if (!own_.holds(path)) return make_directories(path, own_.is_base(path) ? 0700 : 0777);
        TAILRACE_TRY(make_directories(own_.base(), 0700));
        return own_.open(path, true).status();
    }

    Status make_own_directories(const std::string& path) override {
        TAILRACE_TRY(check_path("making the directory", path));
        return own_.holds(path) ? make_directories(path) : make_directories(path, 0700);
    }

    Status sync_directory(const std::string& path) override {
        TAILRACE_TRY(check_path("syncing the directory", path));
        TAILRACE_ASSIGN(Descriptor directory, open_directory("syncing the directory", path));
        return sync(directory, path);
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
        // Network file systems tell the size they prefer in one field or the other. Above 1 MiB it
        // would cost more space between extents than it gains.
        const auto wish =
            std::max<uint64_t>(static_cast<uint64_t>(system.f_bsize), static_cast<uint64_t>(info.st_blksize));
        space.block_bytes = std::bit_floor(std::clamp<uint64_t>(wish, direct_unit_bytes, MiB));
        space.free_bytes = static_cast<uint64_t>(volume.f_bavail) * volume.f_frsize;
        space.in_memory = is_in_memory(static_cast<long>(system.f_type));
        space.file_system = file_system_name(static_cast<long>(system.f_type));
        return space;
    }

    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        TAILRACE_TRY(check_path("locking the directory", path));
        for (int tries = 0; tries < most_lock_tries; ++tries) {
            TAILRACE_ASSIGN(Descriptor directory, locked_directory(path, kind));
            // The former holder may have removed the directory before it released the lock, and
            // another process may have made it anew. The locked directory must be the one that
            // others find under the name.
            if (leads_to(path, directory))
                return std::unique_ptr<DirectoryLock>(
                    std::make_unique<PosixDirectoryLock>(std::move(directory), path));
            if (errno != 0 && errno != ENOENT) return path_error(errno, "locking the directory", path);
        }
        return Status(Code::busy,
                      fmt::format("locking the directory '{}': it is replaced again and again", path));
    }

    Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number) override {
        const auto doing = fmt::format("locking number {} by '{}'", number, path);
        TAILRACE_TRY(check_path("locking by the file", path));
        for (int tries = 0; tries < most_lock_tries; ++tries) {
            TAILRACE_ASSIGN(const Place place, place_of(path));
            TAILRACE_ASSIGN(Descriptor file, locked_byte(place, number, doing));
            // As with directories: somebody may have removed the file before we had the lock.
            if (leads_to(place.name, file, place.above()))
                return std::unique_ptr<NumberLock>(std::make_unique<PosixNumberLock>(std::move(file)));
            if (errno != 0 && errno != ENOENT) return errno_status(errno, doing);
        }
        return Status(Code::busy, fmt::format("{}: it is replaced again and again", doing));
    }

  private:
    // Where a file is: a name in an open directory of this user alone, or a path.
    struct Place {
        std::shared_ptr<Descriptor> directory;
        std::string name;
        bool own() const { return directory != nullptr; }
        int above() const { return own() ? directory->get() : AT_FDCWD; }
    };
    Result<Place> place_of(const std::string& path) {
        const std::string directory = parent_of(path);
        if (!own_.holds(directory)) return Place{nullptr, path};
        TAILRACE_ASSIGN(auto opened, own_.open(directory, false));
        return Place{std::move(opened), path.substr(path.find_last_of('/') + 1)};
    }

    // Each caller gets a descriptor of its own, because a lock belongs to it.
    Result<Descriptor> open_directory(std::string_view doing, const std::string& path) {
        constexpr int flags = O_RDONLY | O_DIRECTORY;
        if (own_.is_base(path)) return own_.open_base(doing);
        std::shared_ptr<Descriptor> own;
        if (own_.holds(path)) {
            TAILRACE_ASSIGN(own, own_.open(path, false));
        }
        Descriptor directory = own ? open_descriptor(".", flags, own->get()) : open_descriptor(path, flags);
        if (!directory.valid()) return path_error(errno, doing, path);
        return directory;
    }

    // The reason not to use the file that was opened there. Empty if there is none.
    std::string why_not(const Place& place, const OpenOptions& options, const struct stat& info) const {
        if (place.own() || (options.own && options.sole_writer)) return why_no_private_file(info, geteuid());
        if (options.own) return why_no_own_file(info, geteuid());
        if (options.access == Access::read || follow_links_ || info.st_nlink <= 1) return "";
        return fmt::format("it has {} names (hard links), and data written to it would be in all of them",
                           info.st_nlink);
    }
    static Status not_believed(std::string_view doing, const std::string& path, std::string_view why) {
        return Status(Code::io_error,
                      fmt::format("{} '{}': {}; nothing of it was read or written", doing, path, why));
    }

    static Status make_directories(const std::string& path, mode_t mode) {
        if (mkdir(path.c_str(), mode) == 0) return sync_name_in(parent_of(path));
        int error = errno;
        if (error == ENOENT && parent_of(path) != path) {
            TAILRACE_TRY(make_directories(parent_of(path), mode));
            if (mkdir(path.c_str(), mode) == 0) return sync_name_in(parent_of(path));
            error = errno;
        }
        struct stat info {};
        // An existing directory will do, whatever mkdir says of it.
        if (stat(path.c_str(), &info) == 0) {
            if (S_ISDIR(info.st_mode)) return Status();
            return Status(Code::invalid_argument,
                          fmt::format("making the directory '{}': a file of that name is in the way", path));
        }
        return path_error(error, "making the directory", path);
    }

    // The number is the place of a byte, which need not exist, and the lock is one on that byte.
    static Result<Descriptor> locked_byte(const Place& place, uint64_t number, const std::string& doing) {
        Descriptor file = open_descriptor(place.name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK,
                                          place.above(), place.own() ? own_file_mode : usual_file_mode);
        if (!file.valid()) return errno_status(errno, doing);
        struct flock byte {};
        byte.l_type = F_WRLCK;
        byte.l_whence = SEEK_SET;
        byte.l_start = static_cast<off_t>(number);
        byte.l_len = 1;
        while (fcntl(file.get(), F_OFD_SETLK, &byte) != 0) {
            const int error = errno;
            if (error == EINTR) continue;
            if (error == EAGAIN || error == EACCES)
                return Status(Code::busy, fmt::format("{}: another process holds it", doing));
            if (error == ENOTSUP || error == ENOSYS || error == ENOLCK || error == EINVAL)
                return Status(Code::unsupported, fmt::format("{}: its file system has no such locks", doing));
            return errno_status(error, doing);
        }
        return file;
    }

    // not_found if it does not exist.
    Result<Descriptor> locked_directory(const std::string& path, LockKind kind) {
        TAILRACE_ASSIGN(Descriptor directory, open_directory("locking the directory", path));
        const int how = kind == LockKind::exclusive ? LOCK_EX : LOCK_SH;
        while (flock(directory.get(), how | LOCK_NB) != 0) {
            switch (errno) {
                case EINTR:
                    continue;
                case EWOULDBLOCK:
                    return Status(Code::busy, fmt::format("locking the directory '{}': {}", path,
                                                          lock_owner_text(directory.get())));
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
        return directory;
    }

    static Status unsupported(std::string_view doing, const std::string& path, std::string_view way,
                              int descriptor) {
        return Status(
            Code::unsupported,
            fmt::format("{} '{}' for {} I/O: its file system ({}){} does not offer it; set direct_io "
                        "to off or auto",
                        doing, path, way, file_system_name(file_system_magic(descriptor)),
                        way == "uncached" ? " or this kernel" : ""));
    }

    static Status sync(const Descriptor& directory, const std::string& path) {
        while (fsync(directory.get()) != 0) {
            if (errno == EINTR) continue;
            if (errno == EINVAL || errno == EBADF || errno == ENOTSUP) {
                // A file system that cannot do this keeps names in its own way. There is nothing
                // left to do.
                log(LogLevel::debug, "the file system of '{}' cannot sync a directory", path);
                return Status();
            }
            return path_error(errno, "syncing the directory", path);
        }
        return Status();
    }

    // A directory that may be written but not read cannot be synced. An entry made in it exists all
    // the same.
    static Status sync_name_in(const std::string& parent) {
        if (!may(parent, R_OK)) return Status();
        const Descriptor directory = open_descriptor(parent, O_RDONLY | O_DIRECTORY);
        if (!directory.valid()) return path_error(errno, "syncing the directory", parent);
        return sync(directory, parent);
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
    const bool follow_links_;
    OwnDirectories own_;
};

}  // namespace

std::shared_ptr<Storage> make_file_storage(std::shared_ptr<TransferEngine> engine, const FileRules& rules) {
    return std::make_shared<PosixStorage>(std::move(engine), rules);
}

std::shared_ptr<Storage> make_posix_storage(const FileRules& rules) {
    return make_file_storage(std::make_shared<PosixEngine>(), rules);
}

Result<std::unique_ptr<DirectoryLock>> adopt_lock(Descriptor directory, const std::string& path) {
    if (directory.valid() && leads_to(path, directory))
        return std::unique_ptr<DirectoryLock>(
            std::make_unique<PosixDirectoryLock>(std::move(directory), path));
    return Status(Code::invalid_argument,
                  fmt::format("taking over the lock of '{}': it is the lock of something else", path));
}

}  // namespace tailrace::internal
