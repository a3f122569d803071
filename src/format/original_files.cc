#include "format/original_files.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "base/crc32c.h"
#include "base/text.h"

namespace tailrace::internal {

namespace {

constexpr std::string_view directory_suffix = ".files";
constexpr std::string_view unfinished_suffix = ".unfinished";
constexpr std::string_view first_line = "tailrace files 1";
constexpr std::string_view no_checksum = "-";

uint32_t checksum_of(std::string_view text) {
    return crc32c(std::as_bytes(std::span(text)));
}

std::string escaped(std::string_view name) {
    std::string text;
    for (const char c : name)
        if (c == '\n')
            text += "\\n";
        else if (c == '\\')
            text += "\\\\";
        else
            text += c;
    return text;
}

std::optional<std::string> unescaped(std::string_view text) {
    std::string name;
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '\\') {
            name += text[at];
            continue;
        }
        if (++at == text.size() || (text[at] != 'n' && text[at] != '\\')) return std::nullopt;
        name += text[at] == 'n' ? '\n' : '\\';
    }
    return name;
}

template <class T>
bool read_number(std::string_view text, T& number, int base = 10) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    return error == std::errc() && end == text.data() + text.size();
}

// Takes the text up to `end` off the front.
std::optional<std::string_view> take(std::string_view& text, char end) {
    const size_t at = text.find(end);
    if (at == std::string_view::npos) return std::nullopt;
    const auto taken = text.substr(0, at);
    text.remove_prefix(at + 1);
    return taken;
}

template <class T>
bool take_number(std::string_view& text, std::string_view label, char end, T& number, int base = 10) {
    if (!text.starts_with(label)) return false;
    text.remove_prefix(label.size());
    const auto digits = take(text, end);
    return digits && read_number(*digits, number, base);
}

std::optional<ListedFile> parse_file(std::string_view line) {
    ListedFile file;
    if (!line.starts_with("file ")) return std::nullopt;
    line.remove_prefix(5);
    const auto crc = take(line, ' ');
    if (!crc || !take_number(line, "", ' ', file.rights, 8) || !take_number(line, "", ' ', file.bytes))
        return std::nullopt;
    if (*crc != no_checksum && !read_number(*crc, file.crc.emplace(), 16)) return std::nullopt;
    auto name = unescaped(line);
    if (!name || (file.rights & ~file_rights) != 0) return std::nullopt;
    file.name = std::move(*name);
    return file;
}

std::optional<FileList> parse_list(std::string_view text) {
    FileList list;
    if (take(text, '\n') != first_line) return std::nullopt;
    const auto job = take(text, '\n');
    if (!job || !job->starts_with("job ")) return std::nullopt;
    list.job = job->substr(4);
    uint64_t count = 0;
    if (!check_job_name(list.job).ok() || !take_number(text, "epoch ", '\n', list.key.epoch) ||
        !take_number(text, "run ", '\n', list.key.run) || !take_number(text, "files ", '\n', count))
        return std::nullopt;
    FileNames names;
    while (!text.empty()) {
        const auto line = take(text, '\n');
        auto file = line ? parse_file(*line) : std::nullopt;
        if (!file || !names.add(file->name).ok()) return std::nullopt;
        list.files.push_back(std::move(*file));
    }
    if (list.files.size() != count) return std::nullopt;
    return list;
}

}  // namespace

std::optional<std::string_view> file_of_region(const Region& region) {
    std::string_view name = region.name;
    if (region.array || !name.starts_with(file_table_region)) return std::nullopt;
    name.remove_prefix(file_table_region.size());
    if (!check_file_name(name).ok()) return std::nullopt;
    return name;
}

size_t first_region_apart(const PartManifest& manifest) {
    size_t first = manifest.regions.size();
    while (manifest.files_apart && first > 0 && file_of_region(manifest.regions[first - 1])) --first;
    return first;
}

uint64_t apart_bytes(const PartManifest& manifest) {
    const size_t first = first_region_apart(manifest);
    return first == manifest.regions.size() ? 0
                                            : manifest.stream_bytes - manifest.regions[first].stream_offset;
}

std::vector<std::string> names_apart(const PartManifest& manifest) {
    std::vector<std::string> names;
    for (size_t r = first_region_apart(manifest); r < manifest.regions.size(); ++r)
        names.emplace_back(*file_of_region(manifest.regions[r]));
    return names;
}

Status name_is_taken(uint32_t rank, std::string_view name) {
    return Status(
        Code::invalid_argument,
        fmt::format(
            "rank {} and another rank have both saved a file \"{}\" (or the other one has a directory "
            "of that name); with files_as = original all files of an epoch lie together, so give "
            "each rank names of its own",
            rank, shortened(name)));
}

Status add_name_apart(FileNames& names, uint32_t rank, std::string_view name) {
    if (name == file_list_name || name.starts_with(file_list_name + "/"))
        return Status(Code::invalid_argument,
                      fmt::format("rank {} has saved a file \"{}\"; with files_as = original this name is "
                                  "kept for the mark of a complete directory",
                                  rank, name));
    return names.add(name).ok() ? Status() : name_is_taken(rank, name);
}

std::string original_files_directory(std::string_view job) {
    return std::string(job) + std::string(directory_suffix);
}

std::string original_files_name(uint64_t epoch) {
    return fmt::format("e{:09}", epoch);
}

std::optional<uint64_t> parse_original_files_name(std::string_view text) {
    uint64_t epoch = 0;
    if (!text.starts_with('e') || !read_number(text.substr(1), epoch) || original_files_name(epoch) != text)
        return std::nullopt;
    return epoch;
}

std::string unfinished_files_name(EpochKey key) {
    return fmt::format("e{:09}.r{:04}{}", key.epoch, key.run, unfinished_suffix);
}

std::optional<EpochKey> parse_unfinished_files_name(std::string_view text) {
    const auto whole = text;
    EpochKey key;
    if (!take_number(text, "e", '.', key.epoch) || !take_number(text, "r", '.', key.run) ||
        unfinished_files_name(key) != whole)
        return std::nullopt;
    return key;
}

std::string encode_file_list(const FileList& list) {
    std::string text = fmt::format("{}\njob {}\nepoch {}\nrun {}\nfiles {}\n", first_line, list.job,
                                   list.key.epoch, list.key.run, list.files.size());
    for (const auto& file : list.files)
        text += fmt::format("file {} {:04o} {} {}\n",
                            file.crc ? fmt::format("{:08x}", *file.crc) : std::string(no_checksum),
                            file.rights, file.bytes, escaped(file.name));
    return text + fmt::format("end {:08x}\n", checksum_of(text));
}

Result<FileList> decode_file_list(std::string_view text) {
    constexpr size_t end_bytes = 4 + 8 + 1;
    const auto damaged = [](std::string_view why) {
        return Status(Code::corrupt, fmt::format("a list of files: {}", why));
    };
    if (text.size() < end_bytes) return damaged("it is cut off");
    auto end = text.substr(text.size() - end_bytes);
    const auto lines = text.substr(0, text.size() - end_bytes);
    uint32_t crc = 0;
    if (!take_number(end, "end ", '\n', crc, 16)) return damaged("it is cut off");
    if (crc != checksum_of(lines)) return damaged("its checksum is wrong");
    auto list = parse_list(lines);
    if (!list) return damaged("a line of it cannot be read");
    return std::move(*list);
}

}  // namespace tailrace::internal
