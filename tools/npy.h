// The head of a NumPy .npy file (format 1.0). Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "format/manifest.h"

namespace tailrace::internal::tool {

// "<f4" for float32. bfloat16, which NumPy does not know, is written as the 16-bit integer of its bits.
std::string_view npy_type(ElementType type);

// Magic, version, and the description of a C-ordered array, padded so that the data behind it starts at a
// multiple of 64.
std::string npy_header(ElementType type, std::span<const uint64_t> shape);

}  // namespace tailrace::internal::tool
