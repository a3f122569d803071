// Boxes as text: "0:10, 5:20, 7, :". Pure.
#pragma once

#include <span>
#include <string_view>

#include "array/hyperslab.h"
#include "base/status.h"

namespace tailrace::internal::tool {

// One range per dimension of `shape`, separated by commas. A range is "from:to", without `to`
// itself. Either end may be left out and then is the dimension's end. A range may also be one
// index, which keeps the dimension with extent 1. invalid_argument says which range is wrong and
// what the dimension has.
Result<Box> parse_box(std::string_view text, std::span<const uint64_t> shape);

}  // namespace tailrace::internal::tool
