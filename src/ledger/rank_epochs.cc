#include "ledger/rank_epochs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// A program that saves for weeks asks only about recent epochs.
constexpr size_t max_entries = 4096;
// How many ended epochs are remembered that this rank has not saved. It may save them next, or
// never.
constexpr size_t max_early = 64;
// Costs change with the program's state and with what others do to the file system.
constexpr size_t recent_saves = 4;

void keep_recent(std::deque<double>& seconds, double newest) {
    seconds.push_back(newest);
    if (seconds.size() > recent_saves) seconds.pop_front();
}

}  // namespace

void RankEpochs::end(Entry& entry, const EpochEnded& news) {
    INVARIANT(!is_final(entry.info.state));
    entry.info.state = news.state;
    entry.info.why = news.why;
    entry.info.note = news.note;
    entry.info.flush_seconds = news.seconds;
    entry.captured_everywhere = news.captured_everywhere;
    if (news.state == EpochState::failed && !news.captured_everywhere) entry.info.losses_survived = 0;
}

void RankEpochs::tell_of_change() {
    changes_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_all();
}

void RankEpochs::forget_old() {
    for (auto entry = entries_.begin(); entries_.size() > max_entries && entry != entries_.end();)
        entry = is_final(entry->second.info.state) ? entries_.erase(entry) : std::next(entry);
}

void RankEpochs::add(const EpochInfo& info, bool for_shared) {
    MutexLock lock(mutex_);
    INVARIANT(entries_.empty() || entries_.rbegin()->first < info.epoch);
    Entry entry{info, for_shared, false, false, false};
    if (auto early = early_.find({info.epoch, info.run}); early != early_.end()) {
        if (!is_final(entry.info.state)) end(entry, early->second);
        early_.erase(early);
    }
    if (!broken_.ok() && !is_final(entry.info.state)) {
        entry.info.state = EpochState::failed;
        entry.info.why = broken_;
        entry.unheard = true;
        entry.still_read = !let_go_;
    }
    if (uncarried_ && !is_final(entry.info.state)) entry.unheard = true;
    if (entry.info.state == EpochState::failed) note_failure(info.epoch, entry.info.why);
    entries_[info.epoch] = std::move(entry);
    forget_old();
    tell_of_change();
}

void RankEpochs::note_failure(uint64_t epoch, const Status& why) {
    if (first_failure_.ok()) first_failure_ = why.with_context(fmt::format("epoch {}", epoch));
}

void RankEpochs::set_blocked(uint64_t epoch, double seconds) {
    MutexLock lock(mutex_);
    auto found = entries_.find(epoch);
    if (found == entries_.end()) return;
    found->second.info.blocked_seconds = seconds;
    last_save_ = SteadyClock::now();
    if (found->second.info.state == EpochState::failed) return;
    ++saves_;
    keep_recent(blocked_seconds_, seconds);
}

RankEpochs::Entry* RankEpochs::entry_of(EpochKey key) {
    const auto found = entries_.find(key.epoch);
    return found != entries_.end() && found->second.info.run == key.run ? &found->second : nullptr;
}

void RankEpochs::flushing(EpochKey key) {
    MutexLock lock(mutex_);
    Entry* entry = entry_of(key);
    if (entry == nullptr) return;
    if (stage_of(entry->info.state) < stage_of(EpochState::flushing))
        entry->info.state = EpochState::flushing;
    tell_of_change();
}

void RankEpochs::protected_from(EpochKey key, uint32_t losses) {
    MutexLock lock(mutex_);
    Entry* entry = entry_of(key);
    // What has failed is protected only if all of it is still there.
    const bool lost =
        entry == nullptr || (entry->info.state == EpochState::failed && !entry->captured_everywhere);
    if (lost || losses == 0) return;
    entry->info.losses_survived = losses;
    if (entry->info.state == EpochState::captured) entry->info.state = EpochState::protected_;
    tell_of_change();
}

void RankEpochs::ended(const EpochEnded& news) {
    MutexLock lock(mutex_);
    Entry* entry = entry_of(news.key);
    if (entry == nullptr) {
        early_.emplace(news.key, news);
        if (early_.size() > max_early) early_.erase(early_.begin());
        return;
    }
    if (is_final(entry->info.state)) return;
    end(*entry, news);
    if (news.state == EpochState::failed) note_failure(news.key.epoch, news.why);
    if (news.state == EpochState::committed) keep_recent(flush_seconds_, news.seconds);
    tell_of_change();
}

void RankEpochs::flushed_at_close(EpochKey key) {
    MutexLock lock(mutex_);
    Entry* entry = entry_of(key);
    if (entry == nullptr || entry->info.state != EpochState::kept_local) return;
    entry->info.state = EpochState::committed;
    entry->info.note.clear();
    tell_of_change();
}

void RankEpochs::fail_all(const Status& why, bool let_go) {
    MutexLock lock(mutex_);
    if (let_go || broken_.ok()) let_go_ = let_go;
    broken_ = why;
    std::optional<uint64_t> first_failed;
    for (auto& [epoch, entry] : entries_) {
        if (let_go) entry.still_read = false;
        if (is_final(entry.info.state)) continue;
        entry.info.state = EpochState::failed;
        entry.info.why = why;
        entry.unheard = true;
        entry.still_read = !let_go_;
        if (!first_failed) first_failed = epoch;
    }
    tell_of_change();
    // This comes last, because it needs memory, and those who wait must hear of the rest anyway.
    if (first_failed) note_failure(*first_failed, why);
}

void RankEpochs::uncarried() {
    MutexLock lock(mutex_);
    uncarried_ = true;
    for (auto& [epoch, entry] : entries_) {
        if (is_final(entry.info.state)) continue;
        if (entry.info.state == EpochState::flushing)
            entry.info.state = entry.info.losses_survived > 0 ? EpochState::protected_ : EpochState::captured;
        entry.unheard = true;
    }
    tell_of_change();
}

std::optional<RankEpochs::Entry> RankEpochs::find(uint64_t epoch) const {
    MutexLock lock(mutex_);
    auto found = entries_.find(epoch);
    if (found == entries_.end()) return std::nullopt;
    return found->second;
}

std::vector<RankEpochs::Entry> RankEpochs::all() const {
    MutexLock lock(mutex_);
    std::vector<Entry> entries;
    for (const auto& [epoch, entry] : entries_) entries.push_back(entry);
    return entries;
}

std::optional<EpochRange> RankEpochs::range() const {
    MutexLock lock(mutex_);
    if (entries_.empty()) return std::nullopt;
    return EpochRange{entries_.begin()->first, entries_.rbegin()->first};
}

size_t RankEpochs::unfinished_for_shared(const Entries& entries) {
    size_t count = 0;
    for (const auto& [epoch, entry] : entries)
        if (entry.for_shared && !is_final(entry.info.state)) ++count;
    return count;
}

std::vector<uint64_t> RankEpochs::unfinished() const {
    MutexLock lock(mutex_);
    std::vector<uint64_t> epochs;
    for (const auto& [epoch, entry] : entries_)
        if (!is_final(entry.info.state)) epochs.push_back(epoch);
    return epochs;
}

SaveCosts RankEpochs::costs() const {
    MutexLock lock(mutex_);
    SaveCosts costs;
    costs.saves = saves_;
    for (const double seconds : blocked_seconds_) {
        costs.blocked_seconds += seconds / static_cast<double>(blocked_seconds_.size());
        costs.most_blocked_seconds = std::max(costs.most_blocked_seconds, seconds);
    }
    for (const double seconds : flush_seconds_)
        costs.most_flush_seconds = std::max(costs.most_flush_seconds, seconds);
    return costs;
}

std::optional<SteadyClock::time_point> RankEpochs::last_save() const {
    MutexLock lock(mutex_);
    return last_save_;
}

Status RankEpochs::broken() const {
    MutexLock lock(mutex_);
    return broken_;
}

Status RankEpochs::first_failure() const {
    MutexLock lock(mutex_);
    return first_failure_;
}

bool RankEpochs::wait_until(const std::function<bool(const Entries&)>& done,
                            std::optional<std::chrono::steady_clock::time_point> deadline) {
    MutexLock lock(mutex_);
    while (!done(entries_))
        if (!changed_.wait_before(lock, deadline)) return false;
    return true;
}

}  // namespace tailrace::internal
