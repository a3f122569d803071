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
#include "session/resizable_memory.h"
#include "threads/mutex.h"

namespace tailrace::internal {

struct Registered {
    std::string name;
    std::byte* memory = nullptr;  // the region's first byte
    uint64_t bytes = 0;
    std::optional<ArrayPiece> array;
    Strides strides = {};
    // If it is set, `memory` and `bytes` are not used: the program is asked.
    std::optional<ResizableMemory> resizable = std::nullopt;
    std::optional<ListItem> list = std::nullopt;  // of resizable memory
    ListOwner owner = nullptr;                    // of a list; null: even shares
};

class Regions {
  public:
    // `exists` true: a region of this name must be registered, and is replaced. False: it must not
    // be registered.
    Status put(std::string_view name, void* memory, uint64_t bytes, bool exists);
    Status put_array(std::string_view name, void* memory, const ArrayPiece& piece, const MemoryLayout& layout,
                     bool exists);
    Status put_resizable(std::string_view name, ResizableMemory memory,
                         std::optional<ListItem> list = std::nullopt);
    Status set_owner(std::string_view name, ListOwner owner);
    Status remove(std::string_view name);

    // The regions with these names, or all if there are no names. invalid_argument for a name that
    // is not registered.
    Result<std::vector<Registered>> choose(std::span<const std::string> names) const;
    // All regions, in the form that a capture takes. Resizable memory is asked where it lies.
    Result<std::vector<RegionSource>> sources() const;

  private:
    Status put(Registered region, bool exists);
    std::vector<Registered>::const_iterator find(std::string_view name) const REQUIRES(mutex_);

    mutable Mutex mutex_;
    std::vector<Registered> regions_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
