// Some parallel file systems lock a file in pieces. Two nodes that write one piece wait for each
// other, however far apart they write in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tailrace::internal {

// The size of a piece at `path`, which is absolute and without links, by the mounts of `mountinfo`
// (proc(5)). It is 64 MiB on MooseFS, whose chunks have that size. It is 0 if nothing is known of
// pieces, or if they are so small that whole chunks of ours are enough. Pure.
uint64_t lock_piece_bytes(std::string_view mountinfo, std::string_view path);

// The same for this machine's mounts and a directory that exists. 0 also if the mounts cannot be
// read.
uint64_t lock_piece_bytes_of(const std::string& directory);

}  // namespace tailrace::internal
