#include "kept_sets.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "protect/protect_object.h"

namespace tailrace::internal::tool {

namespace {

// "node 1", "nodes 0 to 3 and 7"
std::string text_of(std::vector<uint32_t> nodes) {
    std::sort(nodes.begin(), nodes.end());
    std::vector<std::string> runs;
    for (size_t i = 0; i < nodes.size();) {
        size_t last = i;
        while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
        const auto* form = last == i ? "{}" : last == i + 1 ? "{} and {}" : "{} to {}";
        runs.push_back(fmt::format(fmt::runtime(form), nodes[i], nodes[last]));
        i = last + 1;
    }
    std::string text = nodes.size() == 1 ? "node " : "nodes ";
    for (size_t i = 0; i < runs.size(); ++i) text += (i == 0 ? "" : ", ") + runs[i];
    return text;
}

}  // namespace

void find_kept_sets(Storage& storage, const std::string& directory, const std::string& job, KeptSets& found) {
    const auto entries = storage.list(directory);
    if (!entries.ok()) return;
    for (const DirectoryEntry& entry : *entries) {
        const auto name = parse_protect_file_name(entry.name);
        if (!name || name->unfinished || entry.is_directory || (!job.empty() && name->job != job)) continue;
        const auto head = ObjectReader::read_head(storage, join_path(directory, entry.name));
        if (!head.ok()) continue;
        const auto& identity = head->identity;
        const uint32_t keeper = head->members[head->position].node;
        if (identity.job != name->job || identity.key != name->key || keeper != name->node) continue;
        std::vector<uint32_t> nodes;
        for (const auto& member : head->members) nodes.push_back(member.node);
        auto& sets = found[{{identity.job, identity.key}, identity.run_uid}];
        auto same = std::find_if(sets.begin(), sets.end(), [&](const KeptSet& set) {
            return set.nodes == nodes && set.redundancy == head->redundancy;
        });
        if (same == sets.end())
            same = sets.insert(sets.end(), KeptSet{head->redundancy, std::move(nodes), {}});
        const auto place = std::lower_bound(same->keepers.begin(), same->keepers.end(), keeper);
        if (place == same->keepers.end() || *place != keeper) same->keepers.insert(place, keeper);
    }
}

std::string kept_text(const std::vector<KeptSet>& sets) {
    std::string text;
    for (const KeptSet& set : sets)
        text += fmt::format(
            "{} by {} in the set of {}, which survives the loss of {}; here lies the data that {} {}",
            text.empty() ? "protected" : "; and", to_string(set.redundancy), text_of(set.nodes),
            counted(set.redundancy.losses, "node"), text_of(set.keepers),
            set.keepers.size() == 1 ? "keeps" : "keep");
    return text;
}

nlohmann::ordered_json kept_json(const std::vector<KeptSet>& sets) {
    auto json = nlohmann::ordered_json::array();
    for (const KeptSet& set : sets)
        json.push_back({{"redundancy", to_string(set.redundancy)},
                        {"losses_survived", set.redundancy.losses},
                        {"nodes", set.nodes},
                        {"keepers_here", set.keepers}});
    return json;
}

}  // namespace tailrace::internal::tool
