// Random pieces of a small global array, right and wrong: gaps, overlaps, other shapes and types, empty
// pieces, ranks without one, declarations; and what an element-by-element count says about them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "format/manifest.h"

namespace tailrace::internal::testing_support {

struct RandomArray {
    std::string name;
    std::vector<std::optional<ArrayPiece>> pieces;  // by rank; nothing where the rank registers none
};
RandomArray random_array(std::mt19937_64& random, const std::string& name, size_t ranks,
                         bool may_be_declared = true);

// What the rule of array_check.h says, by counting how many pieces each element is in.
bool may_be_committed(const RandomArray& array);

// What the element at row-major place `at` of the array holds in rank `rank`'s piece.
inline uint32_t element_value(uint64_t at, uint32_t rank) {
    return static_cast<uint32_t>(at * 64 + rank);
}
// The piece's memory, of element_value(). Types are of 4 bytes.
std::vector<uint32_t> memory_of(const ArrayPiece& piece, uint32_t rank);
// By element: the value of the lowest rank that has it, or nothing.
std::vector<std::optional<uint32_t>> expected_whole(const RandomArray& array);

}  // namespace tailrace::internal::testing_support
