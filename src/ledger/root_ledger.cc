#include "ledger/root_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "format/original_files.h"
#include "ledger/epoch_state.h"
#include "shared/left_intact.h"

namespace tailrace::internal {

namespace {

constexpr const char* dropped_note =
    "kept in the node-local tier by queue_policy drop_oldest: newer epochs were flushed instead";

// Ended epochs are remembered for messages that come late. No message comes later than this many
// epochs.
constexpr size_t max_remembered = 1024;

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

// A save that will never be whole is told of whenever a rank of the node makes it. It has failed, so that
// does not count.
Status RootLedger::check_new(const NodeCaptured& news) const {
    if (!news.status.ok()) return {};
    const auto newest = newest_of_node_.find(news.node);
    if (newest != newest_of_node_.end() && news.sequence <= newest->second)
        return Status(Code::transport,
                      fmt::format("node {} told of its capture of save number {} after save number {}",
                                  news.node, news.sequence + 1, newest->second + 1));
    for (const auto& key : news.keys) {
        const auto known = epochs_.find(key);
        if (known != epochs_.end() && !known->second.ended && known->second.captured_by.contains(news.node))
            return Status(Code::transport, fmt::format("node {} told of its capture of {} in two saves",
                                                       news.node, to_string(key)));
    }
    return {};
}

void RootLedger::add_names(Epoch& epoch, const NodeCaptured& news) {
    for (const auto& of_rank : news.names_apart)
        for (const auto& name : of_rank.names)
            if (epoch.names_fit.ok()) epoch.names_fit = add_name_apart(epoch.names_apart, of_rank.rank, name);
}

Status RootLedger::captured(const NodeCaptured& news) {
    INVARIANT(news.node >= 0 && static_cast<size_t>(news.node) < nodes_);  // the driver has checked it
    TAILRACE_TRY(check_new(news));
    if (news.status.ok()) newest_of_node_[news.node] = news.sequence;
    auto& sequence = sequences_[news.sequence];
    if (sequence.captured_by.empty()) sequence.first_node = news.node;
    sequence.captured_by.insert(news.node);
    for (const auto& key : news.keys) {
        if (!contains(sequence.keys, key)) sequence.keys.push_back(key);
        auto& epoch = epochs_[key];
        epoch.captured_by.insert(news.node);
        epoch.arrays.resize(nodes_);
        epoch.arrays[static_cast<size_t>(news.node)] = news.arrays;
        add_names(epoch, news);
        epoch.to_protect = redundancy_every_ > 0 && news.sequence % redundancy_every_ == 0;
    }
    if (sequence.failure.ok() && !news.status.ok()) sequence.failure = news.status;
    if (sequence.failure.ok() && sequence.keys.size() > 1)
        sequence.failure =
            Status(Code::invalid_argument,
                   fmt::format("save number {} has different epochs: {} on node {} and {} on node {}; every "
                               "rank must save the same epoch in its n-th save",
                               news.sequence + 1, sequence.keys[0].epoch, sequence.first_node,
                               sequence.keys[1].epoch, news.node));
    if (sequence.failure.ok() && end_from_ && news.sequence >= *end_from_) sequence.failure = end_why_;
    const std::vector<EpochKey> keys = sequence.keys;
    const Status failure = sequence.failure;
    if (sequence.captured_by.size() == nodes_) sequences_.erase(news.sequence);
    for (const auto& key : keys) {
        if (!failure.ok()) {
            end(key, EpochState::failed, failure);
            continue;
        }
        if (news.node == 0) decide(key, news.for_shared);
        if (auto& epoch = epochs_[key]; epoch.everywhere(nodes_) && !epoch.ended) {
            epoch.names_apart = {};
            if (const Status fit = epoch.names_fit; !fit.ok())
                judged(key, fit);
            else
                orders_.emplace_back(JudgeArrays{key, std::exchange(epoch.arrays, {})});
        }
    }
    forget_old();
    return {};
}

void RootLedger::node_protected(const NodeProtected& news) {
    auto& epoch = epochs_[news.key];
    if (!epoch.protecting_ended.insert(news.node.node).second) return;
    epoch.unprotected |= !news.node.done;
    epoch.protect_seconds = std::max(epoch.protect_seconds, news.node.seconds);
    if (epoch.protecting_ended.size() < nodes_) return;
    if (!epoch.unprotected)
        orders_.emplace_back(std::in_place_type<EpochProtected>,
                             EpochProtected{news.key, epoch.protect_seconds});
    end_if_whole(news.key);
}

void RootLedger::judged(EpochKey key, const Status& verdict) {
    auto& epoch = epochs_[key];
    if (epoch.ended || epoch.judged) return;
    INVARIANT(epoch.everywhere(nodes_));  // no verdict without the arrays of all nodes
    if (!verdict.ok()) {
        // Any other failure says nothing of the arrays, and the parts may be read at another time.
        epoch.refused = verdict.code() == Code::invalid_argument;
        end(key, EpochState::failed, verdict);
        return;
    }
    epoch.judged = true;
    orders_.emplace_back(std::in_place_type<ArraysFit>, ArraysFit{key});
    allow_if_sound(key);
    end_if_whole(key);
}

void RootLedger::prepared(const NodePrepared& news) {
    auto& epoch = epochs_[news.key];
    if (epoch.ended) return;
    if (news.status.ok()) {
        epoch.nodes_prepared.insert(news.node);
        allow_if_sound(news.key);
        return;
    }
    if (epoch.failure.ok()) epoch.failure = news.status;
    epoch.part_lost |= news.status.code() == Code::corrupt;
    // The ranks' files do not go together, and never will.
    epoch.refused = news.status.code() == Code::invalid_argument;
    epoch.given_up = true;
    if (epoch.part_lost || epoch.refused)
        end(news.key, EpochState::failed, news.status);
    else
        end_if_whole(news.key);
}

void RootLedger::allow_if_sound(EpochKey key) {
    const auto& epoch = epochs_[key];
    INVARIANT(epoch.nodes_prepared.size() <= nodes_ && !(epoch.judged && epoch.refused));
    if (epoch.judged && epoch.nodes_prepared.size() == nodes_ && !epoch.ended)
        orders_.emplace_back(MayCommit{key});
}

void RootLedger::recovered(EpochKey key) {
    auto& epoch = epochs_[key];
    INVARIANT(epoch.captured_by.empty());  // known from the start, and once
    for (size_t node = 0; node < nodes_; ++node) epoch.captured_by.insert(static_cast<int>(node));
    epoch.judged = true;
    start(key);
}

void RootLedger::decide(EpochKey key, bool for_shared) {
    if (epochs_[key].flush || epochs_[key].ended) return;
    if (!for_shared) {
        keep_local(key, "kept in the node-local tier by shared_every");
    } else if (policy_ == QueuePolicy::skip && running_.size() >= queue_epochs_) {
        keep_local(key, fmt::format("kept in the node-local tier by queue_policy skip: {} epochs were on "
                                    "their way to the shared directory",
                                    running_.size()));
    } else if (policy_ == QueuePolicy::drop_oldest && !running_.empty()) {
        // One epoch is being flushed. The newest waits, and before it as many as the queue may
        // hold.
        waiting_.push_back(key);
        const size_t max_waiting = std::max<size_t>(1, queue_epochs_ - std::min(queue_epochs_, 1u));
        while (waiting_.size() > max_waiting) {
            const EpochKey oldest = waiting_.front();
            waiting_.erase(waiting_.begin());
            keep_local(oldest, dropped_note);
        }
    } else {
        start(key);
    }
}

void RootLedger::start(EpochKey key) {
    INVARIANT(!epochs_[key].ended && !epochs_[key].flush);
    INVARIANT(!contains(waiting_, key));
    note_step("flush of epoch and run ordered", key.epoch, key.run);
    epochs_[key].flush = true;
    running_.insert(key);
    orders_.emplace_back(std::in_place_type<Decision>, Decision{key, true});
}

void RootLedger::keep_local(EpochKey key, std::string note) {
    INVARIANT(!running_.contains(key) && !epochs_[key].ended);
    epochs_[key].flush = false;
    epochs_[key].note = std::move(note);
    orders_.emplace_back(std::in_place_type<Decision>, Decision{key, false});
    end_if_whole(key);
}

void RootLedger::result(const GroupResult& result) {
    auto& epoch = epochs_[result.key];
    epoch.results.insert(result.party);
    epoch.seconds = std::max(epoch.seconds, result.seconds);
    if (epoch.failure.ok() && !result.status.ok()) epoch.failure = result.status;
    epoch.part_lost |= result.status.code() == Code::corrupt;  // as LocalReader reports it
    if (epoch.ended) {
        // The epoch failed before this party had ended, so the party may have left files.
        leftovers_.push_back(result.key);
        return;
    }
    end_if_whole(result.key);
}

void RootLedger::end_from(uint64_t first, const Status& why) {
    end_from_ = std::min(first, end_from_.value_or(first));
    end_why_ = why;
    for (auto open = sequences_.lower_bound(first); open != sequences_.end(); ++open) {
        auto& sequence = open->second;
        if (sequence.failure.ok()) sequence.failure = why;
        for (const auto& key : sequence.keys) end(key, EpochState::failed, sequence.failure);
    }
}

void RootLedger::end_if_whole(EpochKey key) {
    auto& epoch = epochs_[key];
    if (epoch.ended) return;
    if (epoch.flush && !*epoch.flush) {
        const bool protection_known = !epoch.to_protect || epoch.protecting_ended.size() == nodes_;
        if (epoch.judged && protection_known) end(key, EpochState::kept_local, {});
    } else if (epoch.flush_is_over(parties_)) {
        // A flush succeeds only if every node has taken part. If it has failed, the verdict is
        // awaited, which needs every node's captures. It tells whether the epoch exists in the
        // node-local tiers at least.
        if (epoch.failure.ok())
            end(key, EpochState::committed, {});
        else if (epoch.judged)
            end(key, EpochState::failed, epoch.failure);
    }
}

void RootLedger::end(EpochKey key, EpochState state, Status why) {
    auto& epoch = epochs_[key];
    if (epoch.ended) return;
    INVARIANT(is_final(state) && (state == EpochState::failed || why.ok()));
    INVARIANT(state != EpochState::committed || (epoch.results.size() == parties_ && !epoch.refused));
    INVARIANT(running_.contains(key) == epoch.flush.value_or(false));
    note_step("epoch ends in state", key.epoch, static_cast<uint64_t>(state));
    epoch.ended = true;
    epoch.names_apart = {};
    const bool everywhere = state == EpochState::committed ||
                            (epoch.judged && epoch.everywhere(nodes_) && epoch.flush_is_over(parties_) &&
                             !epoch.part_lost && !epoch.refused) ||
                            state == EpochState::kept_local;
    if (state == EpochState::failed) {
        const char* own = everywhere
                              ? "its captured parts stay in the node-local tiers until newer ones take their "
                                "place, and the next session or `tailrace drain` flushes them; "
                          : epoch.part_lost ? "its captured parts are no longer whole; "
                                            : "";
        why = Status(why.code(), fmt::format("{}; {}{}", why.message(), own, left_intact(why)));
    }
    auto& ended = orders_.emplace_back(std::in_place_type<EpochEnded>);
    std::get<EpochEnded>(ended) = {key,        state,      std::move(why), epoch.seconds,
                                   everywhere, epoch.note, epoch.refused};
    if (state == EpochState::failed && !epoch.results.empty()) leftovers_.push_back(key);
    std::erase(waiting_, key);
    running_.erase(key);
    start_waiting();
}

void RootLedger::start_waiting() {
    if (!running_.empty() || waiting_.empty()) return;
    INVARIANT(policy_ == QueuePolicy::drop_oldest);
    const auto waiting = std::exchange(waiting_, {});
    for (size_t i = 0; i + 1 < waiting.size(); ++i) keep_local(waiting[i], dropped_note);
    start(waiting.back());
}

void RootLedger::forget_old() {
    if (epochs_.size() <= 2 * max_remembered) return;
    for (auto epoch = epochs_.begin(); epochs_.size() > max_remembered && epoch != epochs_.end();)
        epoch = epoch->second.ended ? epochs_.erase(epoch) : std::next(epoch);
}

}  // namespace tailrace::internal
