#include "protect/protect_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/units.h"
#include "format/codec.h"
#include "format/frame.h"
#include "format/manifest.h"
#include "format/shared_file.h"
#include "format/stream_info.h"
#include "protect/coding.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t record_alignment = 4096;
constexpr uint64_t fixed_bytes = 208;
constexpr uint64_t member_bytes = 16;
constexpr std::string_view what = "protect object's head";

Status wrong(std::string sentence) {
    return Status(Code::corrupt, fmt::format("the {} is wrong: {}", what, sentence));
}

uint64_t longest_member(const ProtectHead& head) {
    uint64_t longest = 0;
    for (const auto& member : head.members) longest = std::max(longest, logical_bytes(member));
    return longest;
}

uint64_t part_count(const ProtectHead& head) {
    uint64_t count = 0;
    for (const auto& member : head.members) count += member.parts.size();
    return count;
}

// Reads the parts of a member, and adds them to `ranks`.
Status get_parts(ByteReader& reader, MemberParts& member, uint32_t rank_count, std::set<uint32_t>& ranks) {
    uint64_t bytes = 0;
    for (auto& part : member.parts) {
        part.rank = reader.get<uint32_t>();
        part.manifest_crc = reader.get<uint32_t>();
        part.stream_bytes = reader.get<uint64_t>();
        part.manifest_bytes = reader.get<uint64_t>();
        if (auto status = format::check_stream_info(part, rank_count); !status.ok())
            return wrong(status.message());
        if (&part != &member.parts.front() && part.rank <= (&part - 1)->rank)
            return wrong(fmt::format("rank {} of node {} is out of order", part.rank, member.node));
        if (!ranks.insert(part.rank).second)
            return wrong(fmt::format("rank {} is listed for two nodes", part.rank));
        bytes += part_bytes(part);
        if (bytes > format::most_bytes) return wrong(fmt::format("node {} has too many bytes", member.node));
    }
    return {};
}

Status check_scheme(const ProtectHead& head, uint32_t member_count) {
    const auto& [scheme, losses] = head.redundancy;
    const bool known =
        scheme == Scheme::solomon || ((scheme == Scheme::partner || scheme == Scheme::parity) && losses == 1);
    if (!known || losses < 1 || losses >= member_count || member_count > max_set_nodes)
        return wrong(fmt::format("scheme {} cannot survive the loss of {} of {} nodes",
                                 static_cast<uint32_t>(scheme), losses, member_count));
    if (head.position >= member_count || head.kept >= member_count ||
        (head.kept == head.position) == (scheme == Scheme::partner))
        return wrong(fmt::format("position {} of {} keeps what position {} has", head.position, member_count,
                                 head.kept));
    return {};
}

}  // namespace

uint64_t logical_bytes(const MemberParts& member) {
    uint64_t bytes = 0;
    for (const auto& part : member.parts) bytes += part_bytes(part);
    return bytes;
}

// With N - K = 1, stripe s has one column of data, that of the node at position s + K, and f(0, 0) is 1.
std::optional<uint32_t> copied_position(const ProtectHead& head) {
    if (head.redundancy.scheme == Scheme::partner) return head.kept;
    const auto members = static_cast<uint32_t>(head.members.size());
    if (members - head.redundancy.losses != 1) return std::nullopt;
    return (head.position + head.redundancy.losses) % members;
}

uint32_t piece_count(const ProtectHead& head) {
    return head.redundancy.scheme == Scheme::partner ? 1 : head.redundancy.losses;
}

uint64_t piece_bytes(const ProtectHead& head) {
    if (head.redundancy.scheme == Scheme::partner) return logical_bytes(head.members[head.kept]);
    return SetCoding::piece_bytes_of(static_cast<uint32_t>(head.members.size()), head.redundancy.losses,
                                     longest_member(head));
}

uint64_t blocks_of_piece(const ProtectHead& head) {
    const uint64_t bytes = piece_bytes(head);
    return bytes / check_block_bytes + (bytes % check_block_bytes != 0);
}

uint64_t record_bytes(const ProtectHead& head) {
    return align_up(fixed_bytes + align_up(head.identity.shared_dir.size(), 8) +
                        member_bytes * head.members.size() + stream_info_bytes * part_count(head) +
                        sizeof(uint32_t) * piece_count(head) * blocks_of_piece(head),
                    record_alignment);
}

uint64_t file_bytes(const ProtectHead& head) {
    return record_bytes(head) + piece_count(head) * piece_bytes(head);
}

void put_tables(ByteWriter& writer, const ProtectHead& head) {
    const auto& identity = head.identity;
    put(writer, identity.key);
    writer.put(identity.rank_count);
    writer.put(identity.run_uid);
    writer.put(static_cast<uint32_t>(head.redundancy.scheme));
    writer.put(head.redundancy.losses);
    writer.put(static_cast<uint32_t>(head.members.size()));
    writer.put(head.position);
    writer.put(head.kept);
    writer.put(piece_count(head));
    writer.put(piece_bytes(head));
    writer.put(part_count(head));
    writer.put(static_cast<uint32_t>(identity.shared_dir.size()));
    writer.put(static_cast<uint32_t>(identity.job.size()));
    format::put_job(writer, identity.job);
    writer.put_bytes(std::as_bytes(std::span(identity.shared_dir.data(), identity.shared_dir.size())));
    writer.put_zeros(align_up(identity.shared_dir.size(), 8) - identity.shared_dir.size());
    for (const auto& member : head.members) {
        writer.put(member.node);
        writer.put(uint32_t{0});
        writer.put(static_cast<uint64_t>(member.parts.size()));
    }
    for (const auto& member : head.members)
        for (const auto& part : member.parts) {
            writer.put(part.rank);
            writer.put(part.manifest_crc);
            writer.put(part.stream_bytes);
            writer.put(part.manifest_bytes);
        }
}

std::vector<std::byte> encode(const ProtectHead& head) {
    INVARIANT(head.block_crcs.size() == piece_count(head) * blocks_of_piece(head));
    ByteWriter writer;
    format::begin_record(writer, format::protect_magic);
    put_tables(writer, head);
    for (const uint32_t crc : head.block_crcs) writer.put(crc);
    return format::seal(std::move(writer), record_bytes(head));
}

Result<ProtectHead> get_tables(ByteReader& reader) {
    ProtectHead head;
    auto& identity = head.identity;
    identity.key = get_key(reader);
    identity.rank_count = reader.get<uint32_t>();
    identity.run_uid = reader.get<uint64_t>();
    head.redundancy.scheme = static_cast<Scheme>(reader.get<uint32_t>());
    head.redundancy.losses = reader.get<uint32_t>();
    const auto member_count = reader.get<uint32_t>();
    head.position = reader.get<uint32_t>();
    head.kept = reader.get<uint32_t>();
    const auto found_piece_count = reader.get<uint32_t>();
    const auto found_piece_bytes = reader.get<uint64_t>();
    const auto found_part_count = reader.get<uint64_t>();
    const auto directory_bytes = reader.get<uint32_t>();
    const auto job_bytes = reader.get<uint32_t>();
    identity.job = format::get_job(reader, job_bytes);

    if (auto status = check_job_name(identity.job); !status.ok()) return wrong(status.message());
    if (identity.rank_count == 0 || identity.rank_count > max_ranks)
        return wrong(fmt::format("its number of ranks is {}", identity.rank_count));
    TAILRACE_TRY(check_scheme(head, member_count));
    if (directory_bytes > max_read_directory_bytes)
        return wrong(fmt::format("the path of its shared directory has {} bytes", directory_bytes));
    const auto directory = reader.get_bytes(directory_bytes);
    identity.shared_dir.assign(reinterpret_cast<const char*>(directory.data()), directory.size());
    if (!identity.shared_dir.empty() &&
        (identity.shared_dir.front() != '/' || identity.shared_dir.find('\0') != std::string::npos))
        return wrong("the path of its shared directory is not an absolute path");
    reader.get_bytes(align_up(directory_bytes, 8) - directory_bytes);

    std::set<uint32_t> nodes, ranks;
    uint64_t parts_left = found_part_count;
    for (uint32_t position = 0; position < member_count; ++position) {
        MemberParts member;
        member.node = reader.get<uint32_t>();
        reader.get<uint32_t>();
        const auto count = reader.get<uint64_t>();
        if (!reader.ok() || count > parts_left || count > reader.remaining() / stream_info_bytes)
            return wrong(fmt::format("node {} has {} parts, more than there are", member.node, count));
        if (!nodes.insert(member.node).second || member.node >= max_ranks)
            return wrong(fmt::format("node {} is in the set twice", member.node));
        parts_left -= count;
        member.parts.resize(count);
        head.members.push_back(std::move(member));
    }
    if (parts_left != 0) return wrong(fmt::format("{} parts belong to no node", parts_left));
    for (auto& member : head.members) TAILRACE_TRY(get_parts(reader, member, identity.rank_count, ranks));
    if (!reader.ok()) return wrong("its tables are cut off");

    if (found_piece_count != piece_count(head) || found_piece_bytes != piece_bytes(head) ||
        found_piece_bytes > format::most_bytes / max_set_nodes)
        return wrong(fmt::format("{} pieces of {} bytes do not belong to parts of these sizes",
                                 found_piece_count, found_piece_bytes));
    return head;
}

Result<ProtectHead> decode_protect_head(std::span<const std::byte> bytes) {
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::protect_magic, bytes.size(), what));
    TAILRACE_ASSIGN(auto head, get_tables(reader));
    const uint64_t crc_count = piece_count(head) * blocks_of_piece(head);
    if (crc_count > reader.remaining() / sizeof(uint32_t)) return wrong("its checksums are cut off");
    if (bytes.size() != record_bytes(head))
        return wrong(
            fmt::format("it has {} bytes, but its tables need {}", bytes.size(), record_bytes(head)));
    head.block_crcs.resize(crc_count);
    for (uint32_t& crc : head.block_crcs) crc = reader.get<uint32_t>();
    return head;
}

}  // namespace tailrace::internal
