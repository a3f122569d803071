// Regions: what a rank has registered to be saved and restored, by name, in the order of registration.
//
// The memory stays the program's. Members may be called from any thread.
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
    // `exists`: whether a region of this name must be there already, to be replaced, or must not.
    Status put(std::string_view name, void* memory, uint64_t bytes, bool exists);
    Status put_array(std::string_view name, void* memory, const ArrayPiece& piece, const MemoryLayout& layout,
                     bool exists);
    Status remove(std::string_view name);

    // Those with these names, or all when there are none. invalid_argument for a name that is not registered.
    Result<std::vector<Registered>> choose(std::span<const std::string> names) const;
    // All, as a capture takes them.
    std::vector<RegionSource> sources() const;

  private:
    Status put(Registered region, bool exists);
    std::vector<Registered>::const_iterator find(std::string_view name) const REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::vector<Registered> regions_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
