// Storage: the files of one file system as tailrace needs them. One interface, several backends, and one
// conformance suite (tests/storage/) that every backend runs.
//
// Backends: posix (plain system calls, optional direct I/O) and io_uring (deep queues, registered buffers).
// Tests have two more (tests/doubles): one in memory that knows what was synced, and one that fails by a
// seed. Paths are UTF-8 or any bytes without NUL; they are taken as they are.
//
// Thread-safety: a Storage may be used from any number of threads. A File's read_at, write_at, reserve and
// sync may run at once from several threads; close() only when nothing else is running.
// Errors: every failure names the operation, the path, and offset and length where they exist.
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
    write,       // read and write; created when missing, kept when there
    create_new,  // read and write; already_exists when there
};

// What a file's data have to do with the page cache. `off`: they stay in it. `on`: they go around it, by
// O_DIRECT; callers need not align, a backend sends unaligned heads and tails through the cache by itself.
// `automatic`: as `on` where the file system can, else `off`. `uncached`: they pass through it and leave it
// at once (RWF_DONTCACHE of Linux 6.16 and later). `on` and `uncached` are unsupported where the file system
// cannot.
enum class DirectIo { off, automatic, on, uncached };

// How bytes travel: through the page cache, where they stay; through it, and out of it as soon as they are
// where they belong; around it.
enum class Route { cached, uncached, direct };

struct OpenOptions {
    Access access = Access::read;
    DirectIo direct = DirectIo::off;
    // Refused when it is another user's file, or has another name as well. Storages without users open it.
    bool own = false;
    // Nobody on any node writes the file any more. Then what lies in this node's page cache is as good as the
    // file, and `automatic` reads it from there. (Of files that do change a network file system's cache may
    // be behind, so `automatic` reads these around it.)
    bool unchanging = false;
};

// A piece of memory that read_pieces fills.
using Piece = std::span<std::byte>;

// Bytes of a file where they lie in memory. They stay there until the last copy of the pointer is gone.
using View = std::shared_ptr<const std::byte>;

class File {
  public:
    virtual ~File() = default;  // closes, and logs a failure to do so

    // Reads at most target.size() bytes at `offset`: fewer only where the file ends. Retries short reads
    // and interruptions.
    virtual Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) = 0;

    // As read_at, for adjacent bytes of the file that go to several places. Default: one read_at each.
    virtual Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset);

    // Writes everything or fails; after a failure the range's content is undefined. The file grows as
    // needed. Retries short writes and interruptions.
    virtual Status write_at(std::span<const std::byte> source, uint64_t offset) = 0;

    // Takes space for [0, bytes) and makes the file at least that long, so that later writes there neither
    // extend it nor run out of space. unsupported where the file system cannot: writing works all the same.
    virtual Status reserve(uint64_t bytes) = 0;

    virtual Status truncate(uint64_t bytes) = 0;

    // When it returns ok, everything written before is durable. After a failed sync the file's unsynced
    // data must be taken as lost: a later sync that succeeds proves nothing.
    virtual Status sync() = 0;

    virtual Result<uint64_t> size() = 0;

    // The first `bytes` of the file as writable shared memory, reserved before so that touching it cannot
    // fail. Only file systems in memory offer it; unsupported elsewhere. Valid until the file is closed.
    virtual Result<std::span<std::byte>> map(uint64_t bytes);

    // [offset, offset + bytes) without a copy, as the source of a write. Thread-safe; outlives the file. Only
    // file systems in memory offer it; unsupported elsewhere. io_error where the file ends before. Who cuts
    // the file short while a view of it is there makes writes from it fail, and a program that looks into it
    // die of SIGBUS.
    virtual Result<View> view(uint64_t offset, uint64_t bytes);

    // How transfers go now. Where it is direct, those whose memory, offset and length are multiples of 4 KiB
    // do, so that aligning them is worth a copy.
    virtual Route route() const { return Route::cached; }

    // How a read of [offset, offset + bytes) would go now. As route(), but for an unchanging file that was
    // opened with `automatic`: bytes that all lie in the page cache come from there, which is faster than any
    // disk. Cheap: a system call at most.
    virtual Route read_route(uint64_t offset, uint64_t bytes) const;

    // Tells the system that [offset, offset + bytes) will be read soon, or (drop_cache) will not be needed
    // again. Wishes: failures do not matter.
    virtual void will_read(uint64_t offset, uint64_t bytes);
    virtual void drop_cache();

    // Releases the file and reports what only close() may tell. Idempotent.
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
    uint64_t block_bytes = 4096;  // the size and alignment in which the file system likes to be written
    uint64_t free_bytes = 0;      // for this user
    bool in_memory = false;       // tmpfs and its like
    std::string file_system;      // "ext4", "tmpfs", ..., or "unknown"
};

// Held until destroyed, or until its process dies.
class DirectoryLock {
  public:
    virtual ~DirectoryLock() = default;
    // Whether the path that was locked still leads to that directory: somebody may have moved it away, and
    // another directory, which nobody has locked, may bear its name. Default: it does.
    virtual bool still_in_place() const { return true; }
};

class Storage {
  public:
    virtual ~Storage() = default;

    virtual Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) = 0;

    // Atomic; replaces `to`. Not durable before sync_directory of the directory (of both, if they differ).
    virtual Status rename(const std::string& from, const std::string& to) = 0;

    // not_found when it is not there.
    virtual Status remove(const std::string& path) = 0;

    // Files and directories in `directory`, sorted by name, without "." and "..".
    virtual Result<std::vector<DirectoryEntry>> list(const std::string& directory) = 0;

    // With parents; ok when it is there already.
    virtual Status make_directories(const std::string& path) = 0;

    // As make_directories, but what it makes is for this user alone. Default: make_directories.
    virtual Status make_own_directories(const std::string& path);

    virtual Status sync_directory(const std::string& path) = 0;

    // About the file system that holds `path` (which must exist).
    virtual Result<SpaceInfo> space(const std::string& path) = 0;

    // An exclusive advisory lock on a directory, without making a file in it. busy when another holds it;
    // unsupported where the file system cannot tell.
    virtual Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path) = 0;

    // Offers memory that later writes will come from, for engines that register it once. The memory must
    // stay until this storage is destroyed or forget_memory() is called. Default: nothing.
    virtual void use_memory(std::span<std::byte> region);
    virtual void forget_memory();

    // "posix", "io_uring", "memory", ...: for records and messages.
    virtual std::string_view name() const = 0;
};

enum class IoEngine { automatic, posix, io_uring };

// Whose files are believed (docs/security.md). A file that is written is never reached through a link as the
// last part of its path, nor written when it has another name as well, unless `follow_links` says so.
// `own_in`: the directories in this one are this user's alone. They are made so (0700), and the files in them
// (0600); what is another user's, may be written by others or is a link is refused with a sentence. The
// directory around them may be another's and be shared, if not everybody may replace what is in it. Empty:
// there is none.
struct FileRules {
    bool follow_links = false;
    std::string own_in = {};
};

// The storage of this machine's file systems. automatic: io_uring where the kernel allows it, else posix
// (said in the log). io_uring: unsupported where it cannot be had. queue_depth: requests in flight per
// writing thread (io_uring only).
struct SystemStorageOptions {
    IoEngine engine = IoEngine::automatic;
    unsigned queue_depth = 32;
    uint64_t request_bytes = 1 << 20;  // large writes are split into requests of this size (io_uring only)
    FileRules rules = {};
};
Result<std::shared_ptr<Storage>> make_system_storage(const SystemStorageOptions& options);

// "a/b" from "a" and "b"; an absolute `name` is not expected.
std::string join_path(const std::string& directory, const std::string& name);

}  // namespace tailrace::internal
