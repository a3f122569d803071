// Storage: the files of one file system as tailrace needs them. One interface, several backends,
// and one conformance suite (tests/storage/) that every backend runs.
//
// Backends: posix (plain system calls, optional direct I/O) and io_uring (deep queues, registered
// buffers). Tests have two more (tests/doubles): one in memory that knows what was synced, and one
// that fails by a seed. Paths are any bytes without NUL, and are taken as they are.
//
// Thread-safety: any number of threads may use a Storage. Several threads may run a File's read_at,
// write_at, reserve and sync at once; close() may run only when nothing else does.
//
// Errors: every failure names the operation and the path, and offset and length where they exist.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailrace::internal {

enum class Access {
    read,        // must exist
    write,       // read and write; created if missing, kept if it exists
    create_new,  // read and write; already_exists if it exists
    existing,    // read and write; must exist
};

// What a file's data have to do with the page cache:
//   off        they stay in it
//   on         they go around it, by O_DIRECT; callers need not align, because a backend sends unaligned
//              heads and tails through the cache
//   automatic  as `on` if the file system can do that, else as `off`
//   uncached   they pass through it and leave it at once (RWF_DONTCACHE of Linux 6.16 and later)
// `on` and `uncached` are unsupported if the file system cannot do that.
enum class DirectIo { off, automatic, on, uncached };

// How bytes travel. cached: through the page cache, where they stay. uncached: through it, and out
// of it as soon as they have arrived. direct: around it.
enum class Route { cached, uncached, direct };

struct OpenOptions {
    Access access = Access::read;
    DirectIo direct = DirectIo::off;
    // Refuses another user's file, and a file that has another name as well. Storages without users
    // open both.
    bool own = false;
    // Nobody on any node writes the file any more. Then this node's page cache is as good as the
    // file, and `automatic` reads from there. (For files that do change, a network file system's
    // cache may be out of date, so `automatic` reads them around it.)
    bool unchanging = false;
    // With `own`: refuses a file that others than its owner may write to as well, and makes none.
    bool sole_writer = false;
    // The permission bits of a file that is written, whatever this process's umask is. 0: those that
    // the umask leaves. Storages without users, and node-local directories, have no choice.
    uint32_t rights = 0;
};

// The permission bits that this process's umask leaves to a new file. 0 if the system does not say.
uint32_t usual_file_rights();

// A piece of memory that read_pieces fills.
using Piece = std::span<std::byte>;

// Bytes of a file that lie in memory, seen without a copy. They stay there until the last copy of
// the pointer is gone.
using View = std::shared_ptr<const std::byte>;

class File {
  public:
    virtual ~File() = default;  // closes, and logs a failure to do so

    // Reads at most target.size() bytes at `offset`, and fewer only where the file ends. Retries
    // short reads and interruptions.
    virtual Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) = 0;

    // Like read_at, for adjacent bytes of the file that go to several places. Default: one read_at
    // each.
    virtual Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset);

    // Writes everything or fails. After a failure the content of the range is undefined. The file
    // grows as needed. Retries short writes and interruptions.
    virtual Status write_at(std::span<const std::byte> source, uint64_t offset) = 0;

    // Reserves space for [offset, offset + bytes) and makes the file at least that long. So later
    // writes there neither extend it nor run out of space. unsupported if the file system cannot do
    // that; writing still works. After another failure a part may be reserved, until the file is
    // removed.
    virtual Status reserve(uint64_t offset, uint64_t bytes) = 0;

    virtual Status truncate(uint64_t bytes) = 0;

    // When it returns ok, everything written before is durable. After a failed sync the file's
    // unsynced data must be taken as lost: a later sync that succeeds proves nothing.
    virtual Status sync() = 0;

    virtual Result<uint64_t> size() = 0;

    // The first `bytes` of the file as writable shared memory. Their space is reserved before, so
    // that touching it cannot fail. Only file systems in memory offer it; unsupported elsewhere.
    // Valid until the file is closed.
    virtual Result<std::span<std::byte>> map(uint64_t bytes);

    // [offset, offset + bytes) without a copy, as the source of a write. Thread-safe; outlives the
    // file. Only file systems in memory offer it; unsupported elsewhere. io_error if the file ends
    // before. If somebody cuts the file short while a view of it exists, writes from the view fail,
    // and a program that reads it dies of SIGBUS.
    virtual Result<View> view(uint64_t offset, uint64_t bytes);

    // How transfers go now. If it is direct, only transfers whose memory, offset and length are
    // multiples of 4 KiB go that way, so aligning them is worth a copy.
    virtual Route route() const { return Route::cached; }

    // How a read of [offset, offset + bytes) would go now. It differs from route() for an
    // unchanging file that was opened with `automatic`: bytes that all lie in the page cache are
    // read from there, which is faster than any disk. Takes one system call at most.
    virtual Route read_route(uint64_t offset, uint64_t bytes) const;

    // Tells the system that [offset, offset + bytes) will be read soon, or (drop_cache) will not be
    // needed again. These are hints: failures do not matter.
    virtual void will_read(uint64_t offset, uint64_t bytes);
    virtual void drop_cache();

    // Releases the file and reports what only close() can tell. Idempotent.
    virtual Status close() = 0;

    virtual const std::string& path() const = 0;
};

struct DirectoryEntry {
    std::string name;  // within its directory
    uint64_t bytes = 0;
    bool is_directory = false;
    std::chrono::system_clock::time_point modified;
};

struct SpaceInfo {
    uint64_t block_bytes = 4096;  // the size and alignment of writes that the file system prefers
    uint64_t free_bytes = 0;      // for this user
    bool in_memory = false;       // tmpfs and similar file systems
    std::string file_system;      // "ext4", "tmpfs", ..., or "unknown"
};

// An exclusive lock has one holder. A shared one may have many, but none beside an exclusive one.
enum class LockKind { exclusive, shared };

// Held until destroyed, or until its process dies.
class DirectoryLock {
  public:
    virtual ~DirectoryLock() = default;
    // Whether the path that was locked still leads to that directory. Somebody may have moved it
    // away, and another directory, which nobody has locked, may have its name. Default: it does.
    virtual bool still_in_place() const { return true; }
    // What holds the lock, to hand it to another process (adopt_lock in storage/posix_storage.h). The
    // lock is then held until both have let go, or have died. -1: it cannot be handed over.
    virtual int descriptor() const { return -1; }
};

// Held until destroyed, or until its process dies.
class NumberLock {
  public:
    virtual ~NumberLock() = default;
};

class Storage {
  public:
    virtual ~Storage() = default;

    virtual Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) = 0;

    // Atomic; replaces `to`. Durable after sync_directory of the directory (of both, if they
    // differ). A directory keeps what is in it, and replaces no file and no directory that holds something.
    virtual Status rename(const std::string& from, const std::string& to) = 0;

    // not_found if it does not exist.
    virtual Status remove(const std::string& path) = 0;

    // Only an empty directory; invalid_argument or another failure for anything else. not_found if it does
    // not exist. unsupported (the default) where no directory can be removed.
    virtual Status remove_directory(const std::string& path);

    // Files and directories in `directory`, sorted by name, without "." and "..".
    virtual Result<std::vector<DirectoryEntry>> list(const std::string& directory) = 0;

    // Makes missing parents, too. ok if it exists already.
    virtual Status make_directories(const std::string& path) = 0;

    // Like make_directories, but what it makes is for this user alone. Default: make_directories.
    virtual Status make_own_directories(const std::string& path);

    virtual Status sync_directory(const std::string& path) = 0;

    // About the file system that holds `path` (which must exist).
    virtual Result<SpaceInfo> space(const std::string& path) = 0;

    // An advisory lock on a directory, without making a file in it. busy if another process holds
    // one that excludes it; unsupported if the file system cannot tell.
    virtual Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path,
                                                                  LockKind kind = LockKind::exclusive) = 0;

    // An advisory lock on a number, among all who lock numbers by the file at `path`, on any node. The
    // file is made if it is missing; what it holds does not matter. A lock by a file that is removed
    // excludes nobody any more. busy if somebody has the lock; unsupported (the default) if the file
    // system cannot tell.
    virtual Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number);

    // Offers memory that later writes will come from, for engines that register it once. The memory
    // must stay until this storage is destroyed or forget_memory() is called. Default: does
    // nothing.
    virtual void use_memory(std::span<std::byte> region);
    virtual void forget_memory();

    // "posix", "io_uring", "memory", ...: for records and messages.
    virtual std::string_view name() const = 0;
};

enum class IoEngine { automatic, posix, io_uring };

// Whose files are trusted (docs/security.md). A file that is written is never reached through a
// link as the last part of its path, nor written if it has another name as well, unless
// `follow_links` says so.
//
// `own_in`: the directories in this one belong to this user alone. They are made with mode 0700,
// and the files in them with 0600. A directory or file is refused with a sentence if it belongs to
// another user, may be written by others, or is a link. The directory `own_in` itself may belong to
// another user and be shared, unless everybody may replace its entries. Empty: there is none.
struct FileRules {
    bool follow_links = false;
    std::string own_in = {};
};

// The storage of this machine's file systems. automatic: io_uring if the kernel allows it, else
// posix, which the log then says. io_uring: unsupported if it cannot be had. queue_depth: requests
// in flight per writing thread (io_uring only).
struct SystemStorageOptions {
    IoEngine engine = IoEngine::automatic;
    unsigned queue_depth = 32;
    uint64_t request_bytes = 1 << 20;  // large writes are split into requests of this size (io_uring only)
    FileRules rules = {};
};
Result<std::shared_ptr<Storage>> make_system_storage(const SystemStorageOptions& options);

// "a/b" from "a" and "b"; an absolute `name` is not expected.
std::string join_path(const std::string& directory, const std::string& name);
// Removes a file that may be gone already.
Status remove_if_there(Storage& storage, const std::string& path);
// Reserves space as File::reserve does, where the file system can.
Status reserve_if_possible(File& file, uint64_t offset, uint64_t bytes);

}  // namespace tailrace::internal
