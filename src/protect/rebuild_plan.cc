#include "protect/rebuild_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/invariant.h"
#include "base/text.h"
#include "catalog/lineage.h"
#include "format/manifest.h"

namespace tailrace::internal {

namespace {

bool same_epoch(const PartHeader& header, const EpochIdentity& identity) {
    return header.key == identity.key && header.run_uid == identity.run_uid &&
           header.rank_count == identity.rank_count;
}

SetCoding coding_of(const SetRemains& set) {
    uint64_t longest = 0;
    for (const auto& member : set.tables.members) longest = std::max(longest, logical_bytes(member));
    return SetCoding(static_cast<uint32_t>(set.tables.members.size()), set.tables.redundancy.losses, longest);
}

// Which positions of a stripe are there.
std::vector<bool> pieces_there(const SetRemains& set, const SetCoding& coding, uint32_t stripe) {
    std::vector<bool> there;
    for (uint32_t column = 0; column < coding.columns(); ++column)
        there.push_back(set.has_all(coding.member_of_column(stripe, column)));
    for (uint32_t row = 0; row < coding.parities(); ++row)
        there.push_back(set.objects[coding.member_of_row(stripe, row)].has_value());
    return there;
}

const FoundObject* copy_of(const SetRemains& set, uint32_t position) {
    for (const auto& object : set.objects)
        if (object && object->head.kept == position) return &*object;
    return nullptr;
}

bool can_give_back(const SetRemains& set, uint32_t position) {
    if (set.tables.redundancy.scheme == Scheme::partner) return copy_of(set, position) != nullptr;
    const auto coding = coding_of(set);
    for (uint32_t column = 0; column < coding.columns(); ++column) {
        const auto there = pieces_there(set, coding, coding.stripe_of_column(position, column));
        if (static_cast<uint32_t>(std::count(there.begin(), there.end(), true)) < coding.columns())
            return false;
    }
    return true;
}

// Objects of one set have the same tables.
std::vector<SetRemains> remains_of(const Findings& findings, const EpochIdentity& identity) {
    std::vector<SetRemains> sets;
    for (const auto& object : findings.objects) {
        const auto& head = object.head;
        if (head.identity != identity) continue;
        auto found = std::find_if(sets.begin(), sets.end(), [&](const SetRemains& set) {
            return set.tables.members == head.members && set.tables.redundancy == head.redundancy;
        });
        if (found == sets.end()) {
            found = sets.insert(sets.end(), SetRemains{head, {}, {}});
            found->objects.resize(head.members.size());
        }
        auto& place = found->objects[head.position];
        if (!place || object.node < place->node) place = object;
    }
    std::map<uint32_t, const KnownPart*> parts;  // the lowest node's, as gather_local_epochs takes them
    for (const auto& part : findings.parts) {
        if (!same_epoch(part.header, identity)) continue;
        auto& place = parts[part.header.stream.rank];
        if (place == nullptr || part.node < place->node) place = &part;
    }
    for (auto& set : sets)
        for (const auto& member : set.tables.members) {
            auto& of_member = set.parts.emplace_back();
            for (const auto& stream : member.parts) {
                const auto part = parts.find(stream.rank);
                const bool is_it = part != parts.end() && part->second->header.stream == stream;
                of_member.push_back(is_it ? std::optional(*part->second) : std::nullopt);
            }
        }
    return sets;
}

// "ranks 0 to 3, 7"
std::string text_of(const std::vector<uint32_t>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < ranks.size();) {
        size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (i > 0) text += ", ";
        text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{} to {}", ranks[i], ranks[last]);
        i = last + 1;
    }
    return text;
}

// What a set has lost: "node 1 (ranks 4 to 7, and what it kept for others), node 2 (rank 8)".
std::string losses_of(const SetRemains& set) {
    std::string text;
    for (uint32_t position = 0; position < set.parts.size(); ++position) {
        const auto& member = set.tables.members[position];
        std::vector<uint32_t> ranks;
        for (size_t i = 0; i < member.parts.size(); ++i)
            if (!set.parts[position][i]) ranks.push_back(member.parts[i].rank);
        std::string what = ranks.empty() ? "" : text_of(ranks);
        if (!set.objects[position])
            what += fmt::format("{}what it kept for others", ranks.empty() ? "" : ", and ");
        if (!what.empty()) text += fmt::format("{}node {} ({})", text.empty() ? "" : ", ", member.node, what);
    }
    return text;
}

// Fills `rebuild`. Returns why the epoch cannot be completed; empty if it can.
std::string plan_epoch(const Findings& findings, EpochRebuild& rebuild) {
    const auto& identity = rebuild.identity;
    std::vector<bool> accounted(identity.rank_count, false);
    for (const auto& part : findings.parts)
        if (same_epoch(part.header, identity) && part.header.stream.rank < identity.rank_count)
            accounted[part.header.stream.rank] = true;
    for (auto& set : remains_of(findings, identity)) {
        std::vector<LostPart> lost;
        for (uint32_t position = 0; position < set.parts.size(); ++position) {
            uint64_t offset = 0;
            for (size_t i = 0; i < set.parts[position].size(); ++i) {
                const auto& stream = set.tables.members[position].parts[i];
                if (!set.parts[position][i] && !accounted[stream.rank]) {
                    if (!can_give_back(set, position))
                        return fmt::format("lost are {}; a set of {} nodes with {} survives the loss of {}",
                                           losses_of(set), set.parts.size(), to_string(set.tables.redundancy),
                                           counted(set.tables.redundancy.losses, "node"));
                    lost.push_back({rebuild.sets.size(), position, stream, offset, 0});
                    accounted[stream.rank] = true;
                }
                offset += part_bytes(stream);
            }
        }
        if (lost.empty()) continue;
        rebuild.lost.insert(rebuild.lost.end(), lost.begin(), lost.end());
        rebuild.sets.push_back(std::move(set));
    }
    std::vector<uint32_t> nowhere;
    for (uint32_t rank = 0; rank < identity.rank_count; ++rank)
        if (!accounted[rank]) nowhere.push_back(rank);
    if (nowhere.empty()) return {};
    return fmt::format("the captured {} of {} {} on no node, and no protect object that is left lists {}",
                       nowhere.size() == 1 ? "part" : "parts", text_of(nowhere),
                       nowhere.size() == 1 ? "is" : "are", nowhere.size() == 1 ? "it" : "them");
}

// A rank finds its part on its own machine, if the job has the same ranks. Otherwise the nodes get
// like shares.
void choose_targets(const Findings& findings, const Topology& topology, EpochRebuild& rebuild) {
    std::sort(rebuild.lost.begin(), rebuild.lost.end(),
              [](const LostPart& a, const LostPart& b) { return a.stream.rank < b.stream.rank; });
    const bool same_ranks = topology.node_of_rank.size() == rebuild.identity.rank_count;
    std::vector<uint64_t> bytes(static_cast<size_t>(topology.node_count()));
    for (const auto& part : findings.parts)
        if (same_epoch(part.header, rebuild.identity))
            bytes[static_cast<size_t>(part.node)] += part_bytes(part.header.stream);
    for (auto& lost : rebuild.lost) {
        lost.target = same_ranks
                          ? topology.node_of_rank[lost.stream.rank]
                          : static_cast<int>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
        bytes[static_cast<size_t>(lost.target)] += part_bytes(lost.stream);
    }
}

}  // namespace

bool SetRemains::has_all(uint32_t position) const {
    return std::all_of(parts[position].begin(), parts[position].end(),
                       [](const auto& part) { return part.has_value(); });
}

bool worth_keeping(const Findings& findings, const EpochIdentity& identity) {
    std::vector<EpochKey> whole = findings.committed;
    for (const auto& epoch : gather_local_epochs(findings.parts))
        if (epoch.complete()) whole.push_back(epoch.key);
    whole.push_back(identity.key);
    const Lineage lineage(whole);
    if (lineage.left_behind(identity.key)) return false;
    return std::none_of(findings.committed.begin(), findings.committed.end(), [&](const EpochKey& key) {
        return !lineage.left_behind(key) && key >= identity.key;
    });
}

namespace {

// It is worth keeping, and not complete.
bool worth_rebuilding(const Findings& findings, const EpochIdentity& identity) {
    const auto epochs = gather_local_epochs(findings.parts);
    const bool complete = std::any_of(epochs.begin(), epochs.end(), [&](const LocalEpoch& epoch) {
        return epoch.complete() && epoch.key == identity.key;
    });
    return !complete && worth_keeping(findings, identity);
}

}  // namespace

RebuildPlan plan_rebuild(const Findings& findings, const Topology& topology) {
    const auto newer = [](const EpochIdentity& a, const EpochIdentity& b) {
        return std::tie(b.key, b.run_uid, b.rank_count, b.shared_dir) <
               std::tie(a.key, a.run_uid, a.rank_count, a.shared_dir);
    };
    std::set<EpochIdentity, decltype(newer)> identities(newer);
    for (const auto& object : findings.objects) identities.insert(object.head.identity);
    RebuildPlan plan;
    for (const auto& identity : identities) {
        if (!worth_rebuilding(findings, identity)) continue;
        EpochRebuild rebuild{identity, {}, {}};
        if (const auto why = plan_epoch(findings, rebuild); !why.empty()) {
            plan.refusals.push_back(
                fmt::format("{} cannot be completed from what nodes keep for each other: {}",
                            to_string(identity.key), why));
            continue;
        }
        choose_targets(findings, topology, rebuild);
        plan.epochs.push_back(std::move(rebuild));
    }
    return plan;
}

std::vector<RebuildTerm> terms_of(const SetRemains& set, const LostPart& lost, uint64_t offset,
                                  uint64_t bytes) {
    const uint64_t logical = lost.logical_offset + offset;
    if (set.tables.redundancy.scheme == Scheme::partner) {
        const auto* copy = copy_of(set, lost.position);
        INVARIANT(copy != nullptr);
        return {{1, true, copy->head.position, 0, logical, bytes}};
    }
    const auto coding = coding_of(set);
    const auto column = static_cast<uint32_t>(logical / coding.piece_bytes());
    const uint64_t in_piece = logical % coding.piece_bytes();
    const uint32_t stripe = coding.stripe_of_column(lost.position, column);
    const auto terms = coding.recover(column, pieces_there(set, coding, stripe));
    INVARIANT(terms.has_value());
    std::vector<RebuildTerm> found;
    for (const auto& term : *terms) {
        if (term.position >= coding.columns()) {
            const uint32_t row = term.position - coding.columns();
            found.push_back({term.factor, true, coding.member_of_row(stripe, row), row, in_piece, bytes});
            continue;
        }
        const uint32_t member = coding.member_of_column(stripe, term.position);
        const uint64_t begin = term.position * coding.piece_bytes() + in_piece;
        const uint64_t has = logical_bytes(set.tables.members[member]);
        if (begin < has)
            found.push_back({term.factor, false, member, 0, begin, std::min(bytes, has - begin)});
    }
    return found;
}

uint64_t run_end(const SetRemains& set, const LostPart& lost, uint64_t offset) {
    const uint64_t logical = lost.logical_offset + offset;
    uint64_t in_piece = logical;
    uint64_t piece = UINT64_MAX;
    if (set.tables.redundancy.scheme != Scheme::partner) {
        piece = coding_of(set).piece_bytes();
        in_piece = logical % piece;
    }
    const uint64_t to_block = check_block_bytes - in_piece % check_block_bytes;
    return std::min(offset + std::min(to_block, piece - in_piece), part_bytes(lost.stream));
}

}  // namespace tailrace::internal
