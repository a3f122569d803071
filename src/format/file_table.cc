#include "format/file_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "format/manifest.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t table_version = 1;
constexpr uint64_t least_entry_bytes = 4 + 4 + 1;
constexpr size_t max_name_bytes = max_region_name_bytes - file_table_region.size();

Status refused(std::string_view name, std::string_view why) {
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\" cannot be the name of a file of this program: {}; a name is a path "
                              "below the directory that tailrace gives, such as \"fields/u.h5\"",
                              shortened(name), why));
}

Status check_component(std::string_view name, std::string_view component) {
    if (component.empty())
        return refused(name, name.front() == '/' ? "it is absolute" : "it has one \"/\" too many");
    if (component == "." || component == "..")
        return refused(name, fmt::format("it has the component \"{}\"", component));
    if (component.size() > max_file_component_bytes)
        return refused(name, fmt::format("a component has {} bytes, but file systems allow {}",
                                         component.size(), max_file_component_bytes));
    return {};
}

// The directories of a name: "a" and "a/b" of "a/b/c".
std::vector<std::string> directories_of(std::string_view name) {
    std::vector<std::string> directories;
    for (size_t at = name.find('/'); at != std::string_view::npos; at = name.find('/', at + 1))
        directories.emplace_back(name.substr(0, at));
    return directories;
}

}  // namespace

std::string file_region(std::string_view name) {
    return std::string(file_table_region) + std::string(name);
}

Status check_file_name(std::string_view name) {
    if (name.empty()) return refused(name, "it is empty");
    if (name.find('\0') != std::string_view::npos) return refused(name, "it has a zero byte");
    if (name.size() > max_name_bytes)
        return refused(name,
                       fmt::format("it has {} bytes, but {} are possible", name.size(), max_name_bytes));
    const auto directories = static_cast<size_t>(std::count(name.begin(), name.end(), '/'));
    if (directories > max_file_directories)
        return refused(name, fmt::format("it has {} directories, but {} are possible", directories,
                                         max_file_directories));
    for (size_t from = 0; from <= name.size();) {
        const size_t end = std::min(name.find('/', from), name.size());
        TAILRACE_TRY(check_component(name, name.substr(from, end - from)));
        from = end + 1;
    }
    return {};
}

Status FileNames::check(std::string_view name) const {
    TAILRACE_TRY(check_file_name(name));
    if (contains(name))
        return Status(Code::already_exists, fmt::format("two files are named \"{}\"", shortened(name)));
    if (directories_.contains(std::string(name))) return refused(name, "another file has it as a directory");
    for (const auto& directory : directories_of(name))
        if (contains(directory))
            return refused(name, fmt::format("\"{}\" is a file already", shortened(directory)));
    return {};
}

Status FileNames::add(std::string_view name) {
    TAILRACE_TRY(check(name));
    const auto directories = directories_of(name);
    files_.emplace(name);
    directories_.insert(directories.begin(), directories.end());
    return {};
}

std::vector<std::byte> encode_file_table(std::span<const SavedFile> files) {
    ByteWriter out;
    out.put(table_version);
    out.put(static_cast<uint64_t>(files.size()));
    for (const auto& file : files) {
        out.put(file.rights);
        out.put_string(file.name);
    }
    return out.take();
}

Result<std::vector<SavedFile>> decode_file_table(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    if (const auto version = in.get<uint32_t>(); in.ok() && version != table_version)
        return Status(Code::unsupported,
                      fmt::format("a table of files of version {}: this library knows version {}", version,
                                  table_version));
    const auto damaged = [](std::string_view why) {
        return Status(Code::corrupt, fmt::format("a table of files: {}", why));
    };
    FileNames names;
    std::vector<SavedFile> files(in.get_count(least_entry_bytes));
    for (auto& file : files) {
        file.rights = in.get<uint32_t>();
        file.name = in.get_string(max_region_name_bytes);
        if (!in.ok()) break;
        if ((file.rights & ~file_rights) != 0)
            return damaged(fmt::format("the rights {:o} of \"{}\"", file.rights, shortened(file.name)));
        if (const Status added = names.add(file.name); !added.ok()) return damaged(added.message());
    }
    if (!in.at_end()) return damaged("it is cut off, or has more bytes than its entries");
    return files;
}

}  // namespace tailrace::internal
