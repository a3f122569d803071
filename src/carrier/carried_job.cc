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
constexpr uint64_t least_job_bytes = sizeof(uint32_t) + epoch_key_bytes;
constexpr uint64_t max_ranks = uint64_t{1} << 24;
constexpr uint32_t most_rights = 0777;
constexpr uint64_t max_align = uint64_t{1} << 40;

Status wrong(std::string_view what) {
    return Status(Code::transport, fmt::format("a session's description of itself is invalid: {}", what));
}

// A CarriedJob as it travels.
struct Setting {
    std::string key, value;  // an empty value was not given
};
struct Hosts {  // of so many ranks, one after the other
    std::string host;
    uint32_t ranks = 0;
};
struct JobMessage {
    std::vector<Setting> settings;
    std::vector<Hosts> hosts;
    CarriedJob job;  // the rest of it
};

template <class Codec>
void fields(Codec& codec, Setting& setting) {
    codec.text(setting.key, max_key_bytes);
    codec.text(setting.value, max_text_bytes);
}

template <class Codec>
void fields(Codec& codec, Hosts& hosts) {
    codec.text(hosts.host, max_text_bytes);
    codec(hosts.ranks);
}

template <class Codec>
void fields(Codec& codec, JobMessage& message) {
    auto& job = message.job;
    auto& context = job.context;
    codec.list(message.settings, 2 * sizeof(uint32_t));
    codec.list(message.hosts, 2 * sizeof(uint32_t));
    codec.number(context.node);
    codec.number(job.rank);
    codec.list(context.domains, sizeof(uint32_t),
               [&](std::string& domain) { codec.text(domain, max_text_bytes); });
    codec(context.run, context.run_uid, context.block_bytes, context.stripe_align, context.file_rights);
    codec.list(job.agent_of_node, sizeof(uint32_t));
    codec(job.brings_local_lock, job.brings_shared_lock);
}

std::vector<Setting> settings_of(const Config& config) {
    std::vector<Setting> settings;
    for (const auto& key : config_keys()) {
        const auto value = get_config(config, key.name);
        settings.push_back({std::string(key.name), value.ok() ? *value : ""});
    }
    return settings;
}

std::vector<Hosts> hosts_of(const std::vector<std::string>& hosts) {
    std::vector<Hosts> runs;
    for (const auto& host : hosts) {
        if (runs.empty() || runs.back().host != host) runs.push_back({host});
        ++runs.back().ranks;
    }
    return runs;
}

Result<std::vector<std::string>> hosts_of(const std::vector<Hosts>& runs) {
    std::vector<std::string> hosts;
    for (const auto& run : runs) {
        if (hosts.size() + run.ranks > max_ranks) return wrong("it has too many ranks");
        hosts.insert(hosts.end(), run.ranks, run.host);
    }
    return hosts;
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
        return wrong("it names agents that do not exist");
    if (context.file_rights > most_rights) return wrong("it gives the shared files invalid permissions");
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
    ByteWriter out;
    put_fields(out, JobMessage{settings_of(job.context.config), hosts_of(job.context.hosts), job});
    return out.take();
}

Result<CarriedJob> decode_carried_job(std::span<const std::byte> bytes, uint32_t agents) {
    ByteReader in(bytes);
    JobMessage message;
    get_fields(in, message);
    if (!in.at_end()) return wrong(fmt::format("its {} bytes cannot be decoded", bytes.size()));
    auto& job = message.job;
    auto& context = job.context;
    for (const auto& setting : message.settings)
        if (!setting.value.empty()) TAILRACE_TRY(set_config(context.config, setting.key, setting.value));
    TAILRACE_ASSIGN(context.hosts, hosts_of(message.hosts));
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

template <class Codec>
void fields(Codec& codec, LocalStream& stream) {
    codec(stream.info);
    codec.text(stream.path, max_text_bytes);
    codec(stream.path_offset);
}

template <class Codec>
void fields(Codec& codec, FlushJob& job) {
    codec.text(job.job, max_text_bytes);
    codec(job.key, job.run_uid, job.rank_count);
    codec.list(job.streams, stream_info_bytes);
}

std::vector<std::byte> encode(const std::vector<FlushJob>& recovered) {
    ByteWriter out;
    FieldWriter(out).list(recovered, least_job_bytes);
    return out.take();
}

Result<std::vector<FlushJob>> decode_flush_jobs(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    std::vector<FlushJob> recovered;
    FieldReader(in).list(recovered, least_job_bytes);
    if (!in.at_end()) return wrong("its recovered epochs cannot be decoded");
    return recovered;
}

Status check_part_path(const std::string& path, const std::string& local_dir) {
    std::string inside = local_dir;
    if (!inside.ends_with('/')) inside += '/';
    const auto rest = path.starts_with(inside) ? std::string_view(path).substr(inside.size()) : "";
    const auto slash = rest.find('/');
    const auto directory = rest.substr(0, slash);
    const auto name = slash == rest.npos ? "" : rest.substr(slash + 1);
    const auto plain = [](std::string_view word) {
        return !word.empty() && word != "." && word != ".." && word.find('/') == word.npos &&
               word.find('\0') == word.npos;
    };
    if (plain(directory) && plain(name)) return {};
    return Status(Code::transport,
                  fmt::format("a captured part at '{}' is not in a node's directory of {}, which this agent "
                              "serves",
                              path, local_dir));
}

}  // namespace tailrace::internal
