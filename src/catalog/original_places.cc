#include "catalog/original_places.h"

#include <fmt/format.h>

#include <span>

namespace tailrace::internal {

namespace {

constexpr uint64_t max_list_bytes = 1 << 30;

}  // namespace

Result<FileList> read_file_list(Storage& storage, const std::string& directory) {
    const auto path = join_path(directory, file_list_name);
    TAILRACE_ASSIGN(const auto file, storage.open(path, {}));
    TAILRACE_ASSIGN(const uint64_t bytes, file->size());
    if (bytes > max_list_bytes) return Status(Code::corrupt, fmt::format("'{}' has {} bytes", path, bytes));
    std::string text(bytes, '\0');
    TAILRACE_ASSIGN(const size_t read, file->read_at(std::as_writable_bytes(std::span(text)), 0));
    text.resize(read);
    auto list = decode_file_list(text);
    if (!list.ok()) return list.status().with_context(path);
    return list;
}

// The complete directory has the epoch's number only, so another run's may have the name.
OriginalPlace place_of_originals(Storage& storage, const std::string& shared_dir, const std::string& job,
                                 EpochKey key) {
    const auto root = join_path(shared_dir, original_files_directory(job));
    const auto complete = join_path(root, original_files_name(key.epoch));
    const auto unfinished = join_path(root, unfinished_files_name(key));
    const auto list = read_file_list(storage, complete);
    if (!list.ok()) return {unfinished, complete};
    if (list->key == key && list->job == job) return {complete, unfinished};
    return {unfinished, {}};
}

Status are_originals_there(Storage& storage, const std::string& shared_dir, const std::string& job,
                           EpochKey key) {
    const auto place = place_of_originals(storage, shared_dir, job, key);
    for (const auto& directory : {place.directory, place.otherwise})
        if (!directory.empty() && storage.space(directory).status().code() != Code::not_found) return {};
    return Status(Code::corrupt,
                  fmt::format("the files of {} are gone: there is no '{}'", to_string(key), place.directory));
}

}  // namespace tailrace::internal
