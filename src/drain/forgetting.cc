#include "drain/forgetting.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "capture/file_sets.h"
#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "drain/recorded_epochs.h"
#include "drain/tier_pass.h"
#include "protect/protect_object.h"

namespace tailrace::internal {

namespace {

// In the order of removal.
enum class Kind { plan, kept_plan, protect, part };

struct NamedFile {
    Kind kind = Kind::part;
    std::string job;
    EpochKey key;
};

std::optional<NamedFile> file_named(const std::string& name) {
    if (const auto plan = parse_plan_file_name(name)) return NamedFile{Kind::plan, plan->job, plan->key};
    if (const auto plan = parse_kept_plan_file_name(name))
        return NamedFile{Kind::kept_plan, plan->job, plan->key};
    if (const auto object = parse_protect_file_name(name))
        return NamedFile{Kind::protect, object->job, object->key};
    if (const auto part = parse_part_file_name(name)) return NamedFile{Kind::part, part->job, part->key};
    return std::nullopt;
}

// All paths that mean this directory here and now.
std::set<std::string> texts_of(const std::string& shared_dir, const LocalTier& tier) {
    std::error_code error;
    auto text = std::filesystem::absolute(shared_dir, error).lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    return {error ? shared_dir : text, tier.shared_text};
}

// What one node's directory holds.
class NodeDirectory {
  public:
    NodeDirectory(Storage& storage, std::string path) : storage_(storage), path_(std::move(path)) {}

    Status look() {
        TAILRACE_ASSIGN(const auto entries, storage_.list(path_));
        for (const auto& entry : entries) {
            if (const auto file = file_named(entry.name); file && !entry.is_directory) take(entry, *file);
            if (is_file_set(entry)) file_sets_.push_back(join_path(path_, entry.name));
        }
        shared_dirs_.erase("");
        return {};
    }

    bool names_any(const std::set<std::string>& texts) const {
        return std::any_of(texts.begin(), texts.end(),
                           [&](const auto& text) { return shared_dirs_.contains(text); });
    }
    const std::set<std::string>& shared_dirs() const { return shared_dirs_; }

    using Key = std::pair<std::string, EpochKey>;
    struct Found {
        HeldEpoch epoch;
        std::map<std::pair<Kind, std::string>, HeldFile> files;  // in the order of removal
    };
    void add_to(std::map<Key, Found>& all) const {
        for (const auto& [key, found] : found_) {
            auto& epoch = all[key];
            epoch.epoch.ranks_here += found.epoch.ranks_here;
            epoch.epoch.rank_count = std::max(epoch.epoch.rank_count, found.epoch.rank_count);
            epoch.files.insert(found.files.begin(), found.files.end());
        }
    }
    const std::vector<std::string>& file_sets() const { return file_sets_; }
    bool empty() const { return found_.empty() && file_sets_.empty(); }

  private:
    void take(const DirectoryEntry& entry, const NamedFile& file) {
        const auto path = join_path(path_, entry.name);
        auto& found = found_[{file.job, file.key}];
        found.files[{file.kind, path}] = {path, entry.bytes};
        if (file.kind == Kind::part) {
            const auto part = captured_part(storage_, path);
            if (!part.ok()) return;
            ++found.epoch.ranks_here;
            found.epoch.rank_count = part->header.rank_count;
            shared_dirs_.insert(part->header.shared_dir);
        } else if (file.kind == Kind::protect) {
            const auto head = ObjectReader::read_head(storage_, path);
            if (head.ok()) shared_dirs_.insert(head->identity.shared_dir);
        } else {
            const auto record = read_plan_record(storage_, path);
            if (record.ok()) shared_dirs_.insert(record->shared_dir);
        }
    }

    Storage& storage_;
    const std::string path_;
    std::map<Key, Found> found_;
    std::vector<std::string> file_sets_;
    std::set<std::string> shared_dirs_;  // that its files name
};

}  // namespace

uint64_t HeldEpoch::bytes() const {
    uint64_t sum = 0;
    for (const auto& file : files) sum += file.bytes;
    return sum;
}

Result<HeldForDirectory> find_held(Storage& local, const std::string& local_dir,
                                   const std::string& shared_dir, const std::string& job) {
    HeldForDirectory held;
    std::map<NodeDirectory::Key, NodeDirectory::Found> found;
    const auto entries = local.list(local_dir);
    if (entries.status().code() == Code::not_found) return held;
    TAILRACE_TRY(entries.status());
    for (const auto& entry : *entries) {
        const auto job_here = job_of_directory(entry.name);
        if (!entry.is_directory || job_here.empty() || (!job.empty() && job != job_here)) continue;
        const auto path = join_path(local_dir, entry.name);
        NodeDirectory directory(local, path);
        if (const Status looked = directory.look(); !looked.ok()) {
            held.skipped.push_back(fmt::format("{} is skipped: {}", path, looked.message()));
            continue;
        }
        const auto tier = local_tier(local_dir, shared_dir, job_here);
        // Two paths may have one hash, so what files say counts more.
        const bool ours = directory.shared_dirs().empty()
                              ? entry.name.starts_with(tier.prefix) || entry.name.starts_with(tier.old_prefix)
                              : directory.names_any(texts_of(shared_dir, tier));
        if (directory.empty() || !ours) continue;
        if (directory.shared_dirs().size() > 1) {
            held.skipped.push_back(fmt::format("{} is skipped: it is for {} and for {}", path,
                                               *directory.shared_dirs().begin(),
                                               *directory.shared_dirs().rbegin()));
            continue;
        }
        held.directories.push_back(path);
        directory.add_to(found);
        held.file_sets.insert(held.file_sets.end(), directory.file_sets().begin(),
                              directory.file_sets().end());
    }
    for (auto& [key, epoch] : found) {
        std::tie(epoch.epoch.job, epoch.epoch.key) = key;
        for (auto& [order, file] : epoch.files) epoch.epoch.files.push_back(std::move(file));
        held.epochs.push_back(std::move(epoch.epoch));
    }
    return held;
}

Result<std::vector<std::unique_ptr<DirectoryLock>>> lock_held(Storage& local, const HeldForDirectory& held) {
    std::vector<std::unique_ptr<DirectoryLock>> locks;
    for (const auto& directory : held.directories) {
        TAILRACE_ASSIGN(auto lock, local.lock_directory(directory));
        locks.push_back(std::move(lock));
    }
    return locks;
}

Status remove_held(Storage& local, const HeldForDirectory& held) {
    for (const auto& epoch : held.epochs)
        for (const auto& file : epoch.files) {
            const Status removed = remove_if_there(local, file.path);
            if (!removed.ok()) return removed;
        }
    for (const auto& path : held.file_sets) TAILRACE_TRY(remove_directory_tree(path));
    for (const auto& directory : held.directories)
        (void)remove_spares(local, directory, job_of_directory(directory));
    return {};
}

}  // namespace tailrace::internal
