#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace tailrace::internal {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
    uint32_t state = ~previous;
    while (!bytes.empty()) {
        // The library's length is an int.
        size_t piece = std::min<size_t>(bytes.size(), size_t{1} << 30);
        // It takes a pointer to mutable bytes and does not change them.
        auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
        state = crc32_iscsi(data, static_cast<int>(piece), state);
        bytes = bytes.subspan(piece);
    }
    return ~state;
}

// Mark Adler's method (crc32_combine of zlib): zeros behind a message change its checksum by a linear map,
// and the map of twice as many zeros is the square of the map.
Crc32cJoin::Crc32cJoin(uint64_t second_bytes) {
    constexpr uint32_t reflected_polynomial = 0x82f63b78;
    Matrix power{reflected_polynomial};  // of one bit
    for (size_t i = 1; i < power.size(); ++i) power[i] = uint32_t{1} << (i - 1);
    for (int doubled = 0; doubled < 3; ++doubled) power = times(power, power);  // of one byte
    for (size_t i = 0; i < zeros_.size(); ++i) zeros_[i] = uint32_t{1} << i;
    for (uint64_t bytes = second_bytes; bytes > 0; bytes >>= 1) {
        if (bytes & 1) zeros_ = times(power, zeros_);
        power = times(power, power);
    }
}

uint32_t Crc32cJoin::operator()(uint32_t a, uint32_t b) const {
    return times(zeros_, a) ^ b;
}

uint32_t Crc32cJoin::times(const Matrix& matrix, uint32_t vector) {
    uint32_t sum = 0;
    for (size_t i = 0; vector != 0; ++i, vector >>= 1)
        if (vector & 1) sum ^= matrix[i];
    return sum;
}

Crc32cJoin::Matrix Crc32cJoin::times(const Matrix& left, const Matrix& right) {
    Matrix product{};
    for (size_t i = 0; i < right.size(); ++i) product[i] = times(left, right[i]);
    return product;
}

}  // namespace tailrace::internal
