#include "read/newest_epoch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "catalog/lineage.h"

namespace tailrace::internal {

Result<std::unique_ptr<EpochReader>> open_shared_epoch(Storage& storage, const SharedEpochFiles& files) {
    TAILRACE_ASSIGN(SharedEpoch shared, load_shared_epoch(storage, files));
    EpochSources sources;
    sources.key = shared.key;
    sources.rank_count = shared.rank_count;
    sources.shared = std::move(shared);
    TAILRACE_ASSIGN(auto reader, EpochReader::open(storage, storage, std::move(sources)));
    // A file that fails otherwise is needed by some calls only, and these report it.
    if (Status opened = reader->open_files(); opened.code() == Code::not_found) return opened;
    return reader;
}

namespace {

// The attempts at `epoch`, or at all epochs, newest first. They are of `job`, or of the only job
// there is.
Result<std::vector<SharedEpochFiles>> candidates(Storage& storage, const std::string& directory,
                                                 const std::string& job, std::optional<uint64_t> epoch) {
    TAILRACE_ASSIGN(auto found, list_shared(storage, directory, job));
    std::set<std::string> jobs;
    for (const auto& files : found) jobs.insert(files.job);
    if (jobs.size() > 1)
        return Status(Code::invalid_argument,
                      fmt::format("{} holds checkpoints of several jobs: {}; name one", directory,
                                  fmt::join(jobs, ", ")));
    if (epoch) std::erase_if(found, [&](const auto& files) { return files.key.epoch != *epoch; });
    const Lineage lineage(whole_epochs(storage, found, {}, {}));
    std::sort(found.begin(), found.end(),
              [&](const auto& a, const auto& b) { return lineage.goes_first(a.key, b.key); });
    return found;
}

// Opens the first candidate that is complete. The reader names the candidates before it that are
// damaged or have lost a file. It does not name unfinished ones: a run that was killed leaves those
// as a matter of course.
Result<std::unique_ptr<EpochReader>> open_first(Storage& storage, const std::vector<SharedEpochFiles>& found,
                                                const std::string& directory, const std::string& job,
                                                std::optional<uint64_t> epoch) {
    Status newest_failure;
    std::string damaged;
    for (const auto& files : found) {
        Result<std::unique_ptr<EpochReader>> opened = open_shared_epoch(storage, files);
        if (opened.ok()) {
            (*opened)->set_passed_over(std::move(damaged));
            return opened;
        }
        const Status why = opened.status();
        if (newest_failure.ok()) newest_failure = why;
        log(LogLevel::info, "{} in {} is passed over: {}", to_string(files.key), directory, why.message());
        if (why.code() != Code::not_found || !has_unfinished(files))
            damaged +=
                fmt::format("{}{}: {}", damaged.empty() ? "" : "; ", to_string(files.key), why.message());
    }
    const std::string what =
        fmt::format("no complete epoch{}{} in {}", epoch ? fmt::format(" {}", *epoch) : "",
                    job.empty() ? "" : " of job " + job, directory);
    if (newest_failure.ok()) return Status(Code::not_found, what);
    return newest_failure.with_context(what);
}

}  // namespace

Result<std::unique_ptr<EpochReader>> open_newest_epoch(Storage& storage, const std::string& directory,
                                                       const std::string& job,
                                                       std::optional<uint64_t> epoch) {
    TAILRACE_ASSIGN(auto found, candidates(storage, directory, job, epoch));
    while (true) {
        auto opened = open_first(storage, found, directory, job, epoch);
        if (opened.ok() && (*opened)->key() == found.front().key) return opened;
        TAILRACE_ASSIGN(auto again, candidates(storage, directory, job, epoch));
        if (paths_of(again) == paths_of(found)) {
            if (opened.ok() && !(*opened)->passed_over().empty())
                log(LogLevel::warning, "{} in {} is opened in place of damaged ones: {}",
                    to_string((*opened)->key()), directory, (*opened)->passed_over());
            return opened;
        }
        found = std::move(again);
    }
}

}  // namespace tailrace::internal
