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

}  // namespace tailrace::internal
