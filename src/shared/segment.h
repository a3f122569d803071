// Segment: one leader's part of one shared file, and the steps by which it comes to exist.
//
// This is the commit of the library (docs/format.md, "Commit"): nobody else writes a header, an index or a
// slot. The steps, in this order and never otherwise:
//   begin()   1. creates NAME.unfinished; empties our slot, durably where a file was there before; writes the
//                header
//   file()    2. the caller writes data into the leader's extents, in any order and from any number of
//   threads seal()    3. cuts the file to size when no other leader writes there, and writes our index
//             4. syncs the file and its directory: data, index and name are durable
//   commit()  5. writes our slot, and syncs: the segment exists
// A failure anywhere leaves the slot empty, and so the file incomplete. After it, nothing more may be called.
//
// Thread-compatible: one thread at a time, but for writes to file().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/shared_file.h"
#include "storage/storage.h"

namespace tailrace::internal {

class Segment {
  public:
    // `path` is the file's unfinished name in `directory`. Every leader of a file begins, and any may be the
    // first: all write the same header. The storage must outlive the segment.
    static Result<std::unique_ptr<Segment>> begin(Storage& storage, const std::string& directory,
                                                  const std::string& path, const SharedHeader& header,
                                                  uint32_t leader, const OpenOptions& how);

    File& file() { return *file_; }
    const SharedHeader& header() const { return header_; }

    // `end`: where the leader's data ends in the file. failed_state when the index has no room.
    Status seal(SegmentIndex index, uint64_t end);
    // failed_state unless seal() went well.
    Status commit();

    double sync_seconds() const { return sync_seconds_; }  // in all syncs so far; from any thread

  private:
    Segment(Storage& storage, std::string directory, std::string path, SharedHeader header, uint32_t leader)
        : storage_(storage),
          directory_(std::move(directory)),
          path_(std::move(path)),
          header_(std::move(header)),
          leader_(leader) {}
    Status empty_slot();
    Status sync();

    Storage& storage_;
    const std::string directory_, path_;
    const SharedHeader header_;
    const uint32_t leader_;
    std::unique_ptr<File> file_;
    std::optional<LeaderSlot> slot_;  // since seal() went well
    std::atomic<double> sync_seconds_ = 0;
};

}  // namespace tailrace::internal
