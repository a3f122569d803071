// SetLayout: which bytes of which node go into which object of a set, for one epoch. Pure; both ways
// to protect (protector.h, protect_together.h) follow it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "protect/protect_file.h"
#include "protect/sets.h"

namespace tailrace::internal {

class SetLayout {
  public:
    // `parts`: what each node of the set has captured, by position, in any order.
    SetLayout(ProtectionSet set, const EpochIdentity& identity, std::vector<std::vector<StreamInfo>> parts);

    uint32_t members() const { return static_cast<uint32_t>(set_.nodes.size()); }
    int node_at(uint32_t position) const { return set_.nodes[position]; }
    // How many members send something for a block of an object.
    uint32_t sources() const;

    // The object of the member at `position`, without checksums.
    ProtectHead head_of(uint32_t position) const;
    uint32_t pieces() const { return pieces_; }
    // The length of its pieces. With partner, objects differ.
    uint64_t piece_bytes(uint32_t position) const;
    uint64_t longest_piece() const;

    // What member `from` gives for [offset, offset + bytes) of a piece of the object at `to`: a run of
    // its logical part, to be multiplied by the factor. No bytes: nothing, or zeros only.
    struct Share {
        uint64_t offset = 0, bytes = 0;
        uint8_t factor = 1;
    };
    Share share(uint32_t from, uint32_t to, uint32_t piece, uint64_t offset, uint64_t bytes) const;

    const MemberParts& member(uint32_t position) const { return tables_.members[position]; }

  private:
    const ProtectionSet set_;
    ProtectHead tables_;
    std::vector<uint64_t> logical_bytes_;
    uint32_t pieces_ = 0;
    uint64_t parity_bytes_ = 0;  // of a piece of parity
};

}  // namespace tailrace::internal
