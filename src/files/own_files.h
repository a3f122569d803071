// OwnFiles: files that the program writes by itself, saved and restored with the epochs of a session.
//
// A thin layer over Checkpointer. To a session each file is one more region, "file/NAME", whose bytes
// are read straight from the file into the captured part (format/file_table.h). So everything behind
// the capture, from the flush to the reader, knows nothing of files.
//
// The steps of a save with files:
//   1. begin makes a directory in the node's directory of the node-local tier.
//   2. route gives paths in it. The program writes there, with any library.
//   3. save looks at the files, and saves them beside what is registered. On a rank where they cannot be
//      saved, or the program says that they are not whole, it gives the epoch up in place of that, so
//      the epoch fails on all ranks, and no rank waits for another.
//   4. The directory goes, whatever came of the save.
// A restore makes another directory, with what the epoch has. It stays until release, the next restore,
// or the end of the session.
//
// Directories of a session that has died are removed by the next one (session/opening.h).
//
// Thread-safe; a call waits for another's end. save is collective where Checkpointer's is, restore is
// collective.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "files/restored_files.h"
#include "files/routed_files.h"
#include "session/checkpointer.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class OwnFiles {
  public:
    // Both must outlive it, or end() must come before their end. `local` is the storage of the
    // session's node-local tier.
    OwnFiles(Checkpointer& session, Storage& local) : session_(session), local_(local) {}

    // failed_state if files were begun and not saved yet.
    Status begin();
    Result<std::string> route(std::string_view name);
    // The room that route's path needs, with the zero behind it. 0 if files were not begun.
    uint64_t path_bytes(std::string_view name) {
        MutexLock lock(mutex_);
        return routed_ == nullptr ? 0 : routed_->path_bytes(name);
    }
    // Not `whole`: the program could not write its files. The epoch fails then, and so does this call
    // (aborted).
    Status save(uint64_t epoch, bool whole);

    // Restores what is registered, and this rank's files. `all_ranks`: every rank may ask for every
    // rank's files, so all ranks together first read and check every byte. Otherwise the files of other
    // ranks may be out of reach. Returns the epoch. What was restored before goes.
    Result<uint64_t> restore(std::optional<uint64_t> epoch, bool all_ranks);
    // Of the epoch that was restored. The names live until it goes.
    Result<const std::vector<EpochFile>*> files(uint32_t rank);
    Result<std::string> find(std::optional<uint32_t> rank, std::string_view name);
    // Removes what was restored.
    void release();

    // Removes all files, and lets the epoch go. Every later call fails.
    void end();

  private:
    uint32_t own_rank() const { return static_cast<uint32_t>(session_.rank()); }
    Result<std::shared_ptr<FileTree>> make_tree() REQUIRES(mutex_);
    Status check_open() const REQUIRES(mutex_);
    Status check_restored() const REQUIRES(mutex_);

    Checkpointer& session_;
    Storage& local_;
    Mutex mutex_;
    std::unique_ptr<RoutedFiles> routed_ GUARDED_BY(mutex_);
    std::unique_ptr<RestoredFiles> restored_ GUARDED_BY(mutex_);
    uint64_t trees_ GUARDED_BY(mutex_) = 0;  // that were made so far
    bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
