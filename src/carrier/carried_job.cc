#include "carrier/carried_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "format/codec.h"
#include "format/redundancy.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_text_bytes = 1 << 16;
constexpr uint32_t max_key_bytes = 64;
constexpr uint64_t max_ranks = uint64_t{1} << 24;
constexpr uint64_t max_align = uint64_t{1} << 40;

Status wrong(std::string_view what) {
    return Status(Code::transport, fmt::format("what a session says of itself cannot be right: {}", what));
}

// Many ranks have the same host, one after the other.
void put_hosts(ByteWriter& out, const std::vector<std::string>& hosts) {
    std::vector<std::pair<std::string_view, uint32_t>> runs;
    for (const auto& host : hosts) {
        if (runs.empty() || runs.back().first != host) runs.emplace_back(host, 0);
        ++runs.back().second;
    }
    out.put(static_cast<uint64_t>(runs.size()));
    for (const auto& [host, count] : runs) {
        out.put_string(host);
        out.put(count);
    }
}

std::vector<std::string> get_hosts(ByteReader& in) {
    std::vector<std::string> hosts;
    const uint64_t runs = in.get_count(8);
    for (uint64_t i = 0; i < runs && in.ok(); ++i) {
        const auto host = in.get_string(max_text_bytes);
        const auto count = in.get<uint32_t>();
        if (hosts.size() + count > max_ranks) in.set_failed();
        if (in.ok()) hosts.insert(hosts.end(), count, host);
    }
    return hosts;
}

void put_texts(ByteWriter& out, const std::vector<std::string>& texts) {
    out.put(static_cast<uint64_t>(texts.size()));
    for (const auto& text : texts) out.put_string(text);
}
std::vector<std::string> get_texts(ByteReader& in) {
    std::vector<std::string> texts;
    const uint64_t count = in.get_count(sizeof(uint32_t));
    for (uint64_t i = 0; i < count && in.ok(); ++i) texts.push_back(in.get_string(max_text_bytes));
    return texts;
}

void put_config(ByteWriter& out, const Config& config) {
    out.put(static_cast<uint64_t>(config_keys().size()));
    for (const auto& key : config_keys()) {
        const auto value = get_config(config, key.name);
        out.put_string(key.name);
        out.put_string(value.ok() ? *value : "");
    }
}

Result<Config> get_settings(ByteReader& in) {
    Config config;
    const uint64_t count = in.get_count(2 * sizeof(uint32_t));
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
        const auto key = in.get_string(max_key_bytes);
        const auto value = in.get_string(max_text_bytes);
        if (!in.ok()) break;
        // An empty text is a value that was not given.
        if (!value.empty()) TAILRACE_TRY(set_config(config, key, value));
    }
    return config;
}

Status check(const CarriedJob& job, uint32_t agents) {
    const auto& context = job.context;
    const auto& topology = context.topology;
    const auto nodes = static_cast<size_t>(topology.node_count());
    if (context.hosts.empty()) return wrong("it has no ranks");
    if (context.node < 0 || static_cast<size_t>(context.node) >= nodes)
        return wrong(fmt::format("it has {} nodes, but this is node {}", nodes, context.node));
    if (job.rank != topology.representative(context.node))
        return wrong(fmt::format("rank {} does not represent node {}", job.rank, context.node));
    if (job.agent_of_node.size() != nodes || std::any_of(job.agent_of_node.begin(), job.agent_of_node.end(),
                                                         [&](uint32_t agent) { return agent >= agents; }))
        return wrong("it names agents that are not there");
    if (!context.domains.empty() && context.domains.size() != nodes)
        return wrong(fmt::format("{} nodes have {} failure domains", nodes, context.domains.size()));
    const auto block = context.block_bytes;
    if (block == 0 || block > max_align || context.config.buffer_bytes == 0 ||
        context.config.buffer_bytes % block != 0 || context.stripe_align > max_align ||
        context.stripe_align % block != 0)
        return wrong("its blocks and buffers do not fit together");
    return {};
}

}  // namespace

CarriedJob carried_job_of(const JobContext& context, std::vector<uint32_t> agent_of_node) {
    CarriedJob job;
    job.context = context;
    job.context.transport.reset();
    job.context.local.reset();
    job.context.shared.reset();
    job.context.shared_lock.reset();
    job.context.signals.reset();
    job.rank = context.rank();
    job.agent_of_node = std::move(agent_of_node);
    return job;
}

std::vector<std::byte> encode(const CarriedJob& job) {
    const auto& context = job.context;
    ByteWriter out;
    put_config(out, context.config);
    put_hosts(out, context.hosts);
    out.put(static_cast<uint32_t>(context.node));
    out.put(static_cast<uint32_t>(job.rank));
    put_texts(out, context.domains);
    out.put(context.run);
    out.put(context.run_uid);
    out.put(context.block_bytes);
    out.put(context.stripe_align);
    out.put(static_cast<uint64_t>(job.agent_of_node.size()));
    for (const uint32_t agent : job.agent_of_node) out.put(agent);
    out.put(static_cast<uint8_t>(job.brings_local_lock));
    out.put(static_cast<uint8_t>(job.brings_shared_lock));
    return out.take();
}

Result<CarriedJob> decode_carried_job(std::span<const std::byte> bytes, uint32_t agents) {
    ByteReader in(bytes);
    CarriedJob job;
    auto& context = job.context;
    TAILRACE_ASSIGN(context.config, get_settings(in));
    context.hosts = get_hosts(in);
    context.node = static_cast<int>(std::min<uint32_t>(in.get<uint32_t>(), INT32_MAX));
    job.rank = static_cast<int>(std::min<uint32_t>(in.get<uint32_t>(), INT32_MAX));
    context.domains = get_texts(in);
    context.run = in.get<uint32_t>();
    context.run_uid = in.get<uint64_t>();
    context.block_bytes = in.get<uint64_t>();
    context.stripe_align = in.get<uint64_t>();
    const uint64_t count = in.get_count(sizeof(uint32_t));
    for (uint64_t i = 0; i < count; ++i) job.agent_of_node.push_back(in.get<uint32_t>());
    job.brings_local_lock = in.get<uint8_t>() != 0;
    job.brings_shared_lock = in.get<uint8_t>() != 0;
    if (!in.at_end()) return wrong(fmt::format("its {} bytes cannot be decoded", bytes.size()));
    if (context.hosts.empty()) return wrong("it has no ranks");
    // Whoever made them has completed the settings. Doing it again finds values that do not fit.
    TAILRACE_TRY(complete_config(context.config, static_cast<int>(context.hosts.size())));
    context.topology = make_topology(context.hosts, context.config.ranks_per_node);
    TAILRACE_TRY(check(job, agents));
    const auto& config = context.config;
    context.tier = local_tier(config.local_dir, config.shared_dir, config.name);
    context.points = ArrayPoints(context.run_uid);
    TAILRACE_ASSIGN(const auto redundancy, parse_redundancy(config.redundancy));
    if (!context.domains.empty())
        context.sets = make_sets(context.domains, redundancy, config.redundancy_set);
    return job;
}

std::vector<std::byte> encode(const std::vector<FlushJob>& recovered) {
    ByteWriter out;
    out.put(static_cast<uint64_t>(recovered.size()));
    for (const auto& job : recovered) {
        out.put_string(job.job);
        put(out, job.key);
        out.put(job.run_uid);
        out.put(job.rank_count);
        out.put(static_cast<uint64_t>(job.streams.size()));
        for (const auto& stream : job.streams) {
            put(out, stream.info);
            out.put_string(stream.path);
            out.put(stream.path_offset);
        }
    }
    return out.take();
}

Result<std::vector<FlushJob>> decode_flush_jobs(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    std::vector<FlushJob> recovered;
    const uint64_t count = in.get_count(sizeof(uint32_t) + epoch_key_bytes);
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
        FlushJob job;
        job.job = in.get_string(max_text_bytes);
        job.key = get_key(in);
        job.run_uid = in.get<uint64_t>();
        job.rank_count = in.get<uint32_t>();
        const uint64_t streams = in.get_count(stream_info_bytes);
        for (uint64_t s = 0; s < streams && in.ok(); ++s) {
            LocalStream stream;
            stream.info = get_stream(in);
            stream.path = in.get_string(max_text_bytes);
            stream.path_offset = in.get<uint64_t>();
            job.streams.push_back(std::move(stream));
        }
        recovered.push_back(std::move(job));
    }
    if (!in.at_end()) return wrong("its recovered epochs cannot be decoded");
    return recovered;
}

Status check_part_path(const std::string& path, const std::string& local_dir) {
    const bool inside = path.starts_with(local_dir + "/") && path.find("/../") == std::string::npos &&
                        !path.ends_with("/..") && path.find('\0') == std::string::npos;
    if (inside) return {};
    return Status(
        Code::transport,
        fmt::format("a captured part at '{}' is not in {}, which this agent serves", path, local_dir));
}

}  // namespace tailrace::internal
