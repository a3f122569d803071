#include "session/regions.h"

#include <fmt/format.h>

#include <algorithm>

#include "threads/mutex.h"

namespace tailrace::internal {

std::vector<Registered>::const_iterator Regions::find(std::string_view name) const {
    return std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.name == name; });
}

Status Regions::put(Registered region, bool exists) {
    const auto& name = region.name;
    if (name.empty() || name.size() > max_region_name_bytes)
        return Status(Code::invalid_argument,
                      fmt::format("a region's name must have 1 to {} bytes; this one has {}",
                                  max_region_name_bytes, name.size()));
    if (region.bytes > 0 && region.memory == nullptr)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\": {} bytes at a null pointer", name, region.bytes));
    MutexLock lock(mutex_);
    const auto found = find(name);
    if (exists && found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    if (!exists && found != regions_.end())
        return Status(Code::already_exists,
                      fmt::format("region \"{}\" is registered already and was left as it is; to change it, "
                                  "update or unregister it",
                                  name));
    if (exists)
        regions_[static_cast<size_t>(found - regions_.begin())] = std::move(region);
    else
        regions_.push_back(std::move(region));
    return {};
}

Status Regions::put(std::string_view name, void* memory, uint64_t bytes, bool exists) {
    return put({std::string(name), static_cast<std::byte*>(memory), bytes, std::nullopt}, exists);
}

Status Regions::put_array(std::string_view name, void* memory, const ArrayPiece& piece,
                          const MemoryLayout& layout, bool exists) {
    const auto context = fmt::format("array \"{}\"", name);
    TAILRACE_TRY(check_array_piece(piece).with_context(context));
    auto place = place_in_memory(piece, layout);
    if (!place.ok()) return place.status().with_context(context);
    auto* first = static_cast<std::byte*>(memory);
    if (first != nullptr) first += place->first_byte;
    return put({std::string(name), first, array_bytes(piece), piece, std::move(place->strides)}, exists);
}

Status Regions::remove(std::string_view name) {
    MutexLock lock(mutex_);
    const auto found = find(name);
    if (found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    regions_.erase(found);
    return {};
}

Result<std::vector<Registered>> Regions::choose(std::span<const std::string> names) const {
    MutexLock lock(mutex_);
    if (names.empty()) return regions_;
    std::vector<Registered> chosen;
    for (const auto& name : names) {
        const auto found = find(name);
        if (found == regions_.end())
            return Status(Code::invalid_argument,
                          fmt::format("region \"{}\" is not registered, so it cannot be restored", name));
        chosen.push_back(*found);
    }
    return chosen;
}

std::vector<RegionSource> Regions::sources() const {
    MutexLock lock(mutex_);
    std::vector<RegionSource> sources;
    for (const auto& region : regions_)
        sources.push_back({region.name, {region.memory, region.bytes}, region.array, region.strides});
    return sources;
}

}  // namespace tailrace::internal
