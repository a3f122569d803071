#include "node_local.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "capture/local_tier.h"
#include "catalog/lineage.h"
#include "config/config.h"
#include "drain/node_drain.h"
#include "record/record_file.h"
#include "storage/lock_owner.h"

namespace tailrace::internal::tool {

namespace {

using Json = nlohmann::json;
using ByEpoch = std::map<std::pair<std::string, EpochKey>, NodeLocalEpoch>;

// The paths that a session of this user would have here. Only the environment variables for these
// paths are read, because this is not the place to complain about others.
Config paths_here(const std::string& shared_dir) {
    Config config;
    const auto of_environment = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value != nullptr ? value : "");
    };
    const std::string file = of_environment("TAILRACE_CONFIG");
    if (!file.empty() && !load_config_file(config, file).ok()) config = Config();
    for (const auto& [path, name] : {std::pair(&Config::local_dir, "TAILRACE_LOCAL_DIR"),
                                     std::pair(&Config::record_dir, "TAILRACE_RECORD_DIR")})
        if (auto value = of_environment(name); !value.empty()) config.*path = std::move(value);
    config.shared_dir = shared_dir;
    (void)complete_config(config, 1);  // a mistake in a file is reported by the session that uses it
    return config;
}

bool same_directory(const std::string& a, const std::string& b) {
    std::error_code error;
    return a == b || (!a.empty() && std::filesystem::equivalent(a, b, error));
}

// Parts of format version 1.0 do not say which shared directory they are for. The directory around
// them does.
bool was_captured_for(const CapturedPart& part, const std::string& local_dir, const std::string& directory,
                      const std::string& shared_dir) {
    if (!part.header.shared_dir.empty()) return same_directory(part.header.shared_dir, shared_dir);
    return directory.starts_with(local_tier(local_dir, shared_dir, part.header.job).old_prefix);
}

// Looks without taking the lock, which would be in a session's way. A process of another machine or container
// is not seen.
bool is_in_use(const std::string& directory) {
    const int opened = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0) return false;
    const bool locked = lock_owner(opened).has_value();
    ::close(opened);
    return locked;
}

// Whom the epochs wait for that have a plan record in this directory.
void look_at_plans(Storage& storage, const std::string& directory, ByEpoch& found) {
    const std::shared_ptr<Storage> not_owned(std::shared_ptr<void>(), &storage);
    const auto look = NodeDrain(Config(), not_owned, not_owned).look(directory);
    if (!look.ok()) return;
    for (const DrainedEpoch& planned : look->epochs) {
        const auto epoch = found.find({planned.job, planned.key});
        if (epoch == found.end()) continue;
        auto& waiting = epoch->second.waiting_for;
        waiting.insert(waiting.end(), planned.waiting_for.begin(), planned.waiting_for.end());
    }
}

// `runs`: the runs that have written epochs of the directory. It may have been moved or copied
// since. What they captured for its old place still belongs to it.
void look_into(Storage& storage, const std::string& local_dir, const std::string& shared_dir,
               const std::string& job, const std::set<uint64_t>& runs, ByEpoch& found) {
    KeptSets kept;
    const auto entries = storage.list(local_dir);
    if (!entries.ok()) return;
    for (const DirectoryEntry& entry : *entries) {
        if (!entry.is_directory) continue;
        const std::string directory = join_path(local_dir, entry.name);
        const auto listed = list_local(storage, directory, job);
        if (!listed.ok()) continue;
        for (const CapturedPart& part : listed->parts) {
            const bool ours = was_captured_for(part, local_dir, entry.name, shared_dir);
            if (!ours && !runs.contains(part.header.run_uid)) continue;
            auto& epoch = found[{part.header.job, part.header.key}];
            epoch.job = part.header.job;
            epoch.key = part.header.key;
            epoch.run_uid = part.header.run_uid;
            epoch.rank_count = part.header.rank_count;
            epoch.for_shared = part.header.for_shared;
            epoch.other_tier = local_dir;
            if (!ours) epoch.captured_for = part.header.shared_dir;
            ++epoch.ranks_here;
            if (epoch.directories.empty() || epoch.directories.back() != directory)
                epoch.directories.push_back(directory);
        }
        look_at_plans(storage, directory, found);
        find_kept_sets(storage, directory, job, kept);
    }
    for (auto& [key, epoch] : found) {
        epoch.waiting_for = merge_awaited(epoch.waiting_for);
        if (const auto sets = kept.find({key, epoch.run_uid}); sets != kept.end())
            epoch.kept.insert(epoch.kept.end(), sets->second.begin(), sets->second.end());
    }
}

// A session's record tells where its node-local tier was, and which epochs stayed there.
void read_record(Storage& storage, const std::string& path, std::set<std::string>& local_dirs,
                 ByEpoch& kept) {
    auto file = storage.open(path, {Access::read, DirectIo::off});
    if (!file.ok()) return;
    const auto bytes = (*file)->size();
    constexpr uint64_t most_bytes = 64 << 20;
    if (!bytes.ok() || *bytes > most_bytes) return;
    std::string text(*bytes, '\0');
    const auto got = (*file)->read_at(std::as_writable_bytes(std::span(text.data(), text.size())), 0);
    if (!got.ok()) return;
    std::string_view rest = std::string_view(text).substr(0, *got);
    std::string host, job, local_dir;
    uint64_t greatest_run = 0;
    while (!rest.empty()) {
        const auto line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        const Json json = Json::parse(line, nullptr, false);  // the last line may be cut off
        if (!json.is_object()) continue;
        const auto text_of = [&](const Json& of, const char* key) {
            return of.contains(key) && of[key].is_string() ? of[key].get<std::string>() : std::string();
        };
        const auto number_of = [&](const char* key) {
            return json.contains(key) && json[key].is_number_unsigned() ? json[key].get<uint64_t>() : 0;
        };
        const std::string kind = text_of(json, "record");
        if (kind == "session") {
            host = text_of(json, "host");
            job = text_of(json, "job");
            // Runs are counted by what lies in the directory. If the number does not grow, the
            // directory was made anew.
            if (number_of("run") <= greatest_run)
                std::erase_if(kept, [&](const auto& epoch) { return epoch.first.first == job; });
            greatest_run = number_of("run");
            if (json.contains("settings") && json["settings"].is_object())
                local_dir = text_of(json["settings"], "local_dir");
            local_dirs.insert(local_dir);
        } else if (kind == "epoch") {
            const EpochKey key{number_of("epoch"), static_cast<uint32_t>(number_of("run"))};
            if (text_of(json, "state") == "kept_local") {
                auto& epoch = kept[{job, key}];
                epoch.job = job;
                epoch.key = key;
                epoch.host = host;
                epoch.other_tier = local_dir;
            } else {
                kept.erase({job, key});
            }
        }
    }
}

// This node's tier itself knows better than a record. Of another node's tier only the newest epoch
// is named, because nobody here knows which older ones are still there.
void keep_newest_of_other_nodes(ByEpoch& remembered) {
    std::array<char, 256> own{};
    if (gethostname(own.data(), own.size() - 1) == 0)
        std::erase_if(remembered, [&](const auto& epoch) { return epoch.second.host == own.data(); });
    for (auto epoch = remembered.begin(); epoch != remembered.end();) {
        const auto next = std::next(epoch);
        const bool newest = next == remembered.end() || next->first.first != epoch->first.first;
        epoch = newest ? next : remembered.erase(epoch);
    }
}

// Reads the records of all jobs' sessions on the directory.
void read_records(Storage& storage, const Config& config, const std::string& job,
                  std::set<std::string>& local_dirs, ByEpoch& kept) {
    const auto entries = storage.list(config.record_dir);
    if (!entries.ok()) return;
    const std::string any_job = record_path(config.record_dir, "", config.shared_dir);
    const std::string ending = any_job.substr(any_job.rfind('/') + 1);
    for (const DirectoryEntry& entry : *entries)
        if (job.empty() ? entry.name.ends_with(ending) : entry.name == job + ending)
            read_record(storage, join_path(config.record_dir, entry.name), local_dirs, kept);
}

}  // namespace

// One sentence, with what to do about it. `tailrace ls --json` has the rest.
std::string NodeLocalEpoch::text() const {
    std::string sentence = fmt::format("{} of job {} is newer and lies only on nodes", to_string(key), job);
    if (ranks_here > 0)
        sentence += fmt::format(" (here: {} of {} ranks{}{})", ranks_here, rank_count,
                                kept.empty() ? "" : ", protected by ",
                                kept.empty() ? "" : to_string(kept.front().redundancy));
    else
        sentence += fmt::format(", those of a job that began on {}", host);
    if (!captured_for.empty())
        return sentence +
               fmt::format("; it belongs to {}: to restore it, put the directory, or a link, back there",
                           captured_for);
    if (in_use) return sentence + "; a session or an agent is at work on them, and may bring it here";
    const std::string to_bring_it = fmt::format("; to bring it here, run `tailrace drain{}` on ",
                                                other_tier.empty() ? "" : " --local-dir " + other_tier);
    if (!waiting_for.empty()) return sentence + to_bring_it + to_string(waiting_for);
    if (ranks_here == 0) return sentence + to_bring_it + "them";
    return sentence + "; a session on the same nodes finds it";
}

std::set<std::string> named_tiers(Storage& storage, const std::string& shared_dir,
                                  const std::string& local_dir) {
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(shared_dir, error).lexically_normal().string();
    const Config config = paths_here(error ? shared_dir : absolute);
    std::set<std::string> named = {config.local_dir, local_dir}, places;
    ByEpoch ignored;
    read_records(storage, config, "", named, ignored);
    for (const std::string& place : named)
        if (!place.empty()) places.insert(std::filesystem::weakly_canonical(place, error).string());
    return places;
}

std::vector<NodeLocalEpoch> find_node_local(Storage& storage, const std::string& shared_dir,
                                            const std::string& job, const std::vector<ListedEpoch>& there,
                                            const std::vector<std::string>& local_dirs) {
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(shared_dir, error).lexically_normal().string();
    const Config config = paths_here(error ? shared_dir : absolute);
    std::set<std::string> named(local_dirs.begin(), local_dirs.end());
    named.insert(config.local_dir);
    ByEpoch found, remembered;
    read_records(storage, config, job, named, remembered);
    std::set<std::string> places;  // each once, whatever it is called
    for (const std::string& place : named)
        if (!place.empty()) places.insert(std::filesystem::weakly_canonical(place, error).string());
    std::set<uint64_t> runs;
    for (const ListedEpoch& epoch : there)
        if (epoch.shared) runs.insert(epoch.shared->run_uid);
    for (const std::string& place : places) look_into(storage, place, config.shared_dir, job, runs, found);
    keep_newest_of_other_nodes(remembered);
    found.merge(remembered);

    std::map<std::string, std::vector<EpochKey>> complete, all;
    for (const ListedEpoch& epoch : there)
        if (epoch.completeness == Completeness::complete)
            complete[epoch.found.job].push_back(epoch.found.key);
    all = complete;
    for (const auto& [key, epoch] : found) all[epoch.job].push_back(epoch.key);
    std::vector<NodeLocalEpoch> newer;
    for (auto& [key, epoch] : found) {
        const Lineage lineage(all[epoch.job]);
        const auto& rest = complete[epoch.job];
        const EpochKey own = epoch.key;
        if (std::all_of(rest.begin(), rest.end(),
                        [&](EpochKey other) { return other != own && lineage.goes_first(own, other); }))
            newer.push_back(std::move(epoch));
    }
    for (NodeLocalEpoch& epoch : newer) {
        if (same_directory(epoch.other_tier, config.local_dir)) epoch.other_tier.clear();
        epoch.in_use = std::any_of(epoch.directories.begin(), epoch.directories.end(), is_in_use);
    }
    return newer;
}

}  // namespace tailrace::internal::tool
