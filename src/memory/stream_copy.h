// Copies large memory that will not be read again soon. It writes past the caches. So the target's
// bytes are not fetched before they are overwritten, and the program finds its own data still
// cached afterwards.
//
// memcpy does this only for copies far larger than the caches. A checksum that should find its
// input in the cache needs small steps. Pure apart from the target; any thread. When a call
// returns, other threads and processes that learn of it see the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailrace::internal {

// `target` must have room for source.size() bytes and must not overlap it.
void stream_copy(std::span<const std::byte> source, std::byte* target);

// Copies, and returns the checksum of the bytes, continued from `crc`. Each byte is read from
// memory once.
uint32_t stream_copy_crc32c(std::span<const std::byte> source, std::byte* target, uint32_t crc = 0);

}  // namespace tailrace::internal
