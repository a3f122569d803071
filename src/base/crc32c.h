// CRC32C (Castagnoli, reflected, initial and final value 0xFFFFFFFF as in RFC 3720), by ISA-L.
//
// crc32c(b, crc32c(a)) is the checksum of a followed by b. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailrace::internal {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace tailrace::internal
