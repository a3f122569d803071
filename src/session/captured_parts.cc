#include "session/captured_parts.h"

#include <algorithm>

#include "base/invariant.h"
#include "base/log.h"

namespace tailrace::internal {

void CapturedParts::take_over(std::vector<KnownPart> parts, const OldEpochs& old) {
    old_ = std::move(parts);
    safe_ = old.safe;
    elsewhere_ = old.elsewhere;
    std::vector<LocalAge> ages;
    add_old_ages(ages);
    for (auto& age : ages)
        age.in_use = std::any_of(old.to_flush.begin(), old.to_flush.end(),
                                 [&](const LocalEpoch& epoch) { return epoch.key == age.key; });
    for (const auto& key : choose_local_removals(std::move(ages), std::max(1u, context_.config.keep_local)))
        remove_old(key);
}

void CapturedParts::add_old_ages(std::vector<LocalAge>& ages) const {
    for (const auto& key : safe_)
        ages.push_back({key, true, background_.recovering(key), false, false, key == elsewhere_});
    for (const auto& part : old_) {
        const auto same = [&](const LocalAge& age) { return age.key == part.header.key; };
        if (std::none_of(ages.begin(), ages.end(), same)) ages.push_back({part.header.key});
    }
}

std::vector<LocalAge> CapturedParts::ages() const {
    std::vector<LocalAge> ages;
    for (const auto& part : own_) {
        const auto entry = epochs_.find(part.key.epoch);
        const bool final = !entry || is_final(entry->info.state);
        const bool everywhere = entry && entry->captured_everywhere;
        const bool unheard = entry && entry->unheard;
        const bool in_use = !final || (entry && entry->still_read);
        ages.push_back({part.key, final && everywhere, in_use, final && !everywhere && !unheard, unheard});
    }
    add_old_ages(ages);
    return ages;
}

void CapturedParts::remove_old(EpochKey key) {
    for (const auto& part : old_)
        if (part.header.key == key) remove(part.path);
    std::erase_if(old_, [&](const KnownPart& part) { return part.header.key == key; });
    std::erase(safe_, key);
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
    auto removed = context_.local->remove(path);
    if (!removed.ok() && removed.code() != Code::not_found)
        log(LogLevel::warning, "a captured part that is no longer needed could not be removed: {}",
            removed.message());
}

}  // namespace tailrace::internal
