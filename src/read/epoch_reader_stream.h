// StreamReader: fills the blocks of one rank's stream from the first source that has them right.
//
//   plan (pure) -> read calls in file order -> complete blocks -> checksum, in a second thread when it pays
//                                                     \-> wrong or unreadable: the next source
//
// Large reads around the page cache go into a few buffers in large pages, and the second thread copies them
// from there: the storage is given few long pieces of memory instead of many pages from everywhere, which
// some (virtual disks) serve at half the speed; and the program's memory need not be aligned. What lies in
// the cache is read from there, straight to its place.
//
// Only what failed is read again from the next source. Every failure is logged as a warning that names file,
// offset and region; when no source is left, the status has every source's reason.
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

// A place that holds a whole stream. StreamExtent::file is a number of ReadableFiles.
struct StreamSource {
    std::string tier;  // "the captured part" or "the shared files"
    std::vector<StreamExtent> extents;
};

// Bytes above which a second thread copies and computes checksums while the next call reads.
inline constexpr uint64_t second_thread_bytes = 16 << 20;

// `describe` names the region of a block with its article: "region 'density' of rank 3".
Status read_blocks(ReadableFiles& files, std::span<const StreamSource> sources,
                   std::vector<StreamBlock> blocks,
                   const std::function<std::string(const StreamBlock&)>& describe);

}  // namespace tailrace::internal
