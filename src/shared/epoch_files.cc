#include "shared/epoch_files.h"

#include <algorithm>

#include "shared/originals.h"

namespace tailrace::internal {

Status name_shared_epoch(Storage& storage, const std::string& directory, const std::string& job, EpochKey key,
                         uint32_t file_count) {
    for (uint32_t k = 0; k < file_count; ++k) {
        const SharedFileName name{job, key, k, file_count, false};
        const auto path = join_path(directory, to_string(name));
        const auto renamed = storage.rename(join_path(directory, unfinished_name(name)), path);
        if (renamed.code() == Code::not_found) {
            // It may have its name already. If that cannot be seen, it has not disappeared.
            const auto named = storage.open(path, {Access::read, DirectIo::off});
            if (named.ok()) continue;
            if (named.status().code() != Code::not_found) return named.status();
        }
        TAILRACE_TRY(renamed);
    }
    return storage.sync_directory(directory);
}

Status make_epoch_durable(Storage& storage, const SharedEpochFiles& files) {
    for (const auto& file : files.files) {
        if (!file.name.unfinished) continue;
        // If another node has renamed it meanwhile, a new and empty file must not take its place.
        TAILRACE_ASSIGN(const auto opened, storage.open(file.path, {Access::existing, DirectIo::off}));
        TAILRACE_TRY(opened->sync());
    }
    return {};
}

Status finish_epoch_names(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                          size_t file_count) {
    for (const auto& file : files.files) {
        if (!file.name.unfinished || file.name.count != file_count) continue;
        const bool both = std::any_of(files.files.begin(), files.files.end(), [&](const auto& other) {
            return other.name.index == file.name.index && other.name.count == file_count &&
                   !other.name.unfinished;
        });
        if (both) {
            TAILRACE_TRY(remove_if_there(storage, file.path));
            continue;
        }
        auto name = file.name;
        name.unfinished = false;
        TAILRACE_TRY(storage.rename(file.path, join_path(directory, to_string(name))));
    }
    TAILRACE_TRY(remove_other_attempts(storage, files, file_count));
    return storage.sync_directory(directory);
}

Status remove_other_attempts(Storage& storage, const SharedEpochFiles& files, size_t file_count) {
    for (const auto& file : files.files)
        if (file.name.unfinished && file.name.count != file_count)
            TAILRACE_TRY(remove_if_there(storage, file.path));
    return {};
}

// Final names go first: as long as an unfinished name is left, the rest is known to be a leftover.
// If the epoch has no unfinished name, one file gets one as a marker. A power cut may bring back
// any removal that was not synced, and then the marker must not be the only file that stays
// removed. So the directory is synced before the marker goes. Files that lie apart go last, because the epoch
// cannot be read without them.
Status remove_epoch_files(Storage& storage, const std::string& directory, SharedEpochFiles files) {
    const OriginalsPlace originals{storage, directory, files.job};
    if (files.files.empty()) return remove_originals(originals, files.key);
    TAILRACE_TRY(withdraw_originals(originals, files.key));
    if (!has_unfinished(files)) {
        auto& marker = files.files.back();
        auto name = marker.name;
        name.unfinished = true;
        const auto path = join_path(directory, to_string(name));
        TAILRACE_TRY(storage.rename(marker.path, path));
        TAILRACE_TRY(storage.sync_directory(directory));
        marker.path = path;
        marker.name = name;
    }
    for (const bool unfinished : {false, true}) {
        for (const auto& file : files.files)
            if (file.name.unfinished == unfinished) TAILRACE_TRY(remove_if_there(storage, file.path));
        TAILRACE_TRY(storage.sync_directory(directory));
    }
    return remove_originals(originals, files.key);
}

Status remove_shared_epoch(Storage& storage, const std::string& directory, const std::string& job,
                           EpochKey key) {
    TAILRACE_ASSIGN(auto files, find_shared(storage, directory, job, key));
    return files ? remove_epoch_files(storage, directory, std::move(*files))
                 : remove_originals({storage, directory, job}, key);
}

}  // namespace tailrace::internal
