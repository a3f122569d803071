#include "storage/lock_pieces.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/units.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t moosefs_chunk_bytes = 64 * MiB;

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (!line.empty()) {
        const size_t end = std::min(line.find(' '), line.size());
        if (end > 0) words.push_back(line.substr(0, end));
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    return words;
}

// Spaces and some other characters are written as a backslash and three octal digits.
std::string unescaped(std::string_view text) {
    std::string plain;
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\\' && at + 3 < text.size() && is_octal(text[at + 1]) && is_octal(text[at + 2]) &&
            is_octal(text[at + 3])) {
            plain += static_cast<char>((text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 +
                                       (text[at + 3] - '0'));
            at += 3;
        } else {
            plain += text[at];
        }
    }
    return plain;
}

bool lies_below(std::string_view path, std::string_view mount_point) {
    if (mount_point == "/") return true;
    return path.substr(0, mount_point.size()) == mount_point &&
           (path.size() == mount_point.size() || path[mount_point.size()] == '/');
}

bool is_moosefs(std::string_view type, std::string_view source) {
    return type == "fuse.mfs" || (type == "fuse" && source.substr(0, 4) == "mfs#");
}

}  // namespace

uint64_t lock_piece_bytes(std::string_view mountinfo, std::string_view path) {
    uint64_t bytes = 0;
    size_t longest = 0;
    while (!mountinfo.empty()) {
        const size_t end = std::min(mountinfo.find('\n'), mountinfo.size());
        const auto words = words_of(mountinfo.substr(0, end));
        mountinfo.remove_prefix(std::min(end + 1, mountinfo.size()));
        // id, parent, device, root, mount point, options, optional fields, "-", type, source,
        // options
        size_t dash = 6;
        while (dash < words.size() && words[dash] != "-") ++dash;
        if (dash + 2 >= words.size()) continue;
        const std::string mount_point = unescaped(words[4]);
        // If several are mounted at one place, the last one is visible.
        if (!lies_below(path, mount_point) || mount_point.size() < longest) continue;
        longest = mount_point.size();
        bytes = is_moosefs(words[dash + 1], unescaped(words[dash + 2])) ? moosefs_chunk_bytes : 0;
    }
    return bytes;
}

uint64_t lock_piece_bytes_of(const std::string& directory) {
    std::error_code error;
    const auto path = std::filesystem::canonical(directory, error);
    std::ifstream file("/proc/self/mountinfo");
    if (error || !file) return 0;
    const std::string mounts{std::istreambuf_iterator<char>(file), {}};
    return lock_piece_bytes(mounts, path.string());
}

}  // namespace tailrace::internal
