// The hash FNV-1a: short, and the same on every machine. It tells names and layouts apart. It is no
// secret and no checksum. Pure.
//
// Source: G. Fowler, L. C. Noll, K.-P. Vo, "The FNV Non-Cryptographic Hash Algorithm"
// (draft-eastlake-fnv).
#pragma once

#include <cstdint>
#include <string_view>

namespace tailrace::internal {

template <class Hash, Hash start, Hash factor>
constexpr Hash fnv1a(std::string_view text) {
    Hash hash = start;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * factor;
    return hash;
}
constexpr uint32_t fnv1a_32(std::string_view text) {
    return fnv1a<uint32_t, 2166136261u, 16777619u>(text);
}
constexpr uint64_t fnv1a_64(std::string_view text) {
    return fnv1a<uint64_t, 14695981039346656037u, 1099511628211u>(text);
}

}  // namespace tailrace::internal
