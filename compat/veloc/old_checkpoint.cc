#include "old_checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace veloc_on_tailrace {

namespace {

constexpr std::string_view ending = ".dat";
constexpr int aggregated = -1;  // in place of a rank

struct FileName {
    int rank;
    int version;
};

std::optional<int> number_of(std::string_view text) {
    int number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < 0)
        return std::nullopt;
    return number;
}

// From the right, because a name may have hyphens and digits.
std::optional<FileName> parse(std::string_view file, std::string_view name) {
    if (!file.ends_with(ending)) return std::nullopt;
    file.remove_suffix(ending.size());
    const auto before_version = file.rfind('-');
    if (before_version == std::string_view::npos) return std::nullopt;
    const auto version = number_of(file.substr(before_version + 1));
    file = file.substr(0, before_version);
    const auto before_rank = file.rfind('-');
    if (!version || before_rank == std::string_view::npos || file.substr(0, before_rank) != name)
        return std::nullopt;
    const auto rank_text = file.substr(before_rank + 1);
    if (rank_text == "agg") return FileName{aggregated, *version};
    const auto rank = number_of(rank_text);
    if (!rank) return std::nullopt;
    return FileName{*rank, *version};
}

bool may_be_whole(const std::set<int>& ranks, const Owner& owner) {
    if (owner.alone) return ranks.contains(owner.rank);
    if (ranks.contains(aggregated)) return true;
    // Exactly the ranks from 0 on: each is there once.
    return ranks.size() == static_cast<size_t>(owner.count) && *ranks.rbegin() == owner.count - 1;
}

std::string path_of(const std::string& directory, const std::string& name, const std::string& rank,
                    int version) {
    return directory + "/" + name + "-" + rank + "-" + std::to_string(version) + std::string(ending);
}

// The regions of one rank among those of all.
std::vector<StoredRegion> find_aggregated(std::istream& in, uint64_t file_bytes, const std::string& path,
                                          const Owner& owner) {
    std::vector<StoredRegion> own;
    uint64_t begin = 0;
    for (int rank = 0; rank < owner.count; ++rank) {
        auto part = read_part(in, begin, file_bytes, path);
        begin = part.end;
        if (rank == owner.rank) own = std::move(part.regions);
    }
    if (begin != file_bytes)
        throw NoMemoryFile(path + " holds more than the regions of " + std::to_string(owner.count) +
                           " ranks; start as many ranks as have written it");
    return own;
}

}  // namespace

std::vector<int> versions_of(const std::vector<std::string>& file_names, const std::string& name,
                             const Owner& owner) {
    std::map<int, std::set<int>> ranks_of_version;
    for (const auto& file_name : file_names)
        if (const auto parsed = parse(file_name, name))
            ranks_of_version[parsed->version].insert(parsed->rank);
    std::vector<int> versions;
    for (const auto& [version, ranks] : ranks_of_version)
        if (may_be_whole(ranks, owner)) versions.push_back(version);
    std::reverse(versions.begin(), versions.end());
    return versions;
}

std::vector<int> versions_in(const std::string& directory, const std::string& name, const Owner& owner) {
    std::vector<std::string> file_names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
         entry.increment(error))
        file_names.push_back(entry->path().filename().string());
    return error ? std::vector<int>() : versions_of(file_names, name, owner);
}

OldCheckpoint::OldCheckpoint(const std::string& directory, const std::string& name, int version,
                             const Owner& owner) {
    auto path = path_of(directory, name, std::to_string(owner.rank), version);
    const bool is_aggregated = !owner.alone && !std::filesystem::exists(path);
    if (is_aggregated) path = path_of(directory, name, "agg", version);
    std::ifstream in(path, std::ios::binary);
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    if (!in || error) throw NoMemoryFile(path + " cannot be opened");
    map(path, is_aggregated ? find_aggregated(in, bytes, path, owner) : read_head(in, bytes, path));
}

void OldCheckpoint::map(const std::string& path, const std::vector<StoredRegion>& regions) {
    const uint64_t end = regions.empty() ? 0 : regions.back().offset + regions.back().bytes;
    if (end == 0) throw NoMemoryFile(path + " holds no region of this rank");
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const memory = file < 0 ? MAP_FAILED : ::mmap(nullptr, end, PROT_READ, MAP_PRIVATE, file, 0);
    const int why = errno;
    if (file >= 0) ::close(file);
    if (memory == MAP_FAILED) throw NoMemoryFile(path + " cannot be mapped: " + std::strerror(why));
    mapping_ = {static_cast<const std::byte*>(memory), end};
    for (const auto& region : regions)
        pieces_.push_back({region.id, mapping_.subspan(region.offset, region.bytes)});
}

OldCheckpoint::~OldCheckpoint() {
    if (!mapping_.empty()) ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

}  // namespace veloc_on_tailrace
