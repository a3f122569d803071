#include "shared/takeover.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/log.h"
#include "catalog/catalog.h"
#include "shared/epoch_files.h"

namespace tailrace::internal {

namespace {

bool belongs_to(const SharedHeader& header, const SharedHeader& expected) {
    return header.job == expected.job && header.key == expected.key && header.run_uid == expected.run_uid &&
           header.file_index == expected.file_index && header.file_count == expected.file_count;
}

// A directory or pipe under the name of a file of ours. Whoever opens a session must not have to guess.
Status with_advice(const Status& why) {
    if (why.code() != Code::invalid_argument) return why;
    return Status(
        why.code(),
        why.message() + "; only tailrace gives files this name, and something else has it: remove that");
}

// The leaders whose slot or index is not valid.
std::vector<uint32_t> missing_leaders(const SharedFileHead& head) {
    std::vector<uint32_t> missing;
    for (uint32_t leader = 0; leader < head.header.leader_count; ++leader)
        if (!head.slots[leader].ok() || !head.indexes[leader] || !head.indexes[leader]->ok())
            missing.push_back(leader);
    return missing;
}

// Whether one of these is the file that `expected` is the header of, and is complete. The names must come in
// the order in which a file has them. A file that gets the next name at this moment is then not missed.
// `streams`, if given, are those that it must have.
Result<bool> complete_under_any(Storage& storage, const std::string& directory,
                                const std::vector<std::string>& names, const SharedHeader& expected,
                                const std::vector<StreamInfo>* streams) {
    for (const auto& name : names) {
        const auto head = read_shared_head(storage, join_path(directory, name));
        if (is_damage(head.status())) continue;
        TAILRACE_TRY(with_advice(head.status()));
        if (!belongs_to(head->header, expected) || !missing_leaders(*head).empty()) continue;
        // Each segment names all streams of the group.
        if (streams == nullptr || head->indexes.front()->value().streams == *streams) return true;
    }
    return false;
}

std::vector<uint32_t> all_leaders(const SharedHeader& header) {
    std::vector<uint32_t> all(header.leader_count);
    std::iota(all.begin(), all.end(), 0u);
    return all;
}

// The takeovers of a directory, by epoch.
Result<std::map<EpochKey, std::vector<SharedFileEntry>>> list_takeovers(Storage& storage,
                                                                        const std::string& directory,
                                                                        const std::string& job) {
    std::map<EpochKey, std::vector<SharedFileEntry>> found;
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    for (const auto& entry : entries) {
        auto name = parse_takeover_name(entry.name);
        if (!name || name->job != job) continue;
        name->unfinished = true;  // as which it counts when it is complete
        found[name->key].push_back({join_path(directory, entry.name), *name, entry.bytes, entry.modified});
    }
    return found;
}

Result<bool> is_complete(Storage& storage, const SharedFileEntry& takeover) {
    const auto head = read_shared_head(storage, takeover.path);
    if (is_damage(head.status())) return false;
    TAILRACE_TRY(with_advice(head.status()));
    const auto& header = head->header;
    const auto& name = takeover.name;
    return header.job == name.job && header.key == name.key && header.file_index == name.index &&
           header.file_count == name.count && missing_leaders(*head).empty();
}

Result<SharedEpochFiles> files_of(Storage& storage, const std::string& directory, const std::string& job,
                                  EpochKey key) {
    TAILRACE_ASSIGN(auto files, find_shared(storage, directory, job, key));
    return std::move(files).value_or(SharedEpochFiles{job, key, {}});
}

Status remove_takeovers(Storage& storage, const std::vector<SharedFileEntry>& takeovers) {
    for (const auto& takeover : takeovers) {
        const Status removed = remove_if_there(storage, takeover.path);
        if (!removed.ok()) return with_advice(removed);
    }
    return {};
}

// Step 2. `complete` are the takeovers that count, `files` what lies there under other names. A file with its
// final name is one that is damaged, or the epoch would need no takeover. It is replaced at once: if it was
// removed first, that could hit a good file, which another node has named meanwhile.
Status take_their_places(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                         const std::vector<SharedFileEntry>& complete) {
    for (const auto& takeover : complete) {
        const bool in_the_way =
            std::any_of(files.files.begin(), files.files.end(), [&](const SharedFileEntry& file) {
                return !file.name.unfinished && file.name.index == takeover.name.index &&
                       file.name.count == takeover.name.count;
            });
        auto name = takeover.name;
        name.unfinished = false;
        TAILRACE_TRY(storage.rename(
            takeover.path, join_path(directory, in_the_way ? to_string(name) : unfinished_name(name))));
    }
    return storage.sync_directory(directory);
}

// Files of one K that may be the whole epoch.
struct Attempt {
    SharedEpochFiles files;
    std::vector<SharedFileEntry> takeovers;  // those of them that are takeovers
};

// First what programs have left, then what it is with the complete takeovers in its place. (A session may
// have flushed the epoch again, with another K than the plan records have.)
Result<std::vector<Attempt>> attempts_at(Storage& storage, const SharedEpochFiles& files,
                                         const std::vector<SharedFileEntry>& takeovers) {
    std::map<uint32_t, Attempt> of_programs, with_takeovers;  // by K
    for (const auto& file : files.files)
        of_programs.try_emplace(file.name.count, Attempt{{files.job, files.key, {}}, {}})
            .first->second.files.files.push_back(file);
    for (const auto& takeover : takeovers) {
        TAILRACE_ASSIGN(const bool counts, is_complete(storage, takeover));
        if (!counts) continue;
        const uint32_t count = takeover.name.count;
        auto& attempt = with_takeovers[count];
        if (attempt.takeovers.empty())
            attempt =
                of_programs.contains(count) ? of_programs[count] : Attempt{{files.job, files.key, {}}, {}};
        std::erase_if(attempt.files.files,
                      [&](const SharedFileEntry& file) { return file.name.index == takeover.name.index; });
        attempt.files.files.push_back(takeover);
        attempt.takeovers.push_back(takeover);
    }
    std::vector<Attempt> all;
    for (auto* attempts : {&of_programs, &with_takeovers})
        for (auto& [count, attempt] : *attempts) all.push_back(std::move(attempt));
    return all;
}

// Steps 2 and 3, for the epoch that `takeovers` and the files under other names make together.
// not_found: another node is doing the same.
Result<bool> name_once(Storage& storage, const std::string& directory, const std::string& job, EpochKey key) {
    TAILRACE_ASSIGN(auto all_takeovers, list_takeovers(storage, directory, job));
    const auto& takeovers = all_takeovers[key];
    TAILRACE_ASSIGN(auto files, files_of(storage, directory, job, key));
    TAILRACE_ASSIGN(const auto attempts, attempts_at(storage, files, takeovers));
    for (const auto& attempt : attempts) {
        const auto epoch = load_shared_epoch(storage, attempt.files);
        // corrupt: of a group with several files, some are the program's and some the node's. The node
        // has not written all of its own yet.
        if (is_damage(epoch.status())) continue;
        TAILRACE_TRY(epoch.status());
        if (!attempt.takeovers.empty()) {
            // Under the names that readers know there must not be files of two K's that could both be whole.
            TAILRACE_TRY(remove_other_attempts(storage, files, epoch->paths.size()));
            TAILRACE_TRY(take_their_places(storage, directory, files, attempt.takeovers));
        }
        TAILRACE_ASSIGN(files, files_of(storage, directory, job, key));
        // The slots were seen, but their writers' syncs may not have ended.
        TAILRACE_TRY(make_epoch_durable(storage, files));
        TAILRACE_TRY(finish_epoch_names(storage, directory, files, epoch->paths.size()));
        TAILRACE_TRY(remove_takeovers(storage, takeovers));
        TAILRACE_TRY(remove_share_locks(storage, directory, job, key));
        return true;
    }
    return false;
}

}  // namespace

Result<std::vector<EpochKey>> begun_takeovers(Storage& storage, const std::string& directory,
                                              const std::string& job) {
    TAILRACE_ASSIGN(const auto takeovers, list_takeovers(storage, directory, job));
    std::vector<EpochKey> begun;
    for (const auto& [key, files] : takeovers) begun.push_back(key);
    return begun;
}

Result<TakeoverProgress> takeover_progress(Storage& storage, const std::string& directory,
                                           const SharedHeader& header,
                                           const std::vector<StreamInfo>& streams) {
    const SharedFileName name{header.job, header.key, header.file_index, header.file_count, false};
    TakeoverProgress progress;
    progress.missing = all_leaders(header);
    const auto head = read_shared_head(storage, join_path(directory, takeover_name(name)));
    progress.begun = head.status().code() != Code::not_found;
    if (head.ok() && head->header == header)
        progress.missing = missing_leaders(*head);
    else if (!head.ok() && !is_damage(head.status()))
        return with_advice(head.status());
    TAILRACE_ASSIGN(
        progress.complete_under_its_name,
        complete_under_any(storage, directory, {unfinished_name(name), to_string(name)}, header, &streams));
    return progress;
}

Result<bool> share_is_written(Storage& storage, const std::string& directory,
                              const std::vector<SharedHeader>& headers,
                              const std::vector<StreamInfo>& streams, uint32_t leader) {
    for (const auto& header : headers) {
        TAILRACE_ASSIGN(const auto file, takeover_progress(storage, directory, header, streams));
        const bool lacks_it =
            std::find(file.missing.begin(), file.missing.end(), leader) != file.missing.end();
        if (lacks_it && (file.begun || !file.complete_under_its_name)) return false;
    }
    return true;
}

Result<std::unique_ptr<NumberLock>> lock_share(Storage& storage, const std::string& directory,
                                               const std::string& job, EpochKey key, uint32_t node) {
    auto lock = storage.lock_number(join_path(directory, to_string(TakeoverLockName{job, key})), node);
    if (!lock.ok()) return with_advice(lock.status());
    return lock;
}

Status remove_share_locks(Storage& storage, const std::string& directory, const std::string& job,
                          EpochKey key) {
    return with_advice(remove_if_there(storage, join_path(directory, to_string(TakeoverLockName{job, key}))));
}

Result<bool> file_is_complete(Storage& storage, const std::string& directory, const SharedHeader& header) {
    const SharedFileName name{header.job, header.key, header.file_index, header.file_count, false};
    return complete_under_any(storage, directory,
                              {takeover_name(name), unfinished_name(name), to_string(name)}, header, nullptr);
}

Result<bool> name_if_complete(Storage& storage, const std::string& directory, const std::string& job,
                              EpochKey key) {
    // Where several nodes do the same, a file may be gone because another node has renamed it. Each
    // try lists the directory again, and finds the files under their present names.
    constexpr int max_tries = 10;
    for (int tries = 1; true; ++tries) {
        auto named = name_once(storage, directory, job, key);
        if (named.status().code() != Code::not_found || tries == max_tries) return named;
    }
}

Status clear_takeovers(Storage& storage, const std::string& directory, const std::string& job) {
    TAILRACE_ASSIGN(const auto found, list_takeovers(storage, directory, job));
    for (const auto& [key, takeovers] : found) {
        TAILRACE_ASSIGN(const bool complete, name_if_complete(storage, directory, job, key));
        if (complete) continue;
        log(LogLevel::info,
            "{}: the files that nodes had begun on their own are not complete and are removed",
            to_string(key));
        TAILRACE_TRY(remove_takeovers(storage, takeovers));
        // A power cut must not bring them back. Nodes would take their shares for written, although what
        // belongs to them (shared/originals.h) is removed by then.
        TAILRACE_TRY(storage.sync_directory(directory));
    }
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    for (const auto& entry : entries)
        if (const auto name = parse_takeover_lock_name(entry.name); name && name->job == job)
            TAILRACE_TRY(remove_share_locks(storage, directory, job, name->key));
    return {};
}

}  // namespace tailrace::internal
