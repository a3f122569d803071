#include "drain/node_share.h"

#include <algorithm>
#include <chrono>

#include "agent/node_flusher.h"
#include "catalog/catalog.h"
#include "drain/recorded_epochs.h"
#include "flush/recorded_plan.h"
#include "shared/retention.h"
#include "shared/takeover.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

constexpr auto between_questions = 100ms;  // how often stop() is asked

// As the background of the session would have had it. The aggregator sends no message, so one rank
// stands for each node.
JobContext context_of(const Config& config, std::shared_ptr<BandwidthCap> cap, const PlanRecord& record,
                      std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared) {
    JobContext context;
    context.config = config;
    context.cap = std::move(cap);
    context.config.name = record.job;
    context.config.shared_dir = record.shared_dir;
    context.config.files = record.file_count;
    context.config.buffer_bytes = record.buffer_bytes;
    context.config.checksum = true;
    context.config.trace_dir.clear();
    context.transport = make_single_transport();
    context.local = std::move(local);
    context.shared = std::move(shared);
    for (uint32_t node = 0; node < record.node_count; ++node) {
        context.topology.node_of_rank.push_back(static_cast<int>(node));
        context.topology.ranks_of_node.push_back({static_cast<int>(node)});
    }
    context.node = static_cast<int>(record.node);
    context.run = record.key.run;
    context.run_uid = record.run_uid;
    context.block_bytes = record.block_bytes;
    context.stripe_align = record.stripe_align;
    context.file_rights = record.file_rights;
    context.working_name = takeover_name;
    return context;
}

}  // namespace

Result<std::vector<EpochKey>> whole_in(Storage& shared, const PlanRecord& record) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(shared, record.shared_dir, record.job));
    auto whole = whole_epochs(shared, epochs, {}, {});
    for (const auto& files : epochs) {
        const auto found = std::find(whole.begin(), whole.end(), files.key);
        if (found == whole.end() || files.key < record.key) continue;
        const Status loaded = load_shared_epoch(shared, files).status();
        if (loaded.ok()) continue;
        if (!is_damage(loaded)) return loaded;
        whole.erase(found);
    }
    return whole;
}

Result<NodeShare> NodeShare::create(const Config& config, std::shared_ptr<BandwidthCap> cap,
                                    const PlanRecord& record, std::shared_ptr<Storage> local,
                                    std::shared_ptr<Storage> shared) {
    TAILRACE_ASSIGN(auto plan, recorded_plan(record));
    return NodeShare(context_of(config, std::move(cap), record, std::move(local), std::move(shared)), record,
                     std::move(plan));
}

uint64_t NodeShare::bytes() const {
    uint64_t bytes = 0;
    for (const auto& stream : record_.own().streams) bytes += stream.stream_bytes;
    return bytes;
}

std::vector<SharedHeader> NodeShare::headers() const {
    std::vector<SharedHeader> headers;
    for (uint32_t file = plan_.group.first_file; file < plan_.group.last_file; ++file)
        headers.push_back(plan_.header(file));
    return headers;
}

Result<bool> NodeShare::is_written() const {
    return share_is_written(*context_.shared, record_.shared_dir, headers(), plan_.streams(),
                            record_.own().leader);
}

Result<NodeShare::End> NodeShare::write(const Streams& streams, Lock lock, const std::function<bool()>& stop,
                                        const Progress& progress) {
    const auto locked =
        lock_share(*context_.shared, record_.shared_dir, record_.job, record_.key, record_.node);
    if (locked.status().code() == Code::busy) return End::elsewhere;
    if (lock == Lock::must || locked.status().code() != Code::unsupported) TAILRACE_TRY(locked.status());
    // Others may have gone on between our look and our lock.
    TAILRACE_ASSIGN(const bool written, is_written());
    TAILRACE_ASSIGN(const auto whole, whole_in(*context_.shared, record_));
    if (written || epoch_need(record_.key, record_.keep_shared, whole) != EpochNeed::flush)
        return End::not_needed;

    FlushJob job;
    job.job = record_.job;
    job.key = record_.key;
    job.run_uid = record_.run_uid;
    job.rank_count = record_.rank_count;
    job.offers = plan_.offers;
    auto parts = streams();
    parts_unusable_ = !parts.ok() && is_damage(parts.status());
    TAILRACE_TRY(parts.status());
    job.streams = std::move(*parts);
    TAILRACE_ASSIGN(const auto flusher, NodeFlusher::create(context_, nullptr));
    flusher->begin();
    flusher->start(std::move(job));
    progress(0);
    while (!flusher->wait_result(SteadyClock::now() + between_questions)) {
        if (stop()) return End::stopped;
        progress(std::min(flusher->bytes_under_way(), bytes()));
    }
    for (const auto& result : flusher->take_results()) {
        // A missing file may be one of the shared directory. The next pass tells.
        parts_unusable_ = result.status.code() == Code::corrupt;
        TAILRACE_TRY(result.status);
    }
    progress(bytes());
    return End::written;
}

}  // namespace tailrace::internal
