#include "drain/tier_pass.h"

#include <set>

namespace tailrace::internal {

namespace {

// Why a pass says nothing of records, by their paths.
class Reasons {
  public:
    Reasons(Storage& local, const DirectoryPass& passed) : passed_(passed) {
        const auto unusable = list_unusable_records(local, passed.directory);
        if (unusable.ok()) unusable_.insert(unusable->begin(), unusable->end());
    }
    // The pass could have told of it.
    bool is_usable(const std::string& path) const {
        return passed_.failed.ok() && passed_.pass.busy.ok() && !unusable_.contains(path);
    }
    Status of(const std::string& path) const {
        if (is_usable(path)) return Status(Code::busy, "its plan record has just been written");
        if (!passed_.failed.ok()) return passed_.failed;
        if (unusable_.contains(path)) return Status(Code::corrupt, "its plan record cannot be used");
        return passed_.pass.busy;
    }

  private:
    const DirectoryPass& passed_;
    std::set<std::string> unusable_;
};

void find_untold(Storage& local, DirectoryPass& passed) {
    std::set<EpochKey> told;
    std::string shared_dir;
    for (const auto& epoch : passed.pass.epochs) {
        told.insert(epoch.key);
        shared_dir = epoch.shared_dir;
    }
    const auto files = local.list(passed.directory);
    if (!files.ok()) return;
    for (const auto& file : *files) {
        const auto name = parse_plan_file_name(file.name);
        if (name && !file.is_directory && !name->unfinished && !told.contains(name->key))
            passed.untold.push_back({join_path(passed.directory, file.name), *name, shared_dir, {}});
    }
    if (passed.untold.empty()) return;
    const Reasons reasons(local, passed);
    // An epoch that the program has kept on the nodes stays there if a newer one is finished.
    std::erase_if(passed.untold,
                  [&](const auto& record) { return record.name.local && reasons.is_usable(record.path); });
    for (auto& record : passed.untold) {
        record.why = reasons.of(record.path);
        const auto read = record.why.code() == Code::busy ? read_plan_record(local, record.path) : record.why;
        if (read.ok()) record.shared_dir = read->shared_dir;
    }
}

DirectoryPass pass_over(Storage& local, const std::string& directory, const PassOverDirectory& pass) {
    DirectoryPass passed{directory, {}, {}, {}};
    auto result = pass(directory);
    if (result.ok())
        passed.pass = std::move(*result);
    else
        passed.failed = result.status();
    find_untold(local, passed);
    return passed;
}

}  // namespace

Result<std::vector<std::string>> pass_over_tier(Storage& local, const std::string& local_dir,
                                                const std::string& job, const PassOverDirectory& pass,
                                                const std::function<void(const DirectoryPass&)>& hear) {
    std::vector<std::string> skipped;
    TAILRACE_ASSIGN(const auto directories, directories_to_drain(local, local_dir, skipped));
    for (const auto& directory : directories)
        if (job.empty() || job_of_directory(directory) == job) hear(pass_over(local, directory, pass));
    return skipped;
}

std::string job_of_directory(const std::string& directory) {
    const auto name = directory.substr(directory.rfind('/') + 1);
    const auto end = name.rfind(".node");
    const auto hash = end == std::string::npos ? end : name.rfind('-', end);
    return hash == std::string::npos ? std::string() : name.substr(0, hash);
}

}  // namespace tailrace::internal
