#include "protect/set_layout.h"

#include <algorithm>

#include "base/invariant.h"
#include "protect/coding.h"

namespace tailrace::internal {

SetLayout::SetLayout(ProtectionSet set, const EpochIdentity& identity,
                     std::vector<std::vector<StreamInfo>> parts)
    : set_(std::move(set)) {
    INVARIANT(set_.redundancy.scheme != Scheme::none && parts.size() == set_.nodes.size());
    tables_.identity = identity;
    tables_.redundancy = set_.redundancy;
    for (uint32_t position = 0; position < members(); ++position) {
        auto& listed = parts[position];
        std::sort(listed.begin(), listed.end(),
                  [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
        tables_.members.push_back({static_cast<uint32_t>(set_.nodes[position]), std::move(listed)});
        logical_bytes_.push_back(logical_bytes(tables_.members.back()));
    }
    pieces_ = piece_count(tables_);
    if (set_.redundancy.scheme != Scheme::partner) parity_bytes_ = internal::piece_bytes(tables_);
}

uint32_t SetLayout::sources() const {
    return set_.redundancy.scheme == Scheme::partner ? 1 : members() - set_.redundancy.losses;
}

ProtectHead SetLayout::head_of(uint32_t position) const {
    ProtectHead head = tables_;
    head.position = position;
    head.kept = set_.redundancy.scheme == Scheme::partner ? kept_by(set_, position) : position;
    return head;
}

uint64_t SetLayout::piece_bytes(uint32_t position) const {
    return set_.redundancy.scheme == Scheme::partner ? logical_bytes_[kept_by(set_, position)]
                                                     : parity_bytes_;
}

uint64_t SetLayout::longest_piece() const {
    return set_.redundancy.scheme == Scheme::partner
               ? *std::max_element(logical_bytes_.begin(), logical_bytes_.end())
               : parity_bytes_;
}

SetLayout::Share SetLayout::share(uint32_t from, uint32_t to, uint32_t piece, uint64_t offset,
                                  uint64_t bytes) const {
    const uint64_t has = logical_bytes_[from];
    uint64_t begin = offset;
    uint8_t factor = 1;
    if (set_.redundancy.scheme == Scheme::partner) {
        if (set_.keeper[from] != to) return {};
    } else {
        const SetCoding coding(members(), set_.redundancy.losses, parity_bytes_ * sources());
        const uint32_t stripe = coding.stripe_of_row(to, piece);
        const auto column = coding.column_of(from, stripe);
        if (!column) return {};
        begin += *column * parity_bytes_;
        factor = coding.factor(piece, *column);
    }
    if (begin >= has) return {};
    return {begin, std::min(bytes, has - begin), factor};
}

}  // namespace tailrace::internal
