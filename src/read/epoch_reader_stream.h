// read_blocks: fills the blocks of one rank's stream from the first source that has them right.
//
//   plan (pure) -> read calls in file order -> complete blocks -> checksum
//                                                     \-> wrong or unreadable: the next source
//
// For large reads, a second thread computes the checksums while the first one reads on.
//
// Large reads around the page cache go into a few buffers in large pages, and the second thread
// copies from these. So the storage gets a few long pieces of memory instead of many scattered
// pages, which some storage (virtual disks) serves at half the speed. It also means that the
// program's memory need not be aligned. What lies in the cache is read from there, straight to its
// place.
//
// Only the blocks that failed are read again from the next source. Every failure is logged as a
// warning that names file, offset and region. When no source is left, the status has every source's
// reason.
//
// Thread-safe: a call keeps its state on its own stack.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "read/epoch_reader_files.h"
#include "read/epoch_reader_plan.h"

namespace tailrace::internal {

// A place that holds a whole stream. StreamExtent::file is a number in ReadableFiles.
struct StreamSource {
    std::string tier;  // "the captured part" or "the shared files"
    std::vector<StreamExtent> extents;
};

// Above this many bytes a second thread copies and computes checksums while the next call reads.
inline constexpr uint64_t second_thread_bytes = 16 << 20;

// `describe` names a block for messages: "bytes 0 to 4096 of region 'density' of rank 3".
Status read_blocks(ReadableFiles& files, std::span<const StreamSource> sources,
                   std::vector<StreamBlock> blocks,
                   const std::function<std::string(const StreamBlock&)>& describe);

}  // namespace tailrace::internal
