// Copies of large memory that will not be read again soon: past the caches, so that the bytes of the target
// are not fetched before they are overwritten, and the program finds its own data still cached afterwards.
//
// memcpy does this for copies far larger than the caches; a checksum that is to find its input in the cache
// needs small steps, for which memcpy does not. Pure apart from the target; any thread. When a call returns,
// other threads and processes that learn of it see the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailrace::internal {

// `target` has room for source.size() bytes and does not overlap it.
void stream_copy(std::span<const std::byte> source, std::byte* target);

// The same, and the checksum of the bytes that were copied, continued from `crc`: each byte comes from memory
// once.
uint32_t stream_copy_crc32c(std::span<const std::byte> source, std::byte* target, uint32_t crc = 0);

}  // namespace tailrace::internal
