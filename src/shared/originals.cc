#include "shared/originals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "catalog/catalog.h"
#include "catalog/original_places.h"
#include "format/file_table.h"
#include "format/original_files.h"
#include "read/epoch_reader.h"
#include "read/saved_files.h"
#include "storage/system_path.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t piece_bytes = 4 << 20;  // of a node, beside the buffers of its flush

std::string directory_of(const OriginalsPlace& place) {
    return join_path(place.shared_dir, original_files_directory(place.job));
}
std::string unfinished_of(const OriginalsPlace& place, EpochKey key) {
    return join_path(directory_of(place), unfinished_files_name(key));
}

// ---- step 1 -------------------------------------------------------------------------------------

class OriginalsWriter {
  public:
    OriginalsWriter(const OriginalsPlace& place, Storage& local, EpochKey key, OriginalsAttempt attempt,
                    Throttle* throttle)
        : place_(place),
          local_(local),
          attempt_(attempt),
          throttle_(throttle),
          root_(unfinished_of(place, key)) {}

    Status write(const PartPlace& part) {
        TAILRACE_ASSIGN(const auto captured, captured_part(local_, part.path, part.offset));
        const uint32_t rank = captured.header.stream.rank;
        TAILRACE_ASSIGN(const auto reader,
                        EpochReader::open(local_, local_,
                                          {part.key, captured.header.rank_count, {captured}, std::nullopt}));
        TAILRACE_ASSIGN(const PartManifest* manifest, reader->manifest(rank));
        if (!wants_originals(*manifest)) return {};
        TAILRACE_ASSIGN(const auto files, files_of(*reader, rank));
        TAILRACE_TRY(make_root());
        for (const auto& file : files)
            TAILRACE_TRY(write_file(*reader, rank, file)
                             .with_context(fmt::format("writing the file \"{}\" of rank {} as it was",
                                                       shortened(file.name), rank)));
        return {};
    }

    // Everything in the directory is on the disk by now, but for names.
    Status sync_names() {
        if (made_.empty()) return {};
        for (const auto& directory : made_) TAILRACE_TRY(place_.storage.sync_directory(directory));
        TAILRACE_TRY(place_.storage.sync_directory(directory_of(place_)));
        return place_.storage.sync_directory(place_.shared_dir);
    }

  private:
    // What is in its way is no file of the epoch's. So its ranks' files are not to blame.
    Status make_root() {
        const Status made = make_directory(root_);
        return made.ok() ? made
                         : Status(made.code() == Code::invalid_argument ? Code::io_error : made.code(),
                                  made.message());
    }

    // `path` is the root or lies in it.
    Status make_directory(const std::string& path) {
        if (made_.contains(path)) return {};
        TAILRACE_TRY(place_.storage.make_directories(path));
        for (std::string made = path; made.size() >= root_.size(); made = parent_of(made)) made_.insert(made);
        return {};
    }

    Status write_file(EpochReader& reader, uint32_t rank, const EpochFile& file) {
        TAILRACE_TRY(add_name_apart(names_, rank, file.name));
        const auto path = join_path(root_, file.name);
        TAILRACE_TRY(make_directory(parent_of(path)));
        if (attempt_ == OriginalsAttempt::again) TAILRACE_TRY(remove_if_there(place_.storage, path));
        auto made =
            place_.storage.open(path, {.access = Access::create_new, .rights = file.rights & file_rights});
        if (made.status().code() == Code::already_exists) return name_is_taken(rank, file.name);
        TAILRACE_TRY(made.status());
        TAILRACE_TRY(reader.read_in_pieces(rank, file_region(file.name), piece_bytes,
                                           [&](uint64_t offset, std::span<const std::byte> piece) -> Status {
                                               if (throttle_ && !throttle_->pass(piece.size()))
                                                   return Status(Code::aborted, "the session ends");
                                               return (*made)->write_at(piece, offset);
                                           }));
        TAILRACE_TRY((*made)->sync());
        (*made)->drop_cache();
        return (*made)->close();
    }

    const OriginalsPlace& place_;
    Storage& local_;
    const OriginalsAttempt attempt_;
    FileNames names_;
    Throttle* const throttle_;
    const std::string root_;
    std::set<std::string> made_;
};

// ---- step 3 -------------------------------------------------------------------------------------

// What lies in a directory and in those below it: names from there on, and sizes.
Status find_files(Storage& storage, const std::string& directory, const std::string& prefix,
                  std::map<std::string, uint64_t>& files) {
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    for (const auto& entry : entries)
        if (entry.is_directory) {
            TAILRACE_TRY(
                find_files(storage, join_path(directory, entry.name), prefix + entry.name + "/", files));
        } else {
            files[prefix + entry.name] = entry.bytes;
        }
    return {};
}

// The files that the ranks of an epoch want there.
Result<FileList> list_of(const OriginalsPlace& place, EpochKey key) {
    TAILRACE_ASSIGN(const auto files, find_shared(place.storage, place.shared_dir, place.job, key));
    if (!files) return Status(Code::not_found, fmt::format("{} is not there", to_string(key)));
    TAILRACE_ASSIGN(auto epoch, load_shared_epoch(place.storage, *files));
    const uint32_t rank_count = epoch.rank_count;
    TAILRACE_ASSIGN(const auto reader,
                    EpochReader::open(place.storage, place.storage, {key, rank_count, {}, std::move(epoch)}));
    FileList list{place.job, key, {}};
    FileNames names;
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
        TAILRACE_ASSIGN(const PartManifest* manifest, reader->manifest(rank));
        if (!wants_originals(*manifest)) continue;
        TAILRACE_ASSIGN(const auto of_rank, files_of(*reader, rank));
        for (const auto& file : of_rank) {
            TAILRACE_TRY(add_name_apart(names, rank, file.name));
            const Region* region = find_region(*manifest, file_region(file.name));
            list.files.push_back({file.name, file.rights, file.bytes, whole_checksum(*manifest, *region)});
        }
    }
    return list;
}

// Every file must be there already. Their bytes were synced before the epoch was committed.
Status check_all_there(const std::string& directory, const FileList& list,
                       const std::map<std::string, uint64_t>& found) {
    for (const auto& file : list.files) {
        const auto there = found.find(file.name);
        if (there == found.end() || there->second != file.bytes)
            return Status(Code::io_error,
                          fmt::format("the file \"{}\" in {} {}; it had {} bytes when it was saved",
                                      shortened(file.name), directory,
                                      there == found.end() ? std::string("is gone")
                                                           : fmt::format("has {} bytes", there->second),
                                      file.bytes));
    }
    return {};
}

Status write_mark(Storage& storage, const std::string& directory, const FileList& list) {
    const std::string text = encode_file_list(list);
    TAILRACE_ASSIGN(const auto file, storage.open(join_path(directory, file_list_name), {Access::write}));
    TAILRACE_TRY(file->write_at(std::as_bytes(std::span(text)), 0));
    TAILRACE_TRY(file->truncate(text.size()));
    TAILRACE_TRY(file->sync());
    TAILRACE_TRY(file->close());
    return storage.sync_directory(directory);
}

// Cheaper than a listing. If it cannot be seen, it counts as there.
bool is_there(Storage& storage, const std::string& directory) {
    return storage.space(directory).status().code() != Code::not_found;
}

// Follows no link, because everything is removed as a file first, which removes a link and no directory.
Status remove_tree(Storage& storage, const std::string& path, bool is_directory = true) {
    const Status removed = remove_if_there(storage, path);
    if (removed.ok() || !is_directory) return removed;
    TAILRACE_ASSIGN(const auto entries, storage.list(path));
    for (const auto& entry : entries)
        TAILRACE_TRY(remove_tree(storage, join_path(path, entry.name), entry.is_directory));
    return storage.remove_directory(path);
}

// Gives the complete directory of `key` its unfinished name back. If there is a directory of that name, the
// epoch has been written again.
Status withdraw(const OriginalsPlace& place, EpochKey key) {
    const auto complete = join_path(directory_of(place), original_files_name(key.epoch));
    if (is_there(place.storage, unfinished_of(place, key))) {
        TAILRACE_TRY(place.storage.remove(join_path(complete, file_list_name)));
        TAILRACE_TRY(place.storage.sync_directory(complete));
        return remove_tree(place.storage, complete);
    }
    TAILRACE_TRY(place.storage.rename(complete, unfinished_of(place, key)));
    return place.storage.sync_directory(directory_of(place));
}

// Makes the name free, if an earlier attempt at the epoch has it.
Status make_way(const OriginalsPlace& place, EpochKey key, Replace replace) {
    const auto directory = join_path(directory_of(place), original_files_name(key.epoch));
    if (!is_there(place.storage, directory)) return {};
    const auto other = read_file_list(place.storage, directory);
    if (!other.ok())
        return other.status().with_context(
            fmt::format("'{}' is there already, and is left as it is", directory));
    if (replace == Replace::no)
        return Status(Code::already_exists,
                      fmt::format("'{}' is there already, of run {}; the next session replaces it", directory,
                                  other->key.run));
    return withdraw(place, other->key);
}

void settle(const OriginalsPlace& place, EpochKey key) {
    const auto unfinished = unfinished_of(place, key);
    const Status settled = [&]() -> Status {
        TAILRACE_ASSIGN(const auto files, find_shared(place.storage, place.shared_dir, place.job, key));
        if (files) return publish_originals(place, key, Replace::yes);
        log(LogLevel::info, "'{}' is removed, because its epoch is not there", unfinished);
        return remove_tree(place.storage, unfinished);
    }();
    if (!settled.ok()) log(LogLevel::warning, "'{}' stays as it is: {}", unfinished, settled.message());
}

}  // namespace

Status write_originals(const OriginalsPlace& place, Storage& local, std::span<const PartPlace> parts,
                       OriginalsAttempt attempt, Throttle* throttle) {
    if (parts.empty()) return {};
    OriginalsWriter writer(place, local, parts.front().key, attempt, throttle);
    for (const auto& part : parts) TAILRACE_TRY(writer.write(part));
    return writer.sync_names();
}

Status publish_originals(const OriginalsPlace& place, EpochKey key, Replace replace) {
    auto& storage = place.storage;
    const auto unfinished = unfinished_of(place, key);
    if (!is_there(storage, unfinished)) return {};
    const auto other =
        read_file_list(storage, join_path(directory_of(place), original_files_name(key.epoch)));
    if (other.ok() && other->key.run > key.run) return {};
    const Status published = [&]() -> Status {
        TAILRACE_ASSIGN(const auto list, list_of(place, key));
        std::map<std::string, uint64_t> found;
        TAILRACE_TRY(find_files(storage, unfinished, "", found));
        TAILRACE_TRY(check_all_there(unfinished, list, found));
        TAILRACE_TRY(write_mark(storage, unfinished, list));
        TAILRACE_TRY(make_way(place, key, replace));
        TAILRACE_TRY(
            storage.rename(unfinished, join_path(directory_of(place), original_files_name(key.epoch))));
        return storage.sync_directory(directory_of(place));
    }();
    // Another drain has done the same meanwhile.
    if (!published.ok() && !is_there(storage, unfinished)) return {};
    return published.with_context(fmt::format("completing the files of {}", to_string(key)));
}

void complete_originals(const OriginalsPlace& place, EpochKey key, Replace replace) {
    const Status published = publish_originals(place, key, replace);
    if (!published.ok())
        log(LogLevel::warning, "{} is committed, but its files stay under an unfinished name: {}",
            to_string(key), published.message());
}

Status withdraw_originals(const OriginalsPlace& place, EpochKey key) {
    const auto list =
        read_file_list(place.storage, join_path(directory_of(place), original_files_name(key.epoch)));
    // Otherwise the directory might be left without its epoch.
    if (!list.ok() && !is_damage(list.status())) return list.status();
    const bool is_its_own = list.ok() && list->key == key && list->job == place.job;
    return is_its_own ? withdraw(place, key) : Status();
}

Status remove_originals(const OriginalsPlace& place, EpochKey key) {
    TAILRACE_TRY(withdraw_originals(place, key));
    const auto unfinished = unfinished_of(place, key);
    return is_there(place.storage, unfinished) ? remove_tree(place.storage, unfinished) : Status();
}

void settle_originals(const OriginalsPlace& place) {
    const auto entries = place.storage.list(directory_of(place));
    if (!entries.ok()) {
        if (entries.status().code() != Code::not_found)
            log(LogLevel::warning, "the files of epochs in {} stay as they are: {}", directory_of(place),
                entries.status().message());
        return;
    }
    for (const auto& entry : *entries)
        if (const auto key = parse_unfinished_files_name(entry.name); key && entry.is_directory)
            settle(place, *key);
}

}  // namespace tailrace::internal
