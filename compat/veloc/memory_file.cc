#include "memory_file.h"

#include <istream>
#include <optional>

namespace veloc_on_tailrace {

namespace {

constexpr uint64_t count_bytes = 8, entry_bytes = 12, id_bytes = 4;
constexpr uint64_t most_regions = 1 << 20;

// Whatever order of bytes this machine has.
std::optional<uint64_t> number(std::istream& in, uint64_t bytes) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < bytes; ++i) {
        const int byte = in.get();
        if (!in) return std::nullopt;
        value |= static_cast<uint64_t>(byte) << (8 * i);
    }
    return value;
}

NoMemoryFile refusal(const std::string& name, const std::string& why) {
    return NoMemoryFile(name + " holds no regions of a rank: " + why);
}

}  // namespace

StoredPart read_part(std::istream& in, uint64_t begin, uint64_t file_bytes, const std::string& name) {
    in.seekg(static_cast<std::streamoff>(begin));
    const uint64_t room = file_bytes - begin;
    const auto count = number(in, count_bytes);
    if (!count || *count > most_regions || count_bytes + entry_bytes * *count > room)
        throw refusal(name, "the " + std::to_string(room) + " bytes from " + std::to_string(begin) +
                                " on have no room for the table that they announce");
    StoredPart part{{}, begin + count_bytes + entry_bytes * *count};
    for (uint64_t i = 0; i < *count; ++i) {
        const auto id = number(in, id_bytes), bytes = number(in, entry_bytes - id_bytes);
        if (!id || !bytes) throw refusal(name, "it ends in its table, or cannot be read");
        const StoredRegion region{static_cast<int32_t>(*id), part.end, *bytes};
        if (!part.regions.empty() && part.regions.back().id >= region.id)
            throw refusal(name, "its ids do not ascend");
        if (region.bytes > file_bytes - part.end)
            throw refusal(name, "id " + std::to_string(region.id) + " would end behind its end");
        part.end += region.bytes;
        part.regions.push_back(region);
    }
    return part;
}

std::vector<StoredRegion> read_head(std::istream& in, uint64_t file_bytes, const std::string& name) {
    auto part = read_part(in, 0, file_bytes, name);
    if (part.end != file_bytes)
        throw refusal(name, "its regions end at " + std::to_string(part.end) + " and not at its end, " +
                                std::to_string(file_bytes));
    return std::move(part.regions);
}

}  // namespace veloc_on_tailrace
