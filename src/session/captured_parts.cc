#include "session/captured_parts.h"

#include <algorithm>

#include "agent/node_protection.h"
#include "base/invariant.h"
#include "base/log.h"
#include "format/plan_record.h"
#include "protect/protect_object.h"
#include "protect/rebuild.h"

namespace tailrace::internal {

void CapturedParts::take_over(std::vector<KnownPart> parts, const OldEpochs& old) {
    old_ = std::move(parts);
    safe_ = old.safe;
    elsewhere_ = old.elsewhere;
    find_objects();
    std::vector<LocalAge> ages;
    add_old_ages(ages);
    for (auto& age : ages)
        age.in_use = std::any_of(old.to_flush.begin(), old.to_flush.end(),
                                 [&](const LocalEpoch& epoch) { return epoch.key == age.key; });
    for (const auto& key : choose_local_removals(std::move(ages), std::max(1u, context_.config.keep_local)))
        remove_old(key);
}

void CapturedParts::add_old_ages(std::vector<LocalAge>& ages) const {
    const auto has_object = [&](EpochKey key) {
        return std::any_of(old_objects_.begin(), old_objects_.end(),
                           [&](const auto& object) { return object.first == key; });
    };
    for (const auto& key : safe_)
        ages.push_back({key, true, background_.recovering(key), false, false, key == elsewhere_,
                        has_object(key) ? LocalAge::AfterLoss::rebuilt : LocalAge::AfterLoss::gone});
    for (const auto& part : old_) {
        const auto same = [&](const LocalAge& age) { return age.key == part.header.key; };
        if (std::none_of(ages.begin(), ages.end(), same)) ages.push_back({part.header.key});
    }
    for (const auto& [key, path] : old_objects_) {
        const auto same = [key = key](const LocalAge& age) { return age.key == key; };
        if (std::none_of(ages.begin(), ages.end(), same)) ages.push_back({key});
    }
}

std::vector<LocalAge> CapturedParts::ages() const {
    std::vector<LocalAge> ages;
    for (const auto& part : own_) {
        const auto entry = epochs_.find(part.key.epoch);
        const bool final = !entry || is_final(entry->info.state);
        const bool everywhere = entry && entry->captured_everywhere;
        const bool unheard = entry && entry->unheard;
        const bool in_use = (!final && !unheard) || (entry && entry->still_read);
        using AfterLoss = LocalAge::AfterLoss;
        const bool committed = entry && entry->info.state == EpochState::committed;
        const bool rebuilt = entry && entry->info.losses_survived > 0;
        ages.push_back({part.key, final && everywhere, in_use, final && !everywhere && !unheard, unheard,
                        false,
                        committed ? AfterLoss::shared
                        : rebuilt ? AfterLoss::rebuilt
                                  : AfterLoss::gone});
    }
    add_old_ages(ages);
    return ages;
}

void CapturedParts::remove_old(EpochKey key) {
    for (const auto& part : old_)
        if (part.header.key == key) remove(part.path);
    std::erase_if(old_, [&](const KnownPart& part) { return part.header.key == key; });
    std::erase(safe_, key);
    remove_objects(key);
    remove_plan(key);
}

// An epoch that has failed, or that nobody has heard of since the background ended, still has its
// record, and the one that this node keeps for another.
void CapturedParts::remove_plan(EpochKey key) {
    if (!context_.is_representative()) return;
    const auto& job = context_.config.name;
    const auto directory = context_.tier.directory(context_.node);
    const auto node = static_cast<uint32_t>(context_.node);
    for (const bool local : {false, true})
        remove(join_path(directory, to_string(PlanFileName{job, key, node, false, local})));
    if (const auto other = node_with_copy_here(context_))
        remove(join_path(directory, to_string(KeptPlanFileName{job, key, static_cast<uint32_t>(*other)})));
}

void CapturedParts::find_objects() {
    if (!context_.is_representative()) return;
    const auto directories =
        directories_of_node(*context_.local, context_.tier, context_.node, context_.topology, context_.hosts);
    if (!directories.ok()) return;  // gather_parts has said so
    for (const auto& directory : *directories) {
        const auto listed = list_objects(*context_.local, directory, context_.config.name);
        if (!listed.ok()) continue;
        for (const auto& object : *listed) old_objects_.emplace_back(object.name.key, object.path);
    }
}

void CapturedParts::remove_objects(EpochKey key) {
    if (!context_.is_representative()) return;
    for (const auto& [of_key, path] : old_objects_)
        if (of_key == key) remove(path);
    std::erase_if(old_objects_, [&](const auto& object) { return object.first == key; });
    if (key.run != context_.run || context_.sets.sets.empty()) return;
    const auto path =
        protect_path(context_.tier.directory(context_.node), context_.config.name, key, context_.node);
    const auto made = make_spare(*context_.local, path);
    if (!made.ok() && made.code() != Code::not_found) remove(path);
}

bool CapturedParts::give_spares_back() {
    return !context_.sets.sets.empty() &&
           remove_spares(*context_.local, context_.tier.directory(context_.node), context_.config.name);
}

void CapturedParts::clear() {
    own_.clear();
    if (context_.is_representative()) give_spares_back();
}

// The newest of the removed epochs gives its space away.
std::optional<OwnPart> CapturedParts::retire(uint32_t keep, bool recycle) {
    const auto known = ages();
    const auto removals = choose_local_removals(known, std::max(1u, keep));
    COSTLY_INVARIANT(std::none_of(known.begin(), known.end(), [&](const LocalAge& age) {
        return age.in_use && std::find(removals.begin(), removals.end(), age.key) != removals.end();
    }));
    std::optional<OwnPart> recycled;
    for (auto key = removals.rbegin(); key != removals.rend(); ++key) {
        remove_old(*key);
        const auto part =
            std::find_if(own_.begin(), own_.end(), [&](const OwnPart& own) { return own.key == *key; });
        if (part == own_.end()) continue;
        if (!recycled && recycle && !part->mapping.empty())
            recycled = std::move(*part);
        else
            remove(part->path);
        own_.erase(part);
    }
    return recycled;
}

void CapturedParts::remove(const std::string& path) {
    auto removed = remove_if_there(*context_.local, path);
    if (!removed.ok())
        log(LogLevel::warning, "a captured part that is no longer needed could not be removed: {}",
            removed.message());
}

}  // namespace tailrace::internal
