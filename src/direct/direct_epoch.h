// DirectEpoch: an epoch that processes write straight from their memory, without a session and
// without messages of tailrace's own. It serves programs that have staged a copy already and move
// small data among themselves anyway (PyTorch's distributed checkpoints).
//
// The order of things:
//   coordinator
//     1. begin(): locks the directory and begins the K files.
//   every rank
//     2. write_runs(): writes its regions' data to the places on which all ranks agree, and syncs.
//   coordinator
//     3. commit(), with every rank's table of regions and checksums. It refuses arrays that cannot
//        be restored (array_check.h). It writes the manifests, and the regions that it was given
//        with their bytes: in front of the data where the ranks left room (head_bytes), otherwise
//        behind it. Then it seals and commits the files (shared/segment.h). From here on the epoch
//        exists.
//     4. It gives the files their final names, and removes earlier attempts at this epoch and
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
#include <vector>

#include "base/status.h"
#include "direct/direct_write.h"
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

// The room that a rank's manifest and tail need in front of the data of its first file. A reader
// needs them first, so it then only goes forward. Pure. A rank that does not know a tail's size yet
// may guess: what does not fit goes behind the data, and room that is not needed stays a hole.
Result<uint64_t> head_bytes(const std::vector<RegionShape>& regions, const std::vector<RegionShape>& tail);

// What a rank has written, and what the coordinator has to write for it.
struct DirectRank {
    struct Tail {
        RegionShape shape;
        std::vector<std::byte> content;
    };
    std::vector<RegionShape> regions;         // as given to lay_out_regions
    std::vector<std::vector<uint32_t>> crcs;  // the checksums of each region
    // Where each run lies, in the order of the rank's files.
    std::vector<uint64_t> file_offsets;
    std::vector<Tail> tail;  // regions behind those
};

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

    // Commits the epoch. `ranks` has every rank once, ascending. After a failure nothing exists,
    // and the epoch cannot be committed any more. invalid_argument also if arrays cannot be
    // restored, or overlap without a declaration.
    Status commit(const std::vector<DirectRank>& ranks);

  private:
    // A rank's complete stream: the table of regions, and which of its bytes lie where.
    struct Stream {
        PartManifest manifest;
        std::vector<std::byte> encoded;
        StreamInfo info;
        uint64_t tail_start = 0;  // in the stream: the end of what lies in runs
    };
    struct FileContent {
        SegmentIndex index;
        uint64_t front = 0;                // the room in front of the data begins here
        uint64_t data_start = UINT64_MAX;  // and ends here
        uint64_t end = 0;
    };
    DirectEpoch(Storage& storage, DirectEpochSettings settings);
    Status create(SharedHeader header);
    Status write_and_seal(const std::vector<DirectRank>& ranks);
    Result<std::vector<Stream>> locate_data(const std::vector<DirectRank>& ranks,
                                            std::vector<FileContent>& files) const;
    static Result<Stream> make_stream(const DirectRank& from, uint32_t rank, uint32_t ranks,
                                      uint64_t run_bytes);
    static std::vector<std::byte> tail_of(const DirectRank& from, const Stream& stream);
    static Status put(uint32_t rank, uint64_t stream_offset, std::vector<std::byte> bytes, Segment& segment,
                      FileContent& file);
    void remove_replaced();

    Storage& storage_;
    const DirectEpochSettings settings_;
    std::unique_ptr<DirectoryLock> lock_;
    SharedHeader header_;  // that of file 0
    std::vector<std::string> paths_;
    std::vector<std::unique_ptr<Segment>> segments_;  // one in each file
    bool ended_ = false;
};

}  // namespace tailrace::internal
