#include "agent/flush_setup.h"

#include "base/log.h"
#include "base/units.h"
#include "shared/originals.h"

namespace tailrace::internal {

namespace {

// Small, because it comes on top of the buffers of a flush.
constexpr uint64_t verify_memory_bytes = 1 * MiB;

}  // namespace

PlanSettings plan_settings(const JobContext& context) {
    const auto& config = context.config;
    PlanSettings settings;
    settings.file_count = config.files;
    settings.leaders_per_file = config.leaders_per_file;
    settings.chunk_bytes = config.buffer_bytes;
    settings.block_bytes = context.block_bytes;
    settings.stripe_align = context.stripe_align;
    settings.placement = config.placement;
    return settings;
}

Result<std::unique_ptr<Aggregator>> make_aggregator(const JobContext& context, std::function<void()> wake) {
    const auto& config = context.config;
    AggregatorOptions options;
    options.shared_dir = config.shared_dir;
    options.plan = plan_settings(context);
    options.working_name = context.working_name;
    // Set only if this process would give other rights. If the storage chooses, default rights of the
    // directory (ACL) count, too.
    if (context.file_rights != usual_file_rights()) options.file_rights = context.file_rights;
    options.writers = config.writers;
    options.buffers = config.buffers;
    options.direct = config.direct_io;
    options.priority = writer_priority(config);
    options.cap = context.cap ? context.cap : std::make_shared<BandwidthCap>(config.bandwidth_cap);
    options.trace = !config.trace_dir.empty();
    return Aggregator::create(std::move(options), context.topology, context.node, *context.transport,
                              *context.local, *context.shared, std::move(wake));
}

Priority background_priority(const Config& config) {
    return {static_cast<int>(config.background_nice), false};
}

Priority writer_priority(const Config& config) {
    return {static_cast<int>(config.background_nice), config.background_nice > 0};
}

void report_flush(const JobContext& context, Recorder* recorder, const FlushResult& result) {
    const auto& numbers = result.statistics;
    log(LogLevel::info,
        "node {}: flush of {} {} after {:.3f} s (written: {} own, {} received; sent: {}; {} chunks received)",
        context.node, to_string(result.key), result.status.ok() ? "done" : "failed", numbers.seconds,
        format_bytes(numbers.local_bytes), format_bytes(numbers.received_bytes),
        format_bytes(numbers.sent_bytes), numbers.chunks_received);
    if (recorder) recorder->trace(result);
}

Status verify_before_commit(const JobContext& context, std::span<const PartPlace> parts) {
    if (!context.config.checksum) return {};
    return verify_parts(*context.local, parts, verify_memory_bytes)
        .with_context("verifying the captured parts");
}

Status prepare_commit(const JobContext& context, std::span<const PartPlace> parts, Throttle& throttle) {
    TAILRACE_TRY(verify_before_commit(context, parts));
    return write_originals_before_commit(context, parts, throttle);
}

// The nodes that finish an epoch of a dead program cannot know how far it has come.
Status write_originals_before_commit(const JobContext& context, std::span<const PartPlace> parts,
                                     Throttle& throttle) {
    const auto attempt =
        context.working_name == takeover_name ? OriginalsAttempt::again : OriginalsAttempt::first;
    return write_originals({*context.shared, context.config.shared_dir, context.config.name}, *context.local,
                           parts, attempt, &throttle);
}

}  // namespace tailrace::internal
