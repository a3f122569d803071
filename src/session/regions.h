// Regions: what a rank has registered to be saved and restored, by name and in the order of
// registration.
//
// The memory stays the program's. Any thread may call the members.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array/strides.h"
#include "base/status.h"
#include "capture/region_copy.h"
#include "format/manifest.h"
#include "threads/mutex.h"

namespace tailrace::internal {

struct Registered {
    std::string name;
    std::byte* memory = nullptr;  // the region's first byte
    uint64_t bytes = 0;
    std::optional<ArrayPiece> array;
    Strides strides = {};
};

class Regions {
  public:
    // `exists` true: a region of this name must be registered, and is replaced. False: it must not
    // be registered.
    Status put(std::string_view name, void* memory, uint64_t bytes, bool exists);
    Status put_array(std::string_view name, void* memory, const ArrayPiece& piece, const MemoryLayout& layout,
                     bool exists);
    Status remove(std::string_view name);

    // The regions with these names, or all if there are no names. invalid_argument for a name that
    // is not registered.
    Result<std::vector<Registered>> choose(std::span<const std::string> names) const;
    // All regions, in the form that a capture takes.
    std::vector<RegionSource> sources() const;

  private:
    Status put(Registered region, bool exists);
    std::vector<Registered>::const_iterator find(std::string_view name) const REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::vector<Registered> regions_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
