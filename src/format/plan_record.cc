#include "format/plan_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "format/codec.h"
#include "format/frame.h"
#include "format/shared_file.h"
#include "format/stream_info.h"

namespace tailrace::internal {

namespace {

constexpr std::string_view what = "plan record";
constexpr uint64_t most_rights = 0777;
constexpr uint64_t min_node_bytes = 4 + 4 + 1 + 8;  // leader, host of one character, stream count

void put_node(ByteWriter& writer, const PlannedNode& node) {
    writer.put(node.leader);
    writer.put_string(node.host);
    writer.put(static_cast<uint64_t>(node.streams.size()));
    for (const auto& stream : node.streams) put(writer, stream);
}

PlannedNode get_node(ByteReader& reader) {
    PlannedNode node;
    node.leader = reader.get<uint32_t>();
    node.host = reader.get_string(max_host_bytes);
    const uint64_t count = reader.get_count(stream_info_bytes);
    for (uint64_t i = 0; i < count && reader.ok(); ++i) node.streams.push_back(get_stream(reader));
    return node;
}

Status wrong(const std::string& why) {
    return Status(Code::corrupt, fmt::format("the {} is wrong: {}", what, why));
}

Status check_numbers(const PlanRecord& record) {
    if (auto status = check_job_name(record.job); !status.ok()) return wrong(status.message());
    if (record.rank_count == 0 || record.rank_count > max_ranks)
        return wrong(fmt::format("its number of ranks is {}", record.rank_count));
    if (record.file_count == 0 || record.file_count > max_files)
        return wrong(fmt::format("its number of files is {}", record.file_count));
    if (record.shared_dir.empty() || record.shared_dir.front() != '/' ||
        record.shared_dir.size() > max_read_directory_bytes ||
        record.shared_dir.find('\0') != std::string::npos)
        return wrong("its shared directory is not an absolute path");
    if (record.node_count == 0 || record.node_count > record.rank_count)
        return wrong(fmt::format("it has {} nodes for {} ranks", record.node_count, record.rank_count));
    const uint64_t end = uint64_t{record.first_node} + record.nodes.size();
    if (record.nodes.empty() || record.nodes.size() > max_leaders_per_file || end > record.node_count ||
        record.node < record.first_node || record.node >= end)
        return wrong(fmt::format("its group has the nodes [{}, {}) of {}, and its own node is {}",
                                 record.first_node, end, record.node_count, record.node));
    return {};
}

Status check_nodes(const PlanRecord& record) {
    std::vector<bool> led(record.nodes.size());
    std::vector<uint32_t> ranks;
    for (const auto& node : record.nodes) {
        if (node.leader >= led.size() || led[node.leader])
            return wrong(fmt::format("two nodes lead segment {}, or it does not exist", node.leader));
        led[node.leader] = true;
        if (node.host.empty()) return wrong("a node has no name");
        for (const auto& stream : node.streams) {
            TAILRACE_TRY(format::check_stream_info(stream, record.rank_count).with_context(what));
            ranks.push_back(stream.rank);
        }
    }
    std::sort(ranks.begin(), ranks.end());
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end())
        return wrong("a rank's stream is there twice");
    return {};
}

}  // namespace

std::vector<std::byte> encode(const PlanRecord& record) {
    INVARIANT(record.shared_dir.size() <= max_part_directory_bytes);
    ByteWriter writer;
    format::begin_record(writer, format::plan_magic);
    put(writer, record.key);
    writer.put(record.node);
    writer.put(record.run_uid);
    writer.put(record.rank_count);
    writer.put(record.node_count);
    writer.put(record.file_count);
    writer.put(record.keep_shared);
    writer.put(record.first_node);
    writer.put(static_cast<uint32_t>(record.job.size()));
    writer.put(record.block_bytes);
    writer.put(record.buffer_bytes);
    writer.put(record.stripe_align);
    writer.put(record.index_area_bytes);
    writer.put(record.stripe_bytes);
    writer.put(uint64_t{record.file_rights});
    format::put_job(writer, record.job);
    writer.put_string(record.shared_dir);
    writer.put(static_cast<uint64_t>(record.nodes.size()));
    for (const auto& node : record.nodes) put_node(writer, node);
    const uint64_t bytes = writer.size();
    return format::seal(std::move(writer), bytes);
}

Result<PlanRecord> decode_plan_record(std::span<const std::byte> bytes) {
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::plan_magic, bytes.size(), what));
    PlanRecord record;
    record.key = get_key(reader);
    record.node = reader.get<uint32_t>();
    record.run_uid = reader.get<uint64_t>();
    record.rank_count = reader.get<uint32_t>();
    record.node_count = reader.get<uint32_t>();
    record.file_count = reader.get<uint32_t>();
    record.keep_shared = reader.get<uint32_t>();
    record.first_node = reader.get<uint32_t>();
    const auto job_bytes = reader.get<uint32_t>();
    record.block_bytes = reader.get<uint64_t>();
    record.buffer_bytes = reader.get<uint64_t>();
    record.stripe_align = reader.get<uint64_t>();
    record.index_area_bytes = reader.get<uint64_t>();
    record.stripe_bytes = reader.get<uint64_t>();
    const auto rights = reader.get<uint64_t>();
    record.job = format::get_job(reader, job_bytes);
    record.shared_dir = reader.get_string(max_read_directory_bytes);
    const uint64_t count = reader.get_count(min_node_bytes);
    for (uint64_t i = 0; i < count && reader.ok(); ++i) record.nodes.push_back(get_node(reader));
    if (!reader.at_end()) return wrong("it ends too early or too late");
    if (rights > most_rights) return wrong(fmt::format("its files' permission bits are {:o}", rights));
    record.file_rights = static_cast<uint32_t>(rights);
    TAILRACE_TRY(check_numbers(record));
    TAILRACE_TRY(check_nodes(record));
    return record;
}

}  // namespace tailrace::internal
