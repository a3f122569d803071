#include "agent/plan_keeper.h"

#include "agent/flush_setup.h"
#include "agent/node_protection.h"
#include "base/caught.h"
#include "base/log.h"
#include "capture/local_tier.h"
#include "flush/recorded_plan.h"
#include "format/plan_record.h"

namespace tailrace::internal {

namespace {

void remove_or_warn(Storage& storage, const std::string& path) {
    const Status removed = remove_if_there(storage, path);
    if (!removed.ok())
        log(LogLevel::warning, "a plan record that is no longer needed could not be removed: {}",
            removed.message());
}

}  // namespace

void PlanKeeper::begin(Priority priority) {
    writing_.begin("tailrace plans", priority, [] {
        log(LogLevel::warning, "plan records may be missing, or may not have been removed: {}",
            caught_status().message());
    });
    // The thread has a copy, because epochs may end before it has looked.
    writing_.add([this, spared = recovered_] { remove_old(spared); });
}

void PlanKeeper::remove_old(const std::set<EpochKey>& spared) const {
    const auto directories =
        directories_of_node(*context_.local, context_.tier, context_.node, context_.topology, context_.hosts);
    if (!directories.ok()) return;
    const auto is_old = [&](const auto& name) {
        return name && name->job == context_.config.name && name->key.run < context_.run &&
               (name->unfinished || !spared.contains(name->key));
    };
    for (const auto& directory : *directories) {
        const auto entries = context_.local->list(directory);
        if (!entries.ok()) continue;
        for (const auto& entry : *entries)
            if (is_old(parse_plan_file_name(entry.name)) || is_old(parse_kept_plan_file_name(entry.name)))
                remove_or_warn(*context_.local, join_path(directory, entry.name));
    }
}

// An older epoch that was kept in the node-local tier is not finished any more.
void PlanKeeper::remove_local_before(EpochKey committed) const {
    const auto directory = context_.tier.directory(context_.node);
    const auto entries = context_.local->list(directory);
    if (!entries.ok()) return;
    for (const auto& entry : *entries) {
        const auto name = parse_plan_file_name(entry.name);
        if (name && name->local && name->job == context_.config.name && name->key < committed)
            remove_or_warn(*context_.local, join_path(directory, entry.name));
    }
}

std::string PlanKeeper::path_of(const Record& record, bool unfinished) const {
    const auto node = static_cast<uint32_t>(record.node);
    const auto& job = context_.config.name;
    return join_path(context_.tier.directory(context_.node),
                     record.node == context_.node
                         ? to_string(PlanFileName{job, record.key, node, unfinished, record.local})
                         : to_string(KeptPlanFileName{job, record.key, node, unfinished}));
}

void PlanKeeper::planned(EpochKey key, std::vector<NodeOffer> offers) {
    planned_for(key, context_.node, std::move(offers));
}

void PlanKeeper::planned_local(EpochKey key, std::vector<NodeOffer> offers) {
    pending_[key].local = true;
    planned(key, std::move(offers));
}

std::optional<std::vector<NodeOffer>> PlanKeeper::offered(EpochKey key, NodeOffer offer, size_t nodes) {
    auto& offers = offered_[key];
    const int of_node = offer.node;
    offers.emplace(of_node, std::move(offer));
    if (offers.size() < nodes) return std::nullopt;
    std::vector<NodeOffer> all;
    for (auto& [node, its_offer] : offers) all.push_back(std::move(its_offer));
    offered_.erase(key);
    return all;
}

void PlanKeeper::planned_for(EpochKey key, int node, std::vector<NodeOffer> offers) {
    if (recovered_.contains(key)) return;
    pending_[key].offers[node] = std::move(offers);
    write_if_known(key);
}

void PlanKeeper::arrays_fit(EpochKey key) {
    pending_[key].arrays_fit = true;
    write_if_known(key);
}

void PlanKeeper::write_if_known(EpochKey key) {
    auto& pending = pending_[key];
    if (!pending.arrays_fit) return;
    any_local_ |= pending.local;
    for (auto& [node, offers] : std::exchange(pending.offers, {})) {
        written_[key].insert(node);
        writing_.add([this, record = Record{key, node, pending.local}, its_offers = std::move(offers)] {
            const Status written = write(record, its_offers);
            if (written.ok() || failed_) return;
            failed_ = true;
            log(LogLevel::warning,
                "the plan record of {} could not be written, so only this program or the next session can "
                "finish the epoch: {}",
                to_string(record.key), written.message());
        });
    }
}

Status PlanKeeper::write(const Record& record, std::vector<NodeOffer> offers) const {
    const auto& [key, node, local] = record;
    const auto& config = context_.config;
    const auto settings = plan_settings(context_);
    TAILRACE_ASSIGN(const auto plan, make_solo_plan(config.name, key, context_.run_uid,
                                                    static_cast<uint32_t>(context_.rank_count()),
                                                    group_of_node(node, context_.node_count(), config.files),
                                                    std::move(offers), settings));
    NodePlace place{node, {}, context_.tier.shared_text, config.keep_shared, context_.file_rights};
    if (place.shared_dir.empty())
        return Status(Code::unsupported, "the shared directory has no absolute path");
    // It may have been cut (capture/local_tier.h), and would lead to another directory.
    if (place.shared_dir.size() >= max_part_directory_bytes)
        return Status(Code::unsupported, "the path of the shared directory is too long for a plan record");
    for (int other = 0; other < context_.node_count(); ++other)
        place.hosts.push_back(context_.hosts[static_cast<size_t>(context_.topology.representative(other))]);
    const auto bytes = encode(record_plan(plan, settings.chunk_bytes, place));

    const auto path = path_of(record);
    const auto unfinished = path_of(record, true);
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

// While the parts stay, other nodes' plans are still taken. They come from other nodes than this news, and
// may be later.
void PlanKeeper::ended(const EpochEnded& news) {
    const auto pending = pending_.find(news.key);
    Pending rest;
    if (pending != pending_.end()) {
        rest.arrays_fit = pending->second.arrays_fit;
        rest.local = pending->second.local || news.state == EpochState::kept_local;
    }
    pending_.erase(news.key);
    if (!news.parts_stay()) offered_.erase(news.key);
    if (news.parts_stay() && rest.arrays_fit) pending_[news.key] = rest;
    auto nodes = written_[news.key];
    written_.erase(news.key);
    const bool recovered = recovered_.erase(news.key) > 0;
    if (recovered) {
        nodes.insert(context_.node);
        if (const auto other = node_with_copy_here(context_)) nodes.insert(*other);
    }
    if (news.parts_stay()) return;
    for (const int node : nodes)
        for (const bool local : {false, true})
            writing_.add(
                [this, path = path_of({news.key, node, local})] { remove_or_warn(*context_.local, path); });
    if (news.state == EpochState::committed && (recovered || any_local_))
        writing_.add([this, key = news.key] { remove_local_before(key); });
}

}  // namespace tailrace::internal
