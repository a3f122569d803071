#include "record/record_book.h"

#include <algorithm>

namespace tailrace::internal {

RecordBook::Open* RecordBook::find(EpochKey key) {
    if (handed_out_.has(key)) return nullptr;
    auto& open = open_[key];
    open.record.key = key;
    return &open;
}

void RecordBook::captured(EpochKey key, const CaptureNumbers& numbers, bool to_protect) {
    if (Open* open = find(key)) {
        open->record.capture.add(numbers);
        open->to_protect |= to_protect;
    }
    check(key);
}

void RecordBook::node_protected(EpochKey key, ProtectionRecord node) {
    if (Open* open = find(key)) {
        auto& nodes = open->record.protections;
        const auto place =
            std::lower_bound(nodes.begin(), nodes.end(), node.node,
                             [](const ProtectionRecord& known, int number) { return known.node < number; });
        if (place == nodes.end() || place->node != node.node) nodes.insert(place, std::move(node));
        open->record.is_protected =
            nodes.size() == nodes_ &&
            std::all_of(nodes.begin(), nodes.end(), [](const ProtectionRecord& one) { return one.done; });
    }
    check(key);
}

void RecordBook::flushed(EpochKey key, NodeRecord node) {
    if (Open* open = find(key)) {
        node.statistics.events.clear();
        auto& nodes = open->record.nodes;
        const auto place =
            std::lower_bound(nodes.begin(), nodes.end(), node.node,
                             [](const NodeRecord& known, int number) { return known.node < number; });
        if (place == nodes.end() || place->node != node.node) nodes.insert(place, std::move(node));
    }
    check(key);
}

void RecordBook::ended(EpochRecord ended) {
    const EpochKey key = ended.key;
    Open* open = find(key);
    if (open == nullptr || open->ended) return;
    ended.capture = open->record.capture;
    ended.nodes = std::move(open->record.nodes);
    ended.protections = std::move(open->record.protections);
    ended.is_protected = open->record.is_protected;
    open->record = std::move(ended);
    open->ended = true;
    check(key);
}

void RecordBook::check(EpochKey key) {
    const auto open = open_.find(key);
    if (open != open_.end() && open->second.ended) {
        const EpochRecord& record = open->second.record;
        const bool flushes_known = record.state != "committed" || record.nodes.size() >= nodes_;
        const bool protection_known = !open->second.to_protect || record.protections.size() >= nodes_;
        if (record.state == "failed" || (flushes_known && protection_known)) give_out(open);
    }
    if (open_.size() > max_open) give_out(open_.begin());
}

void RecordBook::give_out(std::map<EpochKey, Open>::iterator open) {
    handed_out_.add(open->first);
    if (open->second.ended) whole_.push_back(std::move(open->second.record));
    open_.erase(open);
}

std::vector<EpochRecord> RecordBook::take_rest() {
    for (auto open = open_.begin(); open != open_.end();) {
        const auto next = std::next(open);
        if (open->second.ended) give_out(open);
        open = next;
    }
    return take_whole();
}

bool RecordBook::waiting() const {
    return std::any_of(open_.begin(), open_.end(), [](const auto& open) { return open.second.ended; });
}

}  // namespace tailrace::internal
