// The pieces in which some parallel file systems lock a file: two nodes that write one piece wait for each
// other, however far apart they write in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tailrace::internal {

// Bytes of a piece at `path`, which is absolute and without links, by the mounts of `mountinfo` (proc(5)):
// 64 MiB on MooseFS, whose chunks are of that size; 0 where nothing is known of pieces, or they are so small
// that whole chunks of ours are enough. Pure.
uint64_t lock_piece_bytes(std::string_view mountinfo, std::string_view path);

// The same of this machine's mounts and a directory that exists; 0 also where they cannot be read.
uint64_t lock_piece_bytes_of(const std::string& directory);

}  // namespace tailrace::internal
