// Protect objects and logical parts as files. The thin effects under protector.h and rebuild.h.
//
// Any number of threads may use one LogicalPart, ObjectWriter or ObjectReader at once, except where
// a member says otherwise. The storage must outlive them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "protect/protect_file.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// Captured parts on this machine as one run of bytes: header and stream of each, in this order.
class LogicalPart {
  public:
    struct Piece {
        std::string path;
        uint64_t bytes = 0;
    };
    LogicalPart(Storage& storage, std::vector<Piece> pieces);

    uint64_t bytes() const { return bytes_; }
    // Fills the target. corrupt if a part is missing or too short.
    Status read(uint64_t offset, std::span<std::byte> target);

  private:
    Result<std::shared_ptr<File>> file_of(size_t piece);

    Storage& storage_;
    const std::vector<Piece> pieces_;
    std::vector<uint64_t> ends_;
    uint64_t bytes_ = 0;
    Mutex mutex_;
    std::map<size_t, std::shared_ptr<File>> files_ GUARDED_BY(mutex_);
};

// Writes one protect object under its unfinished name; finish() makes it exist. If neither finish()
// nor discard() was called, the unfinished file stays, and the next session removes it.
class ObjectWriter {
  public:
    // `directory` exists. `sync`: every step is durable before the next, as with setting local_sync.
    static Result<std::unique_ptr<ObjectWriter>> create(Storage& storage, const std::string& directory,
                                                        ProtectHead head, bool sync);

    const ProtectHead& head() const { return head_; }
    // The bytes of a check block must come in ascending order, each once. Threads may write different
    // blocks at once.
    Status write(uint32_t piece, uint64_t offset, std::span<const std::byte> bytes);
    // Nothing is written meanwhile or afterwards.
    Status finish();
    void discard();

    const std::string& path() const { return path_; }  // the final one

  private:
    ObjectWriter(Storage& storage, ProtectHead head, bool sync);

    Storage& storage_;
    ProtectHead head_;
    const uint64_t record_bytes_, piece_bytes_, blocks_;
    const bool sync_;
    std::string directory_, unfinished_path_, path_;
    std::unique_ptr<File> file_;
};

// The path of the object that `node` keeps for an epoch.
std::string protect_path(const std::string& directory, const std::string& job, EpochKey key, int node);

// An object that nobody needs any more gives its space to a later one: the memory of a tmpfs is given back
// and taken again at half the speed of a copy, and by whoever removes the file, which would be a save.
// Renames it to a spare, of which only these functions know. not_found if there is none.
Status make_spare(Storage& storage, const std::string& protect_path);
// Removes what no object has used. Returns whether there was some.
bool remove_spares(Storage& storage, const std::string& directory, const std::string& job);

class ObjectReader {
  public:
    // The head of the object in that file; corrupt if it is not one, or is cut off.
    static Result<ProtectHead> read_head(Storage& storage, const std::string& path);

    static Result<std::unique_ptr<ObjectReader>> open(Storage& storage, const std::string& path,
                                                      ProtectHead head);
    const ProtectHead& head() const { return head_; }
    // Fills the target, which begins at a check block and ends at one's end or the piece's. Compares
    // the checksums: corrupt names path and offset.
    Status read(uint32_t piece, uint64_t offset, std::span<std::byte> target);
    // Reads everything.
    Status verify();

  private:
    ObjectReader(std::unique_ptr<File> file, ProtectHead head);

    const std::unique_ptr<File> file_;
    const ProtectHead head_;
    const uint64_t record_bytes_, piece_bytes_, blocks_;
};

}  // namespace tailrace::internal
