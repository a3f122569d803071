// A rank's stream in an epoch without a session: its table of regions, its data, its tail, and where
// they lie in the rank's files. (direct_epoch.h has the order of things.)
//
// A rank's tail are regions that come with their bytes, such as what a library notes about the
// rank's data. The table and the tail are the rank's head. It lies in front of the data where there
// is room.
//
// Who writes the head? A rank that knows all of its tail writes it beside its data (write_stream).
// Then the coordinator need not know the rank's regions, and what it does and is sent stays the
// same however many they are. One rank may leave its head to the coordinator (DirectRank), so that
// the coordinator can put in what it learns at the end.
//
// Everything but write_stream is pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "direct/direct_write.h"
#include "format/manifest.h"
#include "format/shared_file.h"
#include "storage/storage.h"

namespace tailrace::internal {

// The room that a rank's manifest and tail need in front of the data of its first file. A reader
// needs them first, so it then only goes forward. A rank that does not know a tail's size yet may
// guess: what does not fit goes behind the data, and room that is not needed stays a hole.
Result<uint64_t> head_bytes(const std::vector<RegionShape>& regions, const std::vector<RegionShape>& tail);

// Tells layouts of regions apart: names, sizes and arrays. 0 for regions that cannot be laid out.
uint64_t shapes_digest(const std::vector<RegionShape>& regions);

struct RegionTail {
    RegionShape shape;
    std::vector<std::byte> content;
};

// A rank that has written its data, and leaves its head to the coordinator.
struct DirectRank {
    std::vector<RegionShape> regions;         // as given to lay_out_regions
    std::vector<std::vector<uint32_t>> crcs;  // the checksums of each region
    // Where each run lies, in the order of the rank's files.
    std::vector<uint64_t> file_offsets;
    std::vector<RegionTail> tail;  // regions behind those
};

// A rank that has written its whole stream. Its size depends on the number of its files only.
struct WrittenRank {
    struct InFile {
        std::vector<Extent> extents;
        uint64_t end = 0;  // of what the rank has there, with its padding; 0 if it has nothing
    };
    StreamInfo info;
    uint64_t shapes_digest = 0;
    std::vector<InFile> files;  // the rank's
};

// The stream of a rank whose data has been written.
class RankStream {
  public:
    // invalid_argument if the rank's parts do not fit together.
    static Result<RankStream> make(const DirectRank& from, uint32_t rank, uint32_t ranks);

    const StreamInfo& info() const { return info_; }
    // The manifest, padded to the alignment of a stream, and what lies behind the data, unpadded.
    const std::vector<std::byte>& manifest() const { return encoded_; }
    const std::vector<std::byte>& tail() const { return tail_; }
    uint64_t tail_start() const { return tail_start_; }  // in the stream
    // Where the data lies in each of the rank's files.
    const std::vector<WrittenRank::InFile>& data() const { return data_; }

  private:
    StreamInfo info_;
    std::vector<std::byte> encoded_, tail_;
    uint64_t tail_start_ = 0;
    std::vector<WrittenRank::InFile> data_;
};

struct StreamPlace {
    uint64_t head_offset = 0;    // in the rank's first file, with room for head_bytes
    std::vector<RunPlace> runs;  // all have a path
};

// Writes the rank's whole stream and syncs its files. The rest is as for write_runs.
Result<WrittenRank> write_stream(Storage& storage, uint32_t rank, uint32_t ranks,
                                 const std::vector<RegionShape>& regions, std::vector<RegionTail> tail,
                                 std::span<const std::span<const std::byte>> memory, const StreamPlace& place,
                                 const DirectWriteOptions& options);

}  // namespace tailrace::internal
