// Finds the right name that is nearest to a wrong one, for messages. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tailrace::internal {

// The number of insertions, deletions and replacements of one character, and swaps of two
// neighbours, that turn a into b. Upper and lower case count as equal, and so do '-' and '_'.
size_t edit_distance(std::string_view a, std::string_view b);

// The first of the nearest names. `names` must not be empty.
std::string_view nearest_name(std::string_view wrong, std::span<const std::string_view> names);

// Whether a message should suggest `right`: at most half of the characters of `wrong` are wrong.
bool is_near(std::string_view wrong, std::string_view right);

}  // namespace tailrace::internal
