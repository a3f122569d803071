#include "session/regions.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/file_table.h"
#include "format/original_files.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

Result<ArrayPiece> list_piece(std::string_view name, const ListItem& item, uint64_t bytes) {
    if (bytes % item.bytes() != 0)
        return Status(
            Code::invalid_argument,
            fmt::format(
                "list \"{}\": the program gave {} bytes, which are not a whole number of items of {} bytes",
                name, bytes, item.bytes()));
    auto shape = item.shape(bytes / item.bytes());
    ArrayPiece piece{item.type, shape, std::vector<uint64_t>(shape.size(), 0), shape};
    piece.is_list = true;
    return piece;
}

}  // namespace

std::vector<Registered>::const_iterator Regions::find(std::string_view name) const {
    return std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.name == name; });
}

Status Regions::put(Registered region, bool exists) {
    const auto& name = region.name;
    if (name.empty() || name.size() > max_region_name_bytes)
        return Status(Code::invalid_argument,
                      fmt::format("a region's name must have 1 to {} bytes; this one has {}",
                                  max_region_name_bytes, name.size()));
    if (name == file_table_region || name == original_files_region)
        return Status(
            Code::invalid_argument,
            fmt::format("the name \"{}\" is kept for what a program's files need; choose another", name));
    if (region.bytes > 0 && region.memory == nullptr)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\": {} bytes at a null pointer", name, region.bytes));
    MutexLock lock(mutex_);
    const auto found = find(name);
    if (exists && found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    if (exists && found->resizable)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\" follows the program's memory by itself; to register other "
                                  "memory, unregister it first",
                                  name));
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

Status Regions::put_resizable(std::string_view name, ResizableMemory memory, std::optional<ListItem> list) {
    return put({std::string(name), nullptr, 0, std::nullopt, {}, std::move(memory), list}, false);
}

Status Regions::set_owner(std::string_view name, ListOwner owner) {
    MutexLock lock(mutex_);
    const auto found = find(name);
    if (found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    if (!found->list)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\" is not a list, so its ranks keep what they have", name));
    regions_[static_cast<size_t>(found - regions_.begin())].owner = std::move(owner);
    return {};
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

Result<std::vector<RegionSource>> Regions::sources() const {
    // The program is asked without the lock: it may register something meanwhile, in another thread.
    TAILRACE_ASSIGN(auto regions, choose({}));
    std::vector<RegionSource> sources;
    for (auto& region : regions) {
        std::span<const std::byte> memory{region.memory, region.bytes};
        if (region.resizable) memory = region.resizable->find();
        if (memory.data() == nullptr && !memory.empty())
            return Status(Code::invalid_argument,
                          fmt::format("region \"{}\": the program gave {} bytes at a null pointer",
                                      region.name, memory.size()));
        if (region.list) {
            TAILRACE_ASSIGN(region.array, list_piece(region.name, *region.list, memory.size()));
        }
        sources.push_back(
            {std::move(region.name), memory, std::move(region.array), std::move(region.strides)});
    }
    return sources;
}

}  // namespace tailrace::internal
