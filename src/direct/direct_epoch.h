// DirectEpoch: an epoch that processes write straight from their memory, without a session and without
// messages of tailrace's own. For programs that have staged a copy already and move small data among
// themselves anyway (PyTorch's distributed checkpoints).
//
// The order of things:
//   coordinator  1. begin(): locks the directory; begins the K files
//   every rank   2. write_runs(): its regions' data, at the places that all ranks agree on; synced
//   coordinator  3. commit(), with every rank's table of regions and checksums: refuses arrays that cannot be
//                   restored (array_check.h); writes the manifests and what regions it was given with their
//                   bytes, in front of the data where the ranks left room (head_bytes), else behind it; seals
//                   and commits the files (shared/segment.h). The epoch exists.
//                4. final names; then earlier attempts at this epoch, and what was never finished, are
//                   removed
// The file format is that of every epoch, with one leader per file: who reads it sees no difference. A
// coordinator that dies before the last slot leaves an incomplete epoch, which nobody restores.
//
// Files and ranks: with K files for N ranks, rank r writes the files [first_file(r), last_file(r)): one of
// them where K <= N, several where K > N.
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

// Which files a rank writes; pure.
uint32_t first_file_of(uint32_t rank, uint32_t ranks, uint32_t files);
uint32_t last_file_of(uint32_t rank, uint32_t ranks, uint32_t files);

// The room that a rank's manifest and its tail take in front of the data of its first file, so that a reader,
// who needs them first, goes forward only. Pure. Whoever does not know a tail's size yet may guess: what does
// not fit comes behind the data, and what is too much stays a hole.
Result<uint64_t> head_bytes(const std::vector<RegionShape>& regions, const std::vector<RegionShape>& tail);

// What a rank has written, and what the coordinator is to write for it.
struct DirectRank {
    struct Tail {
        RegionShape shape;
        std::vector<std::byte> content;
    };
    std::vector<RegionShape> regions;         // as they were given to lay_out_regions
    std::vector<std::vector<uint32_t>> crcs;  // of each
    std::vector<uint64_t> file_offsets;       // of each run, in the rank's files in order
    std::vector<Tail> tail;                   // regions behind those
};

class DirectEpoch {
  public:
    // busy while another process writes or holds a session there. The storage must outlive the object.
    static Result<std::unique_ptr<DirectEpoch>> begin(Storage& storage, const DirectEpochSettings& settings);
    // Removes the files when nothing was committed.
    ~DirectEpoch();

    EpochKey key() const { return header_.key; }
    const std::vector<std::string>& paths() const { return paths_; }  // while unfinished
    uint64_t data_start() const { return data_offset(header_); }      // of every file

    // Every rank once, ascending. After a failure nothing exists, and the epoch cannot be committed any more.
    // invalid_argument also where arrays cannot be restored, or overlap without a declaration.
    Status commit(const std::vector<DirectRank>& ranks);

  private:
    // A rank's stream when it is complete: the table of regions, and which of its bytes lie where.
    struct Stream {
        PartManifest manifest;
        std::vector<std::byte> encoded;
        StreamInfo info;
        uint64_t tail_start = 0;  // in the stream: where what lies in runs ends
    };
    struct FileContent {
        SegmentIndex index;
        uint64_t front = 0;                // room from here on ...
        uint64_t data_start = UINT64_MAX;  // ... up to here
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
    SharedHeader header_;  // of file 0
    std::vector<std::string> paths_;
    std::vector<std::unique_ptr<Segment>> segments_;  // one in each file
    bool ended_ = false;
};

}  // namespace tailrace::internal
