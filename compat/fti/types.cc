#include "types.h"

#include <string>
#include <tailrace_types.hpp>

namespace fti_on_tailrace {

namespace {

[[noreturn]] void refuse(const std::string& why) {
    throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, why);
}

}  // namespace

int Types::add(size_t bytes) {
    if (bytes == 0) refuse("a type of 0 bytes; give its size");
    if (bytes_.size() >= most)
        refuse("there are " + std::to_string(most) + " types already, the most there can be");
    bytes_.push_back(bytes);
    return static_cast<int>(bytes_.size() - 1);
}

size_t Types::bytes_of(int handle) const {
    if (handle < 0 || static_cast<size_t>(handle) >= bytes_.size())
        refuse("there is no type " + std::to_string(handle) +
               "; take one of FTI_CHAR to FTI_LDBE after FTI_Init, or make one with FTI_InitType");
    return bytes_[static_cast<size_t>(handle)];
}

void Types::check_field(int handle, int field, int64_t offset, const std::vector<int64_t>& extents) const {
    const auto whole = static_cast<int64_t>(bytes_of(handle));
    auto bytes = static_cast<int64_t>(bytes_of(field));
    for (const auto extent : extents)
        if (extent < 1 || __builtin_mul_overflow(bytes, extent, &bytes))
            refuse("an extent of " + std::to_string(extent) + " elements; extents are 1 or more");
    if (offset < 0 || offset > whole || bytes > whole - offset)
        refuse("a field of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
               " does not fit into a type of " + std::to_string(whole) + " bytes");
}

}  // namespace fti_on_tailrace
