// DirectEpoch: an epoch that processes write straight from their memory, without a session and
// without messages of tailrace's own. It serves programs that have staged a copy already and move
// small data among themselves anyway (PyTorch's distributed checkpoints).
//
// The order of things:
//   coordinator
//     1. begin(): locks the directory and begins the K files.
//   every rank
//     2. write_stream(): writes its stream to the places on which all ranks agree, and syncs
//        (rank_stream.h). A rank that leaves its head to the coordinator calls write_runs().
//   coordinator
//     3. CheckedArrays::check(): refuses arrays that cannot be restored (array_check.h). It needs
//        all ranks' regions. What it returns is good for all epochs of the same regions.
//     4. commit(). It writes the heads that were left to it: in front of the data where the ranks
//        left room (head_bytes), otherwise behind it. Then it seals and commits the files
//        (shared/segment.h). From here on the epoch exists.
//     5. It gives the files their final names, and removes earlier attempts at this epoch and
//        epochs that were never finished.
//
// The file format is that of every epoch, with one leader per file, so readers see no difference. A
// coordinator that dies before the last slot leaves an incomplete epoch, which nobody restores.
//
// Files and ranks: with K files for N ranks, rank r writes the files [first_file_of(r),
// last_file_of(r)). This is one file if K <= N, and several if K > N.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "direct/rank_stream.h"
#include "format/shared_file.h"
#include "shared/segment.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct DirectEpochSettings {
    std::string directory;
    std::string job = "tailrace";
    uint64_t epoch = 0;
    uint32_t files = 1;  // K
    uint32_t ranks = 1;  // N
};

// The files [first, last) that a rank writes. Pure.
uint32_t first_file_of(uint32_t rank, uint32_t ranks, uint32_t files);
uint32_t last_file_of(uint32_t rank, uint32_t ranks, uint32_t files);

// That the arrays of some ranks can be restored, whatever is in them. Immutable.
class CheckedArrays {
  public:
    // `ranks`: the regions of each rank, ascending. invalid_argument if arrays cannot be restored, or
    // overlap without a declaration.
    static Result<CheckedArrays> check(const std::vector<std::vector<RegionShape>>& ranks);
    const std::vector<uint64_t>& digests() const { return digests_; }  // shapes_digest of each rank

  private:
    std::vector<uint64_t> digests_;
};

using DirectEntry = std::variant<DirectRank, WrittenRank>;

class DirectEpoch {
  public:
    // Returns busy while another process writes there or holds a session there. The storage must
    // outlive the object.
    static Result<std::unique_ptr<DirectEpoch>> begin(Storage& storage, const DirectEpochSettings& settings);
    // Removes the files if nothing was committed.
    ~DirectEpoch();

    EpochKey key() const { return header_.key; }
    const std::vector<std::string>& paths() const { return paths_; }  // the unfinished names
    uint64_t data_start() const { return data_offset(header_); }      // the same in every file

    // Commits the epoch. `ranks` has every rank once, ascending, and their regions are those that
    // were checked; otherwise invalid_argument, and the call may be repeated. The same code if ranks
    // say that they have written where a reader would refuse it. After this and any other failure
    // nothing exists, and a further call is failed_state.
    Status commit(const std::vector<DirectEntry>& ranks, const CheckedArrays& checked);

  private:
    struct FileContent {
        SegmentIndex index;
        uint64_t front = 0;                // the room in front of the data begins here
        uint64_t data_start = UINT64_MAX;  // and ends here
        uint64_t end = 0;
    };
    DirectEpoch(Storage& storage, DirectEpochSettings settings);
    Status create(SharedHeader header);
    Status write_and_seal(const std::vector<WrittenRank>& ranks, const std::vector<RankStream>& left);
    void locate(const WrittenRank& rank, std::vector<FileContent>& files) const;
    Status check_readable(const std::vector<WrittenRank>& ranks, const std::vector<FileContent>& files) const;
    static Status put(uint32_t rank, uint64_t stream_offset, std::vector<std::byte> bytes, Segment& segment,
                      FileContent& file);
    void remove_replaced();

    Storage& storage_;
    const DirectEpochSettings settings_;
    std::unique_ptr<DirectoryLock> lock_;
    SharedHeader header_;  // that of file 0
    std::vector<std::string> paths_;
    std::vector<std::unique_ptr<Segment>> segments_;  // one in each file
    bool has_begun_to_commit_ = false;
    bool is_committed_ = false;
};

}  // namespace tailrace::internal
