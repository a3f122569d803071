// The finalizer of splitmix64 (S. Vigna): every bit of the result depends on every bit of the number.
#pragma once

#include <cstdint>

namespace tailrace::internal {

constexpr uint64_t mixed(uint64_t number) {
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

}  // namespace tailrace::internal
