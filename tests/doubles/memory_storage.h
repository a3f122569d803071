// MemoryStorage: files in memory that know what a power cut would leave of them. For tests.
//
// The model, on the pessimistic side of what file systems do:
// - A write is pending until the file is synced. A crash keeps any subset of the pending writes, may keep
//   only the beginning of one (a torn write), and may keep the length of a lost one, with zeros for content.
// - Creating, renaming and removing a name is pending until its directory is synced. A crash keeps any subset
//   of these, each whole; a name then leads to a file's own content, never to a mixture of two.
// - A sync of a file does not make its name durable, nor the other way round. Making and removing a directory
//   is durable at once.
// - A directory is renamed only when everything in it is durable: else the call fails, so that no caller
//   forgets a sync. The rename is pending as that of a file is, and a crash keeps it whole or not at all.
// Crashes are told apart from the death of a process (process_death), which loses nothing but open files and
// locks. Both end every open File: its calls fail with io_error from then on.
//
// Paths are taken as they are, but for repeated and trailing slashes; "." and ".." are not resolved, and "/"
// and "." exist. Thread-safe, one lock for all: meant for tests, not for speed.
#pragma once

#include <memory>
#include <random>

#include "storage/storage.h"

namespace tailrace::internal {

struct MemoryStorageOptions {
    uint64_t capacity_bytes = UINT64_MAX;  // then no_space; counted in pages of 4096 bytes
    uint64_t block_bytes = 4096;           // what space() reports
    bool offer_map = false;                // whether File::map works, as on tmpfs
    bool offer_number_locks = true;        // whether lock_number works
};

class MemoryStorage : public Storage {
  public:
    explicit MemoryStorage(const MemoryStorageOptions& options = {});
    ~MemoryStorage() override;

    // The power fails and comes back: see above. Deterministic for a given state and random engine.
    void crash(std::mt19937_64& random);

    // The process is killed and started again.
    void process_death();

    // Bytes taken by files that have a name or are open, holes left out.
    uint64_t used_bytes() const;
    void set_capacity(uint64_t bytes);

    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override;
    Status rename(const std::string& from, const std::string& to) override;
    Status remove(const std::string& path) override;
    Status remove_directory(const std::string& path) override;
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override;
    Status make_directories(const std::string& path) override;
    Status sync_directory(const std::string& path) override;
    Result<SpaceInfo> space(const std::string& path) override;
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path,
                                                          LockKind kind = LockKind::exclusive) override;
    Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number) override;
    // The directory lock whose descriptor() this is, held until both have let go: what comes of it when it is
    // handed to another process. Null if it is none of this storage, or not held any more.
    std::unique_ptr<DirectoryLock> duplicate_lock(int descriptor);
    std::string_view name() const override { return "memory"; }

  private:
    struct World;
    Status rename_directory(const std::string& from, const std::string& to);
    class MemoryLock;
    class MemoryNumberLock;
    const std::shared_ptr<World> world_;  // shared with open files and locks, which may outlive the storage
};

}  // namespace tailrace::internal
