// CRC32C (Castagnoli, reflected, initial and final value 0xFFFFFFFF as in RFC 3720), by ISA-L.
//
// crc32c(b, crc32c(a)) is the checksum of a followed by b. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tailrace::internal {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

// Joins checksums of adjacent bytes without the bytes. It is made once for the length of the second
// piece, because that takes longer than a join.
class Crc32cJoin {
  public:
    explicit Crc32cJoin(uint64_t second_bytes);
    // The checksum of a followed by b, where b has second_bytes.
    uint32_t operator()(uint32_t a, uint32_t b) const;

  private:
    using Matrix = std::array<uint32_t, 32>;  // over GF(2), by columns
    static uint32_t times(const Matrix& matrix, uint32_t vector);
    static Matrix times(const Matrix& left, const Matrix& right);
    Matrix zeros_;  // what second_bytes of zeros make of a checksum
};

}  // namespace tailrace::internal
