// types.h - the types of data that a program has made: the size of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fti_on_tailrace {

class Types {
  public:
    // As many as FTI has.
    static constexpr size_t most = 64;

    // The new type's handle. Throws tailrace::Error if the size is 0, or there are too many.
    int add(size_t bytes);
    // Throws tailrace::Error if there is no such type.
    size_t bytes_of(int handle) const;
    // That `count` elements of a field lie inside of a type. Throws tailrace::Error if not.
    void check_field(int handle, int field, int64_t offset, const std::vector<int64_t>& extents) const;

  private:
    std::vector<size_t> bytes_;
};

}  // namespace fti_on_tailrace
