#include "agent/node_protection.h"

#include <algorithm>

#include "agent/flush_setup.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "protect/protect_object.h"

namespace tailrace::internal {

uint32_t redundancy_every(const JobContext& context) {
    return context.sets.sets.empty() ? 0 : context.config.redundancy_every;
}

bool wants_protection(const JobContext& context, uint64_t sequence) {
    const uint32_t every = redundancy_every(context);
    return every > 0 && sequence % every == 0;
}

std::optional<int> copy_keeper_of_node(const JobContext& context) {
    if (context.sets.sets.empty()) return std::nullopt;
    const auto& set = context.sets.set_of(context.node);
    const auto keeper = copy_keeper(set, context.sets.position_of(context.node));
    if (!keeper) return std::nullopt;
    return set.nodes[*keeper];
}

std::optional<int> node_with_copy_here(const JobContext& context) {
    if (context.sets.sets.empty()) return std::nullopt;
    const auto& set = context.sets.set_of(context.node);
    for (uint32_t position = 0; position < set.nodes.size(); ++position)
        if (copy_keeper(set, position) == context.sets.position_of(context.node)) return set.nodes[position];
    return std::nullopt;
}

bool in_one_group(const JobContext& context, int a, int b) {
    const auto group = [&](int node) {
        return group_of_node(node, context.node_count(), context.config.files).index;
    };
    return group(a) == group(b);
}

uint32_t losses_survived(const JobContext& context) {
    uint32_t losses = UINT32_MAX;
    for (const auto& set : context.sets.sets) losses = std::min(losses, set.redundancy.losses);
    return context.sets.sets.empty() ? 0 : losses;
}

EpochIdentity identity_of(const JobContext& context, EpochKey key) {
    return {context.config.name, key, context.run_uid, static_cast<uint32_t>(context.rank_count()),
            context.tier.shared_text};
}

ProtectSettings protect_settings(const JobContext& context) {
    return {context.tier.directory(context.node), context.config.local_sync, context.config.bandwidth_cap};
}

Result<std::unique_ptr<Protector>> make_protector(const JobContext& context, std::function<void()> wake) {
    if (context.sets.sets.empty()) return std::unique_ptr<Protector>();
    const auto settings = protect_settings(context);
    return Protector::create({settings.directory, settings.sync, settings.bandwidth_cap,
                              writer_priority(context.config), std::max(1u, context.config.queue_epochs)},
                             context.sets, context.topology, context.node, *context.transport, *context.local,
                             std::move(wake));
}

ProtectJob protect_job_of(const JobContext& context, EpochKey key, std::span<const Captured> captures) {
    ProtectJob job;
    job.identity = identity_of(context, key);
    for (const auto& capture : captures) {
        job.parts.push_back(capture.stream);
        job.paths.emplace_back(capture.stream.rank, capture.path);
    }
    return job;
}

NodeProtected report_protection(const JobContext& context, const ProtectResult& result) {
    if (result.status.ok())
        log(LogLevel::info,
            "node {}: its share of {} is protected after {:.3f} s (sent: {}; kept for others: {})",
            context.node, to_string(result.key), result.seconds, format_bytes(result.sent_bytes),
            format_bytes(result.written_bytes));
    else if (context.sets.set_of(context.node).redundancy.scheme != Scheme::none)
        log(result.status.code() == Code::aborted ? LogLevel::info : LogLevel::warning,
            "node {}: {} is not protected from the loss of a node: {}", context.node, to_string(result.key),
            result.status.message());
    return {result.key,
            {context.node, result.status.ok(), result.status.message(), result.seconds, result.sent_bytes,
             result.written_bytes}};
}

void report_protected(const JobContext& context, const EpochProtected& news) {
    log(LogLevel::info, "{} is protected ({}) after {:.3f} s: it survives the loss of {} of each set",
        to_string(news.key), context.config.redundancy, news.seconds,
        counted(losses_survived(context), "node"));
}

void remove_protection(const JobContext& context, EpochKey key) {
    if (context.sets.sets.empty()) return;
    const auto removed = remove_if_there(
        *context.local,
        protect_path(context.tier.directory(context.node), context.config.name, key, context.node));
    if (!removed.ok())
        log(LogLevel::warning, "the protect object of {} on this node could not be removed: {}",
            to_string(key), removed.message());
}

}  // namespace tailrace::internal
