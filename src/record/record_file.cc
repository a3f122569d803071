#include "record/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/fnv.h"
#include "base/log.h"

namespace tailrace::internal {

namespace {

constexpr std::string_view suffix = ".jsonl", suffix_before = ".1";
constexpr size_t hash_digits = 16;

std::string directory_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether this is a record's name: NAME-<hash>.jsonl, or with .1 behind it. A directory may hold
// other people's JSON lines.
bool is_record(std::string_view name) {
    if (name.ends_with(suffix_before)) name.remove_suffix(suffix_before.size());
    if (!name.ends_with(suffix)) return false;
    name.remove_suffix(suffix.size());
    const size_t dash = name.rfind('-');
    return dash != std::string_view::npos && name.size() - dash - 1 == hash_digits &&
           name.find_first_not_of("0123456789abcdef", dash + 1) == std::string_view::npos;
}

// Whether the file ends within a line. A writer that was killed, or a full disk, leaves it so.
Result<bool> ends_within_line(File& file, uint64_t size) {
    std::byte last{};
    if (size == 0) return false;
    TAILRACE_ASSIGN(const size_t read, file.read_at(std::span(&last, 1), size - 1));
    return read == 1 && last != std::byte{'\n'};
}

}  // namespace

Status RecordFile::append(std::string_view text) {
    TAILRACE_TRY(storage_.make_own_directories(directory_of(path_)));
    TAILRACE_ASSIGN(auto file, storage_.open(path_, {Access::write, DirectIo::off, true}));
    TAILRACE_ASSIGN(uint64_t size, file->size());
    if (size > 0 && size + text.size() > max_bytes_) {
        TAILRACE_TRY(file->close());
        TAILRACE_TRY(storage_.rename(path_, path_ + std::string(suffix_before)));
        TAILRACE_ASSIGN(file, storage_.open(path_, {Access::write, DirectIo::off, true}));
        size = 0;
    }
    TAILRACE_ASSIGN(const bool torn, ends_within_line(*file, size));
    const std::string whole = (size == 0 ? head_ : torn ? "\n" : "") + std::string(text);
    TAILRACE_TRY(file->write_at(std::as_bytes(std::span(whole.data(), whole.size())), size));
    return file->close();
}

std::string record_path(const std::string& directory, const std::string& job, const std::string& shared_dir) {
    return join_path(directory, fmt::format("{}-{:0{}x}{}", job, fnv1a_64(shared_dir), hash_digits, suffix));
}

void drop_old_records(Storage& storage, const std::string& directory, size_t keep) {
    auto entries = storage.list(directory);
    if (!entries.ok()) return;
    std::erase_if(*entries,
                  [](const DirectoryEntry& entry) { return entry.is_directory || !is_record(entry.name); });
    std::sort(entries->begin(), entries->end(),
              [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.modified > b.modified; });
    for (size_t i = keep; i < entries->size(); ++i) {
        const Status removed = remove_if_there(storage, join_path(directory, (*entries)[i].name));
        if (!removed.ok()) log(LogLevel::info, "an old record could not be removed: {}", removed.message());
    }
}

}  // namespace tailrace::internal
