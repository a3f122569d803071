#include "ledger/node_ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

Residues arrays_of_node(const ArrayPoints& points, std::vector<Captured> captures) {
    std::sort(captures.begin(), captures.end(),
              [](const Captured& a, const Captured& b) { return a.stream.rank < b.stream.rank; });
    std::vector<Residues> digests;
    for (const auto& capture : captures) digests.push_back(capture.arrays);
    return points.combine(digests);
}

NodeLedger::Complete NodeLedger::complete(uint64_t sequence, std::vector<Captured> captures,
                                          Status extra) const {
    INVARIANT(!captures.empty());
    Complete whole;
    whole.news.node = node_;
    whole.news.sequence = sequence;
    whole.news.for_shared = captures.front().for_shared;
    for (const auto& capture : captures) {
        whole.news.capture.add(
            capture_numbers(capture.stream.stream_bytes, capture.seconds, capture.wait_seconds));
        if (whole.news.status.ok() && !capture.status.ok())
            whole.news.status =
                Status(capture.status.code(),
                       fmt::format("{} does not exist because rank {} could not capture it: {}",
                                   to_string(capture.key), capture.stream.rank, capture.status.message()));
        if (!capture.names_apart.empty())
            whole.news.names_apart.push_back({capture.stream.rank, capture.names_apart});
        if (!contains(whole.news.keys, capture.key)) whole.news.keys.push_back(capture.key);
    }
    if (whole.news.keys.size() > 1) {
        const auto& first = captures.front();
        const auto& other = *std::find_if(captures.begin(), captures.end(),
                                          [&](const Captured& c) { return c.key != first.key; });
        whole.news.status =
            Status(Code::invalid_argument,
                   fmt::format(
                       "save number {} has different epochs: {} on rank {} and {} on rank {}; every rank "
                       "must save the same epoch in its n-th save",
                       sequence + 1, first.key.epoch, first.stream.rank, other.key.epoch, other.stream.rank));
    } else if (whole.news.status.ok()) {
        whole.news.status = std::move(extra);
    }
    whole.captures = std::move(captures);
    return whole;
}

Result<std::optional<NodeLedger::Complete>> NodeLedger::captured(const Captured& capture) {
    const auto [newest, is_first] = newest_of_rank_.emplace(capture.stream.rank, capture.sequence);
    if (!is_first && capture.sequence <= newest->second)
        return Status(Code::transport,
                      fmt::format("rank {} told node {} of its save number {} after its save number {}",
                                  capture.stream.rank, node_, capture.sequence + 1, newest->second + 1));
    newest->second = capture.sequence;
    auto& captures = open_[capture.sequence];
    captures.push_back(capture);
    INVARIANT(captures.size() <= rank_count_);
    const bool too_late = end_from_ && capture.sequence >= *end_from_;
    if (captures.size() < rank_count_ && !too_late) return std::optional<Complete>();
    auto whole = complete(capture.sequence, std::move(captures), too_late ? end_why_ : Status());
    open_.erase(capture.sequence);
    return std::optional(std::move(whole));
}

std::vector<NodeLedger::Complete> NodeLedger::end_from(uint64_t first, const Status& why) {
    end_from_ = std::min(first, end_from_.value_or(first));
    end_why_ = why;
    std::vector<Complete> ended;
    for (auto open = open_.lower_bound(first); open != open_.end(); open = open_.erase(open))
        ended.push_back(complete(open->first, std::move(open->second), why));
    INVARIANT(open_.empty() || open_.rbegin()->first < *end_from_);
    return ended;
}

Status saves_ended_why() {
    return Status(Code::failed_state, "not every rank saved it before the session was closed");
}

}  // namespace tailrace::internal
