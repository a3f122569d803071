#include "protect/protect_together.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/caught.h"
#include "base/units.h"
#include "protect/coding.h"
#include "protect/set_layout.h"
#include "threads/throttle.h"

namespace tailrace::internal {

namespace {

using Bytes = std::vector<std::byte>;

SetLayout layout_of(const ProtectionSet& set, const ProtectWork& work) {
    std::vector<std::vector<StreamInfo>> parts;
    for (const int node : set.nodes) parts.push_back(work.parts[static_cast<size_t>(node)]);
    return SetLayout(set, work.identity, std::move(parts));
}

// How the objects of a set come about in rounds. Every rank knows the number of them.
struct Rounds {
    uint64_t block_bytes = 0, per_piece = 0, count = 0;

    // A round holds what goes out, what comes in, and a sum.
    explicit Rounds(const SetLayout& layout) {
        constexpr uint64_t unit = SetCoding::piece_alignment;
        const uint64_t blocks = 2 * layout.sources() + 1;
        block_bytes = std::clamp<uint64_t>(together_bytes / blocks / unit, 1, MiB / unit) * unit;
        per_piece = (layout.longest_piece() + block_bytes - 1) / block_bytes;
        count = layout.pieces() * per_piece;
    }
};

// A node's part in the work.
class Together {
  public:
    Together(Transport& transport, Storage& local, const Topology& topology, SetLayout layout,
             uint32_t position, const ProtectWork& work, const ProtectSettings& settings)
        : transport_(transport),
          topology_(topology),
          layout_(std::move(layout)),
          rounds_(layout_),
          position_(position),
          throttle_(settings.bandwidth_cap) {
        failure_ = open(local, work, settings);
    }

    // Makes ready what goes out in a round, and room for what comes in. A failure of the disk is
    // kept, and the others get what they wait for all the same.
    void prepare(uint64_t number) {
        memory_.clear();
        sends_.clear();
        receives_.clear();
        products_.clear();
        if (number >= rounds_.count) return;
        const auto piece = static_cast<uint32_t>(number / rounds_.per_piece);
        const uint64_t offset = number % rounds_.per_piece * rounds_.block_bytes;
        memory_.reserve(2 * size_t{layout_.members()});  // spans point into it
        for (uint32_t peer = 0; peer < layout_.members(); ++peer) {
            const int rank = topology_.representative(layout_.node_at(peer));
            if (const auto out = layout_.share(position_, peer, piece, offset, block_at(peer, offset));
                out.bytes > 0) {
                auto& bytes = memory_.emplace_back(out.bytes);
                if (failure_.ok()) failure_ = read(out.offset, bytes);
                sends_.push_back({rank, bytes});
                sent_bytes_ += out.bytes;
            }
            if (const auto in = layout_.share(peer, position_, piece, offset, block_at(position_, offset));
                in.bytes > 0) {
                auto& bytes = memory_.emplace_back(in.bytes);
                receives_.push_back({rank, bytes});
                products_.push_back({in.factor, bytes});
            }
        }
    }

    // Only the transport fails here.
    Status exchange() { return transport_.exchange(sends_, receives_); }

    // Writes what came in. A failure is kept.
    void write(uint64_t number) {
        if (number >= rounds_.count || !failure_.ok()) return;
        const auto piece = static_cast<uint32_t>(number / rounds_.per_piece);
        const uint64_t offset = number % rounds_.per_piece * rounds_.block_bytes;
        const uint64_t bytes = block_at(position_, offset);
        if (bytes == 0) return;
        failure_ = catching([&] {
            Bytes sum(bytes);
            set_to_sum(products_, sum);
            return writer_->write(piece, offset, sum);
        });
    }

    const Status& failure() const { return failure_; }
    Status finish() { return writer_->finish(); }
    uint64_t sent_bytes() const { return sent_bytes_; }
    uint64_t written_bytes() const { return file_bytes(writer_->head()); }  // after finish()
    void discard() {
        if (writer_) writer_->discard();
    }

  private:
    Status open(Storage& local, const ProtectWork& work, const ProtectSettings& settings) {
        TAILRACE_ASSIGN(part_, logical_part(local, layout_.member(position_), work.paths));
        TAILRACE_ASSIGN(writer_, ObjectWriter::create(local, settings.directory, layout_.head_of(position_),
                                                      settings.sync));
        return {};
    }
    uint64_t block_at(uint32_t position, uint64_t offset) const {
        const uint64_t whole = layout_.piece_bytes(position);
        return offset < whole ? std::min(rounds_.block_bytes, whole - offset) : 0;
    }
    Status read(uint64_t offset, std::span<std::byte> target) {
        (void)throttle_.pass(target.size());
        return part_->read(offset, target);
    }

    Transport& transport_;
    const Topology& topology_;
    const SetLayout layout_;
    const Rounds rounds_;
    const uint32_t position_;
    Throttle throttle_;
    Status failure_;
    uint64_t sent_bytes_ = 0;
    // Of the round: what goes out and comes in, and its memory.
    std::vector<Bytes> memory_;
    std::vector<Transport::Outgoing> sends_;
    std::vector<Transport::Incoming> receives_;
    std::vector<Product> products_;
    std::shared_ptr<LogicalPart> part_;
    std::unique_ptr<ObjectWriter> writer_;
};

}  // namespace

Result<std::shared_ptr<LogicalPart>> logical_part(
    Storage& storage, const MemberParts& member, const std::vector<std::pair<uint32_t, std::string>>& paths) {
    std::vector<LogicalPart::Piece> pieces;
    for (const auto& part : member.parts) {
        const auto found = std::find_if(paths.begin(), paths.end(),
                                        [&](const auto& entry) { return entry.first == part.rank; });
        if (found == paths.end())
            return Status(Code::corrupt, fmt::format("node {} does not know its captured part of rank {}",
                                                     member.node, part.rank));
        pieces.push_back({found->second, part_bytes(part)});
    }
    return std::make_shared<LogicalPart>(storage, std::move(pieces));
}

ProtectedTogether protect_together(Transport& transport, Storage& local, const Topology& topology,
                                   const Sets& sets, const ProtectWork& work,
                                   const ProtectSettings& settings) {
    const int node = topology.node_of_rank[static_cast<size_t>(transport.rank())];
    const bool represents = topology.representative(node) == transport.rank();
    uint64_t rounds = 0;
    std::unique_ptr<Together> own;
    const auto begin = [&] {
        for (const auto& set : sets.sets) {
            if (set.redundancy.scheme == Scheme::none) continue;
            SetLayout layout = layout_of(set, work);
            rounds = std::max(rounds, Rounds(layout).count);
            if (represents && &set == &sets.set_of(node))
                own = std::make_unique<Together>(transport, local, topology, std::move(layout),
                                                 sets.position_of(node), work, settings);
        }
    };
    // 1. The blocks go round. A rank without the memory for a round leaves, and the others hear of it. One
    // that fails otherwise goes on taking part.
    const Status moved = together(transport, [&]() -> Status {
        begin();
        for (uint64_t round = 0; round < rounds; ++round) {
            if (own) own->prepare(round);
            TAILRACE_TRY(own ? own->exchange() : transport.exchange({}, {}));
            if (own) own->write(round);
        }
        return {};
    });
    // 2. No object gets its name before every node knows that nobody sent anything wrong.
    const auto here = [&](const Status& status) { return status.with_context(fmt::format("node {}", node)); };
    Status all = agree(transport, moved.ok() && own ? here(own->failure()) : moved);
    // 3. All objects get their names, or none stays.
    if (all.ok()) all = agree(transport, own ? here(catching([&] { return own->finish(); })) : Status());
    if (!all.ok() && own) own->discard();
    ProtectedTogether done{all};
    if (own) done.sent_bytes = own->sent_bytes();
    if (own && all.ok()) done.written_bytes = own->written_bytes();
    return done;
}

}  // namespace tailrace::internal
