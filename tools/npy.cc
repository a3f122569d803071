#include "npy.h"

#include <fmt/format.h>

namespace tailrace::internal::tool {

std::string_view npy_type(ElementType type) {
    switch (type) {
        case ElementType::bytes:
            return "|u1";
        case ElementType::int8:
            return "|i1";
        case ElementType::uint8:
            return "|u1";
        case ElementType::int16:
            return "<i2";
        case ElementType::uint16:
            return "<u2";
        case ElementType::int32:
            return "<i4";
        case ElementType::uint32:
            return "<u4";
        case ElementType::int64:
            return "<i8";
        case ElementType::uint64:
            return "<u8";
        case ElementType::float16:
            return "<f2";
        case ElementType::bfloat16:
            return "<u2";
        case ElementType::float32:
            return "<f4";
        case ElementType::float64:
            return "<f8";
        case ElementType::complex64:
            return "<c8";
        case ElementType::complex128:
            return "<c16";
        case ElementType::boolean:
            return "|b1";
    }
    return "|u1";
}

std::string npy_header(ElementType type, std::span<const uint64_t> shape) {
    std::string extents;
    for (uint64_t extent : shape) extents += std::to_string(extent) + ", ";
    if (shape.size() > 1) extents.resize(extents.size() - 2);  // "(3, 4)", but "(3, )" for one dimension
    std::string description =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", npy_type(type), extents);
    constexpr size_t before = 10, alignment = 64;  // magic, version, 16-bit length
    const size_t total = (before + description.size() + 1 + alignment - 1) / alignment * alignment;
    description.resize(total - before - 1, ' ');
    description += '\n';
    std::string header("\x93NUMPY\x01\x00", 8);
    header += static_cast<char>(description.size() & 0xff);
    header += static_cast<char>(description.size() >> 8 & 0xff);
    return header + description;
}

}  // namespace tailrace::internal::tool
