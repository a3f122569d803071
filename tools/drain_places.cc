#include "drain_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "drain/node_drain.h"
#include "drain/recorded_epochs.h"
#include "drain/tier_pass.h"
#include "node_local.h"
#include "text.h"
#include "tier_settings.h"

namespace tailrace::internal::tool {

namespace {

std::string without_end(std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
}

bool same_directory(const std::string& a, const std::string& b) {
    std::error_code error;
    return a == b || std::filesystem::equivalent(a, b, error);
}

bool was_captured_for(Storage& storage, const std::string& node_directory, const std::string& shared_dir) {
    const auto files = storage.list(node_directory);
    return files.ok() && std::any_of(files->begin(), files->end(), [&](const DirectoryEntry& file) {
               if (!parse_plan_file_name(file.name)) return false;
               const auto plan = read_plan_record(storage, join_path(node_directory, file.name));
               return plan.ok() && same_directory(plan->shared_dir, shared_dir);
           });
}

DrainPlaces places_of_shared(Storage& storage, const std::string& shared_dir,
                             const std::set<std::string>& tiers) {
    DrainPlaces places;
    for (const auto& tier : tiers) {
        std::vector<std::string> skipped;  // the drain says it
        const auto directories = directories_to_drain(storage, tier, skipped);
        if (!directories.ok()) continue;
        for (const auto& directory : *directories)
            if (was_captured_for(storage, directory, shared_dir)) {
                places.directories.insert(directory);
                if (places.tiers.empty() || places.tiers.back() != tier) places.tiers.push_back(tier);
            }
    }
    places.nothing = fmt::format(
        "nothing to drain into {}: no unfinished epoch for it lies in {}, which its sessions and the "
        "settings here name. If the program had another node-local tier on this node, name that one: "
        "tailrace drain --local-dir TIER",
        printable(shared_dir), printable(fmt::format("{}", fmt::join(tiers, ", "))));
    return places;
}

}  // namespace

Result<DrainPlaces> find_drain_places(Storage& storage, const std::string& directory,
                                      const std::string& local_dir) {
    DrainPlaces places;
    if (directory.empty()) {
        TAILRACE_ASSIGN(const auto config, tier_settings(local_dir));
        places.tiers = {config.local_dir};
        places.nothing = "nothing to drain in " + printable(config.local_dir);
        return places;
    }
    const auto path = without_end(directory);
    TAILRACE_ASSIGN(const auto entries, storage.list(path));
    const auto is_of_node = [](const DirectoryEntry& entry) {
        return entry.is_directory && !job_of_directory(entry.name).empty();
    };
    if (std::any_of(entries.begin(), entries.end(), is_of_node)) {
        places.tiers = {path};
        places.nothing = "nothing to drain in " + printable(path);
        return places;
    }
    const auto name = std::filesystem::path(path).filename().string();
    if (!job_of_directory(name).empty()) {
        std::error_code error;
        const auto whole = std::filesystem::absolute(path, error).lexically_normal();
        places.tiers = {whole.parent_path().string()};
        places.directories = {whole.string()};
        places.nothing = "nothing to drain in " + printable(path);
        return places;
    }
    return places_of_shared(storage, path, named_tiers(storage, path, local_dir));
}

}  // namespace tailrace::internal::tool
