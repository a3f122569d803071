// FaultyStorage: wraps any storage and makes it fail, from a seed. For tests.
//
// Every call that can fail counts as one operation, numbered from 1. For each, the plan's rates decide what
// goes wrong; with one calling thread the same seed gives the same faults. From operation `die_at_operation`
// on, everything fails with aborted, as if the process had been killed: the operation itself may be done in
// part, the rest not at all. Together with MemoryStorage::crash() that is a power cut at a chosen instant.
//
// What a fault leaves: a failed write has written any prefix; a failed sync has synced nothing, and every
// later sync of that File fails too; other failed operations have done nothing. Mapped memory sees no faults.
// Thread-safe as far as the wrapped storage is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <random>

#include "storage/storage.h"

namespace tailrace::internal {

// Probabilities, 0 to 1.
struct FaultPlan {
    double open_error = 0;               // io_error
    double read_error = 0;               // io_error
    double write_error = 0;              // io_error
    double write_no_space = 0;           // no_space; of writes and reservations
    double sync_error = 0;               // io_error; of files and directories
    double rename_error = 0;             // io_error; of renames and removals
    double list_error = 0;               // io_error
    double short_read = 0;               // fewer bytes than the file holds
    double read_flip = 0;                // one bit of what was read is wrong
    double write_flip = 0;               // one bit of what is written is wrong, and nobody is told
    std::string path_filter;             // only paths that contain it
    std::chrono::microseconds delay{0};  // up to so long before each read, write and sync
    uint64_t die_at_operation = 0;       // 0: never
    // Called by every operation that finds the process dead, before it fails. It may wait.
    std::function<void(const std::string& path)> before_death = {};
    // The n-th sync of a file or directory from set_plan() on is not done, and everything fails from there
    // on. With a power cut, that is the moment that tells whether the sync was needed. 0: never.
    uint64_t die_at_sync = 0;
};

struct FaultCounts {
    uint64_t open_error = 0, read_error = 0, write_error = 0, write_no_space = 0, sync_error = 0,
             rename_error = 0, list_error = 0, short_read = 0, read_flip = 0, write_flip = 0;
    uint64_t total() const {
        return open_error + read_error + write_error + write_no_space + sync_error + rename_error +
               list_error + short_read + read_flip + write_flip;
    }
};

class FaultyStorage : public Storage {
  public:
    FaultyStorage(std::shared_ptr<Storage> inner, uint64_t seed, FaultPlan plan = {});
    ~FaultyStorage() override;

    // From now on; operations go on counting.
    void set_plan(FaultPlan plan);
    FaultCounts counts() const;
    uint64_t operations() const;
    bool dead() const;
    // From now on everything fails with aborted.
    void die();

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
    void use_memory(std::span<std::byte> region) override;
    void forget_memory() override;
    std::string_view name() const override { return "faulty"; }

  private:
    class Fate;
    class FaultyFile;
    const std::shared_ptr<Storage> inner_;
    const std::shared_ptr<Fate> fate_;  // shared with open files, which may outlive the storage
};

}  // namespace tailrace::internal
