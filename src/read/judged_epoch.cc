#include "read/judged_epoch.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "catalog/lineage.h"
#include "format/part_file.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

// The epoch of a shared file, or a captured part by itself; also when the file has a name of its
// own.
Result<FoundEpoch> epoch_of_one_file(Storage& storage, const std::string& path) {
    auto part = captured_part(storage, path);
    if (part.ok()) return FoundEpoch{part->header.job, part->header.key, {}, {std::move(*part)}};
    if (parse_part_file_name(path.substr(path.rfind('/') + 1))) return part.status();
    TAILRACE_ASSIGN(auto files, epoch_of_file(storage, path));
    return FoundEpoch{files.job, files.key, std::move(files), {}};
}

std::vector<std::string> paths_of(const std::vector<FoundEpoch>& epochs) {
    std::vector<SharedEpochFiles> shared;
    for (const FoundEpoch& epoch : epochs)
        if (epoch.files) shared.push_back(*epoch.files);
    return paths_of(shared);
}

}  // namespace

Result<Found> find_epochs(Storage& storage, const std::string& directory, const std::string& job) {
    auto listed = list_shared(storage, directory, job);
    if (listed.status().code() == Code::invalid_argument) {  // no directory
        TAILRACE_ASSIGN(auto one, epoch_of_one_file(storage, directory));
        Found found;
        if (job.empty() || one.job == job) found.epochs.push_back(std::move(one));
        return found;
    }
    TAILRACE_ASSIGN(auto shared, std::move(listed));
    TAILRACE_ASSIGN(auto local, list_local(storage, directory, job));
    std::map<std::pair<std::string, EpochKey>, FoundEpoch> by_key;
    for (SharedEpochFiles& files : shared) {
        FoundEpoch& epoch = by_key[{files.job, files.key}];
        epoch.job = files.job;
        epoch.key = files.key;
        epoch.files = std::move(files);
    }
    for (CapturedPart& part : local.parts) {
        FoundEpoch& epoch = by_key[{part.header.job, part.header.key}];
        epoch.job = part.header.job;
        epoch.key = part.header.key;
        // One directory may hold parts of two layouts only by a copier's mistake: the first one's
        // count.
        if (!epoch.parts.empty() && epoch.parts.front().header.run_uid != part.header.run_uid) {
            local.leftovers.push_back(
                {part.path,
                 Status(Code::corrupt, "it belongs to another run than the other parts of its epoch")});
            continue;
        }
        epoch.parts.push_back(std::move(part));
    }
    Found found;
    found.leftovers = std::move(local.leftovers);
    for (auto& [key, epoch] : by_key) found.epochs.push_back(std::move(epoch));
    return found;
}

std::string_view completeness_name(Completeness completeness) {
    switch (completeness) {
        case Completeness::complete:
            return "complete";
        case Completeness::captured:
            return "captured";
        case Completeness::incomplete:
            return "incomplete";
        case Completeness::damaged:
            return "damaged";
        case Completeness::unreadable:
            return "unreadable";
    }
    return "";
}

uint32_t JudgedEpoch::rank_count() const {
    if (shared) return shared->rank_count;
    return found.parts.empty() ? 0 : found.parts.front().header.rank_count;
}

uint64_t JudgedEpoch::data_bytes() const {
    if (shared) return shared->stream_bytes;
    uint64_t bytes = 0;
    for (const CapturedPart& part : found.parts) bytes += part.header.stream.stream_bytes;
    return bytes;
}

uint64_t JudgedEpoch::file_bytes() const {
    uint64_t bytes = 0;
    if (found.files)
        for (const SharedFileEntry& file : found.files->files) bytes += file.bytes;
    for (const CapturedPart& part : found.parts) bytes += part_header_bytes + part.header.stream.stream_bytes;
    return bytes;
}

uint64_t JudgedEpoch::saved_unix_ms() const {
    if (shared) return shared->committed_unix_ms;
    uint64_t latest = 0;
    if (found.files)
        for (const SharedFileEntry& file : found.files->files)
            latest = std::max(latest, unix_ms(file.modified));
    return latest;
}

uint64_t JudgedEpoch::age_seconds() const {
    const uint64_t now = unix_ms_now(), saved = saved_unix_ms();
    return saved < now ? (now - saved) / 1000 : 0;
}

EpochSources JudgedEpoch::sources() const {
    return EpochSources{found.key, rank_count(), found.parts, shared};
}

JudgedEpoch judge(Storage& storage, FoundEpoch epoch) {
    JudgedEpoch judged;
    judged.found = std::move(epoch);
    if (!judged.found.files) {
        judged.completeness = Completeness::captured;
        return judged;
    }
    auto loaded = load_shared_epoch(storage, *judged.found.files);
    if (loaded.ok()) {
        judged.completeness = Completeness::complete;
        judged.shared = std::move(*loaded);
        return judged;
    }
    judged.why = loaded.status();
    switch (judged.why.code()) {
        case Code::not_found:
            judged.completeness = Completeness::incomplete;
            break;
        case Code::corrupt:
            judged.completeness = Completeness::damaged;
            break;
        default:
            judged.completeness = Completeness::unreadable;
            break;
    }
    return judged;
}

std::vector<JudgedEpoch> judge_all(Storage& storage, std::vector<FoundEpoch> epochs) {
    std::vector<JudgedEpoch> judged;
    for (FoundEpoch& epoch : epochs) judged.push_back(judge(storage, std::move(epoch)));
    for (size_t e = judged.size(); e-- > 1;) {
        // Ascending by (job, key): the attempts of an epoch are neighbours, the last run's last.
        const JudgedEpoch& later = judged[e];
        JudgedEpoch& earlier = judged[e - 1];
        earlier.replaced = later.found.job == earlier.found.job &&
                           later.found.key.epoch == earlier.found.key.epoch &&
                           (later.replaced || later.completeness == Completeness::complete);
    }
    std::map<std::string, std::vector<EpochKey>> whole;
    for (const JudgedEpoch& epoch : judged)
        if (epoch.why.ok()) whole[epoch.found.job].push_back(epoch.found.key);
    for (JudgedEpoch& epoch : judged)
        epoch.left_behind = !epoch.replaced && Lineage(whole[epoch.found.job]).left_behind(epoch.found.key);
    return judged;
}

Result<JudgedDirectory> judge_directory(Storage& storage, const std::string& directory,
                                        const std::string& job,
                                        const std::function<Status(std::vector<FoundEpoch>&)>& select) {
    constexpr int most_looks = 5;
    for (int look = 1;; ++look) {
        TAILRACE_ASSIGN(auto found, find_epochs(storage, directory, job));
        const auto before = paths_of(found.epochs);
        TAILRACE_TRY(select(found.epochs));
        JudgedDirectory judged{judge_all(storage, std::move(found.epochs)), std::move(found.leftovers)};
        const auto again = list_shared(storage, directory, job);
        if (look == most_looks || !again.ok() || paths_of(*again) == before) return judged;
    }
}

bool goes_first(const JudgedEpoch& a, const JudgedEpoch& b) {
    return std::tuple(a.left_behind, b.found.key) < std::tuple(b.left_behind, a.found.key);
}

}  // namespace tailrace::internal
