#include "protect/protect_samples.h"

#include <algorithm>

#include "base/crc32c.h"
#include "format/manifest.h"
#include "protect/coding.h"

namespace tailrace::internal {

ProtectHead random_protect_head(Random& random) {
    ProtectHead head;
    const auto like = random_part_header(random);
    head.identity = {like.job, like.key, like.run_uid, 1 + static_cast<uint32_t>(below(random, 40)), ""};
    if (below(random, 4) != 0) head.identity.shared_dir = "/scratch/" + std::string(below(random, 20), 'd');
    const auto members = static_cast<uint32_t>(2 + below(random, 8));
    head.redundancy.scheme = static_cast<Scheme>(1 + below(random, 3));
    head.redundancy.losses =
        head.redundancy.scheme == Scheme::solomon ? 1 + static_cast<uint32_t>(below(random, members - 1)) : 1;
    uint32_t rank = 0;
    for (uint32_t position = 0; position < members; ++position) {
        MemberParts member;
        member.node = 3 * position + 1;
        const uint64_t parts = below(random, 4);
        for (uint64_t i = 0; i < parts && rank < head.identity.rank_count; ++i, ++rank) {
            const uint64_t manifest = stream_alignment * below(random, 3);
            member.parts.push_back(
                {rank, manifest + below(random, 400000), manifest, static_cast<uint32_t>(random())});
        }
        head.members.push_back(std::move(member));
    }
    head.position = static_cast<uint32_t>(below(random, members));
    head.kept = head.position;
    if (head.redundancy.scheme == Scheme::partner) head.kept = (head.position + 1) % members;
    head.block_crcs.resize(piece_count(head) * blocks_of_piece(head));
    for (auto& crc : head.block_crcs) crc = static_cast<uint32_t>(random());
    return head;
}

namespace {

Bytes with_pieces(ProtectHead head, const Bytes& pieces) {
    for (uint64_t at = 0; at < pieces.size(); at += check_block_bytes)
        head.block_crcs.push_back(
            crc32c(std::span(pieces).subspan(at, std::min<uint64_t>(check_block_bytes, pieces.size() - at))));
    Bytes file = encode(head);
    file.insert(file.end(), pieces.begin(), pieces.end());
    return file;
}

}  // namespace

std::map<std::string, Bytes> golden_protect_objects() {
    const auto plan = golden_plan();
    std::vector<Bytes> parts;
    ProtectHead head;
    const auto like = golden_part_header();
    head.identity = {like.job, like.key, like.run_uid, 3, like.shared_dir};
    for (uint32_t rank = 0; rank < 3; ++rank) {
        auto about = like;
        about.stream.rank = rank;
        parts.push_back(make_part(plan.streams[rank], about));
        head.members.push_back({rank, {plan.streams[rank].info()}});
    }
    std::map<std::string, Bytes> files;
    const auto name = [&](uint32_t node) {
        return to_string(ProtectFileName{like.job, like.key, node, false});
    };
    auto partner = head;
    partner.redundancy = {Scheme::partner, 1};
    partner.position = 2;
    partner.kept = 1;
    files[name(2)] = with_pieces(partner, parts[1]);

    auto parity = head;
    parity.redundancy = {Scheme::parity, 1};
    const SetCoding coding(3, 1, std::max({parts[0].size(), parts[1].size(), parts[2].size()}));
    Bytes piece(coding.piece_bytes());
    std::vector<Product> products;
    for (uint32_t column = 0; column < 2; ++column) {
        const Bytes& part = parts[coding.member_of_column(0, column)];
        const auto begin = std::min<size_t>(part.size(), column * coding.piece_bytes());
        products.push_back({1, std::span<const std::byte>(part).subspan(
                                   begin, std::min<size_t>(part.size() - begin, coding.piece_bytes()))});
    }
    set_to_sum(products, piece);
    files[name(0)] = with_pieces(parity, piece);
    return files;
}

}  // namespace tailrace::internal
