#include "claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "format/file_table.h"
#include "format/frame.h"
#include "format/map_storage.h"
#include "format/plan_record.h"
#include "format/samples.h"
#include "protect/protect_file.h"

namespace tailrace::internal {

namespace {

bool expected_failure(const Status& status) {
    return (status.code() == Code::corrupt || status.code() == Code::unsupported) &&
           !status.message().empty();
}

// What a decoder returned is either an expected failure, or encodes to something that decodes to the same.
template <class T, class Encode, class Decode>
BrokenClaim check_round_trip(const Result<T>& decoded, const Encode& encode_again,
                             const Decode& decode_again) {
    if (!decoded.ok()) {
        if (expected_failure(decoded.status())) return {};
        return "a decoder failed with " + decoded.status().to_string();
    }
    auto again = decode_again(encode_again(*decoded));
    if (!again.ok()) return "what was decoded and encoded does not decode: " + again.status().to_string();
    if (!(*again == *decoded)) return "what was decoded, encoded and decoded is something else";
    return {};
}

void put_magic(Bytes& bytes, uint64_t offset, std::string_view magic) {
    for (size_t i = 0; i < magic.size(); ++i) bytes[offset + i] = static_cast<std::byte>(magic[i]);
}

BrokenClaim check_part_bytes(std::span<const std::byte> bytes) {
    return check_round_trip(
        decode_part_header(bytes), [](const PartHeader& header) { return encode(header); },
        [](const Bytes& again) { return decode_part_header(again); });
}

// Beyond the round trip: a node finds itself in its record, and each segment has one leader.
BrokenClaim check_plan_bytes(std::span<const std::byte> bytes) {
    auto record = decode_plan_record(bytes);
    if (record.ok()) {
        if (record->node < record->first_node || record->node - record->first_node >= record->nodes.size())
            return "a node is not in the group of its plan";
        std::vector<uint32_t> leaders;
        for (const auto& node : record->nodes) leaders.push_back(node.leader);
        std::sort(leaders.begin(), leaders.end());
        for (uint32_t i = 0; i < leaders.size(); ++i)
            if (leaders[i] != i) return "a segment has no leader, or two";
    }
    return check_round_trip(
        record, [](const PlanRecord& again) { return encode(again); },
        [](const Bytes& again) { return decode_plan_record(again); });
}

// Beyond the round trip: the invariants that readers rely on, said a second time in other words.
BrokenClaim check_manifest_bytes(std::span<const std::byte> bytes) {
    auto manifest = decode_manifest(bytes);
    if (manifest.ok()) {
        uint64_t end = manifest->manifest_bytes;
        for (const auto& region : manifest->regions) {
            if (region.stream_offset < end) return "a region overlaps what lies before it";
            end = region.stream_offset + region.bytes;
            if (end < region.stream_offset || end > manifest->stream_bytes)
                return "a region leaves the stream";
            if (manifest->has_checksums &&
                region.block_crcs.size() != (region.bytes + check_block_bytes - 1) / check_block_bytes)
                return "a region has not one checksum for each block";
            if (region.array && array_bytes(*region.array) != region.bytes)
                return "an array has another size";
            const auto* found = find_region(*manifest, region.name);
            if (found != &region) return "a region's name stands for another one";
        }
    }
    return check_round_trip(
        manifest, [](const PartManifest& again) { return encode(again); },
        [](const Bytes& again) { return decode_manifest(again); });
}

BrokenClaim check_index_claims(const SegmentIndex& index, const SharedHeader& header, uint32_t leader,
                               uint64_t file_bytes) {
    for (const auto& extent : index.extents) {
        if (extent.file_offset < data_offset(header) || extent.file_offset + extent.bytes > file_bytes)
            return "an extent leaves the file's data";
        if (header.stripe_bytes == 0) continue;
        uint64_t stripe = (extent.file_offset - data_offset(header)) / header.stripe_bytes;
        uint64_t position = stripe / header.leader_count * header.stripe_bytes +
                            (extent.file_offset - data_offset(header)) % header.stripe_bytes;
        auto place = place_in_stripes(header, leader, position);
        if (place.file_offset != extent.file_offset || place.run_bytes < extent.bytes)
            return "an extent lies in another leader's stripe";
    }
    return {};
}

BrokenClaim check_shared_bytes(std::span<const std::byte> bytes) {
    MapStorage storage;
    const std::string path = "d/file";
    storage.files[path] = Bytes(bytes.begin(), bytes.end());
    auto head = read_shared_head(storage, path);
    if (!head.ok()) return expected_failure(head.status()) ? "" : head.status().to_string();
    const auto& header = head->header;
    auto broken = check_round_trip(
        Result<SharedHeader>(header), [](const SharedHeader& again) { return encode(again); },
        [](const Bytes& again) { return decode_shared_header(again); });
    if (!broken.empty()) return broken;
    if (head->slots.size() != header.leader_count || head->indexes.size() != header.leader_count)
        return "not one slot for each leader";
    for (uint32_t leader = 0; leader < header.leader_count; ++leader) {
        const auto& slot = head->slots[leader];
        if (!slot.ok() && slot.status().code() == Code::not_found) continue;
        broken = check_round_trip(
            slot, [&](const LeaderSlot& again) { return encode(again, header.block_bytes); },
            [&](const Bytes& again) { return decode_leader_slot(again, header, leader); });
        if (!broken.empty()) return broken;
        if (!slot.ok()) continue;
        if (!head->indexes[leader]) return "a valid slot without an answer about its index";
        const auto& index = *head->indexes[leader];
        if (index.ok()) broken = check_index_claims(*index, header, leader, bytes.size());
        if (!broken.empty()) return broken;
        broken = check_round_trip(
            index, [](const SegmentIndex& again) { return encode(again); },
            [&](const Bytes& again) {
                auto slot_again = *slot;
                slot_again.index_bytes = again.size();
                slot_again.index_crc = crc32c(again);
                return decode_segment_index(again, header, slot_again, bytes.size());
            });
        if (!broken.empty()) return broken;
    }

    // A file that passes for an epoch of its own covers its streams exactly.
    SharedFileName name{header.job, header.key, header.file_index, header.file_count, false};
    auto epoch = load_shared_epoch(storage, {header.job, header.key, {{path, name, bytes.size(), {}}}});
    if (!epoch.ok()) {
        if (epoch.status().code() == Code::not_found || expected_failure(epoch.status())) return {};
        return "an epoch failed with " + epoch.status().to_string();
    }
    for (const auto& stream : epoch->streams) {
        uint64_t end = 0;
        for (const auto& extent : stream.extents) {
            if (extent.stream_offset != end) return "a stream has a gap or an overlap";
            end += extent.bytes;
        }
        if (end != stream.info.stream_bytes) return "a stream is not covered";
    }
    return {};
}

// Beyond the round trip: what a rebuild relies on.
BrokenClaim check_protect_bytes(std::span<const std::byte> bytes) {
    const auto head = decode_protect_head(bytes);
    if (head.ok()) {
        const auto& redundancy = head->redundancy;
        const size_t members = head->members.size();
        if (members < 2 || members > max_set_nodes || redundancy.losses < 1 || redundancy.losses >= members ||
            head->position >= members || head->kept >= members)
            return "a set that cannot be";
        if (record_bytes(*head) != bytes.size() || file_bytes(*head) < record_bytes(*head))
            return "the pieces do not lie behind the head";
        if (head->block_crcs.size() != piece_count(*head) * blocks_of_piece(*head))
            return "a block has no checksum";
        for (const auto& member : head->members) {
            if (redundancy.scheme != Scheme::partner &&
                logical_bytes(member) > piece_bytes(*head) * (members - redundancy.losses))
                return "the pieces do not cover a node's parts";
            for (size_t i = 0; i < member.parts.size(); ++i)
                if (member.parts[i].rank >= head->identity.rank_count ||
                    (i > 0 && member.parts[i].rank <= member.parts[i - 1].rank))
                    return "ranks do not ascend";
        }
    }
    return check_round_trip(
        head, [](const ProtectHead& again) { return encode(again); },
        [](const Bytes& again) { return decode_protect_head(again); });
}

// Makes header, slots and indexes of the file whole again where their places can be told.
void repair_shared_file(Bytes& file) {
    if (file.size() < shared_header_probe_bytes) file.resize(shared_header_probe_bytes);
    put_magic(file, 0, format::shared_header_magic);
    reseal(file, 0, shared_header_probe_bytes);
    auto header = decode_shared_header(file);
    if (!header.ok()) return;
    for (uint32_t leader = 0; leader < header->leader_count; ++leader) {
        uint64_t slot_at = slot_offset(*header, leader), index_at = index_offset(*header, leader);
        if (slot_at + shared_header_probe_bytes > file.size() || index_at + format::frame_bytes > file.size())
            return;
        auto index_bytes_field = std::span(file).subspan(slot_at + 56, 8);
        uint64_t index_bytes = ByteReader(index_bytes_field).get<uint64_t>();
        if (index_bytes < format::frame_bytes || index_bytes > file.size() - index_at) continue;
        put_magic(file, index_at, format::index_magic);
        reseal(file, index_at, index_bytes);
        put_magic(file, slot_at, format::slot_magic);
        store(file, slot_at + 80, crc32c(std::span(file).subspan(index_at, index_bytes)));
        reseal(file, slot_at, shared_header_probe_bytes);
    }
}

}  // namespace

BrokenClaim check_part_header(std::span<const std::byte> input) {
    if (auto broken = check_part_bytes(input); !broken.empty()) return broken;
    Bytes repaired(input.begin(), input.end());
    repaired.resize(part_header_bytes);
    put_magic(repaired, 0, format::part_header_magic);
    reseal(repaired, 0, repaired.size());
    return check_part_bytes(repaired);
}

BrokenClaim check_manifest(std::span<const std::byte> input) {
    if (auto broken = check_manifest_bytes(input); !broken.empty()) return broken;
    Bytes repaired(input.begin(), input.end());
    repaired.resize((std::max<size_t>(input.size(), 1) + stream_alignment - 1) / stream_alignment *
                    stream_alignment);
    put_magic(repaired, 0, format::manifest_magic);
    reseal(repaired, 0, repaired.size());
    return check_manifest_bytes(repaired);
}

BrokenClaim check_shared_file(std::span<const std::byte> input) {
    if (auto broken = check_shared_bytes(input); !broken.empty()) return broken;
    Bytes repaired(input.begin(), input.end());
    repair_shared_file(repaired);
    return check_shared_bytes(repaired);
}

BrokenClaim check_plan_record(std::span<const std::byte> input) {
    if (auto broken = check_plan_bytes(input); !broken.empty()) return broken;
    Bytes repaired(input.begin(), input.end());
    repaired.resize(std::max<size_t>(input.size(), format::frame_bytes));
    put_magic(repaired, 0, format::plan_magic);
    store(repaired, 24, uint64_t{repaired.size()});
    reseal(repaired, 0, repaired.size());
    return check_plan_bytes(repaired);
}

BrokenClaim check_protect_head(std::span<const std::byte> input) {
    if (auto broken = check_protect_bytes(input); !broken.empty()) return broken;
    Bytes repaired(input.begin(), input.end());
    repaired.resize(std::max<size_t>(repaired.size(), format::frame_bytes));
    put_magic(repaired, 0, format::protect_magic);
    reseal(repaired, 0, repaired.size());
    return check_protect_bytes(repaired);
}

BrokenClaim check_file_name(std::span<const std::byte> input) {
    std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    auto shared = parse_shared_file_name(text);
    if (shared && to_string(*shared) != text) return "a shared file's name does not come back";
    if (shared && shared->index >= shared->count) return "a shared file is not one of its number";
    auto part = parse_part_file_name(text);
    if (part && to_string(*part) != text) return "a part's name does not come back";
    auto object = parse_protect_file_name(text);
    if (object && to_string(*object) != text) return "a protect object's name does not come back";
    if (object && (shared || part)) return "a name is that of a protect object and of another file";
    if (shared && part) return "a name is that of a shared file and of a part";
    auto takeover = parse_takeover_name(text);
    if (takeover && takeover_name(*takeover) != text) return "a takeover's name does not come back";
    if (takeover && (shared || part)) return "a name is that of a takeover and of something else";
    auto plan = parse_plan_file_name(text);
    if (plan && to_string(*plan) != text) return "a plan record's name does not come back";
    if (plan && (shared || part)) return "a name is that of a plan record and of something else";
    auto kept = parse_kept_plan_file_name(text);
    if (kept && to_string(*kept) != text) return "a kept plan record's name does not come back";
    if (kept && (shared || part || plan)) return "a name is that of a kept plan record and of something else";
    auto lock = parse_takeover_lock_name(text);
    if (lock && to_string(*lock) != text) return "a lock file's name does not come back";
    if (lock && (shared || part || takeover)) return "a name is that of a lock file and of something else";
    return {};
}

// A table has no checksum of its own: it lies in a region, which has. Beyond the round trip: its files can be
// made in one directory, and nowhere else.
BrokenClaim check_file_table(std::span<const std::byte> input) {
    const auto files = decode_file_table(input);
    if (files.ok()) {
        std::set<std::filesystem::path> made, directories;
        for (const auto& file : *files) {
            const std::filesystem::path path(file.name);
            if (path.is_absolute() || path.lexically_normal() != path || *path.begin() == ".." || path == ".")
                return "a file leads out of its directory, or has two names";
            if (file.name.find('\0') != std::string::npos) return "a name has a zero byte";
            if (!made.insert(path).second) return "two files have one name";
            for (auto above = path.parent_path(); !above.empty(); above = above.parent_path())
                directories.insert(above);
            if (file.rights > 0777) return "a file has more than the nine rights";
        }
        for (const auto& directory : directories)
            if (made.contains(directory)) return "a file is a directory as well";
    }
    return check_round_trip(
        files, [](const std::vector<SavedFile>& again) { return encode_file_table(again); },
        [](const Bytes& again) { return decode_file_table(again); });
}

}  // namespace tailrace::internal
