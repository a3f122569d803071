#include "agent/plan_keeper.h"

#include "agent/node_aggregator.h"
#include "base/caught.h"
#include "base/log.h"
#include "capture/local_tier.h"
#include "flush/recorded_plan.h"
#include "format/plan_record.h"

namespace tailrace::internal {

namespace {

void remove_or_warn(Storage& storage, const std::string& path) {
    const Status removed = storage.remove(path);
    if (!removed.ok() && removed.code() != Code::not_found)
        log(LogLevel::warning, "a plan record that is no longer needed could not be removed: {}",
            removed.message());
}

}  // namespace

void PlanKeeper::begin(Priority priority) {
    writing_.begin("tailrace plans", priority, [] {
        log(LogLevel::warning, "plan records may be missing or stay: {}", caught_status().message());
    });
    // The thread has a copy, because epochs may end before it has looked.
    writing_.add([this, spared = recovered_] { remove_old(spared); });
}

void PlanKeeper::remove_old(const std::set<EpochKey>& spared) const {
    const auto directories =
        directories_of_node(*context_.local, context_.tier, context_.node, context_.topology, context_.hosts);
    if (!directories.ok()) return;
    for (const auto& directory : *directories) {
        const auto entries = context_.local->list(directory);
        if (!entries.ok()) continue;
        for (const auto& entry : *entries) {
            const auto name = parse_plan_file_name(entry.name);
            if (!name || name->job != context_.config.name || name->key.run >= context_.run) continue;
            if (name->unfinished || !spared.contains(name->key))
                remove_or_warn(*context_.local, join_path(directory, entry.name));
        }
    }
}

std::string PlanKeeper::path_of(EpochKey key) const {
    const PlanFileName name{context_.config.name, key, static_cast<uint32_t>(context_.node), false};
    return join_path(context_.tier.directory(context_.node), to_string(name));
}

void PlanKeeper::planned(EpochKey key, std::vector<NodeOffer> offers) {
    if (recovered_.contains(key)) return;
    pending_[key].offers = std::move(offers);
    write_if_known(key);
}

void PlanKeeper::arrays_fit(EpochKey key) {
    pending_[key].arrays_fit = true;
    write_if_known(key);
}

void PlanKeeper::write_if_known(EpochKey key) {
    auto& pending = pending_[key];
    if (!pending.arrays_fit || !pending.offers) return;
    written_.insert(key);
    writing_.add([this, key, offers = std::move(*pending.offers)] {
        const Status written = write(key, offers);
        if (written.ok() || failed_) return;
        failed_ = true;
        log(LogLevel::warning,
            "the plan record of {} could not be written, so only this program or the next session can "
            "finish the epoch: {}",
            to_string(key), written.message());
    });
    pending_.erase(key);
}

Status PlanKeeper::write(EpochKey key, std::vector<NodeOffer> offers) const {
    const auto& config = context_.config;
    const auto settings = plan_settings(context_);
    TAILRACE_ASSIGN(
        const auto plan,
        make_solo_plan(config.name, key, context_.run_uid, static_cast<uint32_t>(context_.rank_count()),
                       group_of_node(context_.node, context_.node_count(), config.files), std::move(offers),
                       settings));
    NodePlace place{context_.node, {}, context_.tier.shared_text, config.keep_shared};
    if (place.shared_dir.empty())
        return Status(Code::unsupported, "the shared directory has no absolute path");
    // It may have been cut (capture/local_tier.h), and would lead to another directory.
    if (place.shared_dir.size() >= max_part_directory_bytes)
        return Status(Code::unsupported, "the path of the shared directory is too long for a plan record");
    for (int node = 0; node < context_.node_count(); ++node)
        place.hosts.push_back(context_.hosts[static_cast<size_t>(context_.topology.representative(node))]);
    const auto bytes = encode(record_plan(plan, settings.chunk_bytes, place));

    const auto path = path_of(key);
    const auto unfinished = path + ".unfinished";
    {
        OpenOptions how{Access::write, DirectIo::off};
        how.own = true;
        TAILRACE_ASSIGN(auto file, context_.local->open(unfinished, how));
        TAILRACE_TRY(file->truncate(0));
        TAILRACE_TRY(file->write_at(bytes, 0));
        if (config.local_sync) TAILRACE_TRY(file->sync());
        TAILRACE_TRY(file->close());
    }
    TAILRACE_TRY(context_.local->rename(unfinished, path));
    if (config.local_sync)
        TAILRACE_TRY(context_.local->sync_directory(context_.tier.directory(context_.node)));
    return {};
}

void PlanKeeper::ended(const EpochEnded& news) {
    pending_.erase(news.key);
    const bool known = written_.erase(news.key) + recovered_.erase(news.key) > 0;
    const bool parts_stay = news.state == EpochState::failed && news.captured_everywhere && !news.refused;
    if (!known || parts_stay) return;
    writing_.add([this, path = path_of(news.key)] { remove_or_warn(*context_.local, path); });
}

}  // namespace tailrace::internal
