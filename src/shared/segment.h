// Segment: one leader's share of one shared file, and the steps by which it comes to exist.
//
// These steps are the commit of the library (docs/format.md, "Commit"). No other code writes a
// header, an index or a slot. They come in this order and in no other:
//
//   begin()
//     1. Create NAME.unfinished. Empty our slot, durably where a file was there. Write the header.
//   file()
//     2. The caller writes data into the leader's extents, in any order and from any threads.
//   seal()
//     3. Cut the file to size, unless other leaders write there, too. Write our index.
//     4. Sync the file and its directory. Data, index and name are now durable.
//   commit()
//     5. Write our slot, and sync. From here on the segment exists.
//
// A failure in steps 1 to 4 leaves the slot empty, and so the file incomplete. If step 5 fails, the
// slot may have reached the disk all the same, so the caller removes the file. After a failure, no
// further call is allowed.
//
// Thread-compatible: one thread at a time calls, except that any thread may write to file() and
// call sync_seconds().
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
    // `path` is the file's unfinished name in `directory`. Every leader of a file calls this, in
    // any order: all write the same header. The storage must outlive the segment.
    static Result<std::unique_ptr<Segment>> begin(Storage& storage, const std::string& directory,
                                                  const std::string& path, const SharedHeader& header,
                                                  uint32_t leader, const OpenOptions& how);

    File& file() { return *file_; }
    const SharedHeader& header() const { return header_; }

    // `end`: where the leader's data ends in the file. Returns failed_state if the index is larger
    // than its area.
    Status seal(SegmentIndex index, uint64_t end);
    // Returns failed_state unless seal() has succeeded.
    Status commit();

    // The time spent in all file syncs so far, without those of the directory.
    double sync_seconds() const { return sync_seconds_; }

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
    std::optional<LeaderSlot> slot_;  // set when seal() has succeeded
    std::atomic<double> sync_seconds_ = 0;
};

}  // namespace tailrace::internal
