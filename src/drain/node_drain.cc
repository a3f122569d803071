#include "drain/node_drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "capture/file_sets.h"
#include "catalog/catalog.h"
#include "drain/kept_share.h"
#include "drain/node_share.h"
#include "drain/recorded_epochs.h"
#include "shared/originals.h"
#include "shared/retention.h"
#include "shared/takeover.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

// A node of the record's group.
AwaitedNodes node_of(const PlanRecord& record, uint32_t node) {
    return {node, node, record.nodes[node - record.first_node].host};
}

// One epoch, from this node's record of it.
class EpochDrain {
  public:
    // `lost` and `failed` may be null.
    EpochDrain(const Config& config, std::shared_ptr<BandwidthCap> cap, const std::string& directory,
               const RecordedEpoch& recorded, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared,
               LostNodes* lost, FailedShares* failed)
        : config_(config),
          cap_(std::move(cap)),
          directory_(directory),
          record_(recorded.record),
          local_(std::move(local)),
          shared_(std::move(shared)),
          lost_(lost),
          failed_(failed) {
        epoch_.job = record_.job;
        epoch_.key = record_.key;
        epoch_.shared_dir = record_.shared_dir;
        for (const auto& stream : record_.own().streams) epoch_.own_bytes += stream.stream_bytes;
    }

    DrainedEpoch run(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        const auto state = drain(stop, watcher);
        if (state.ok())
            epoch_.state = *state;
        else
            fail(state.status());
        return epoch_;
    }

    // Its captured part is missing or damaged, here where it was made.
    bool can_never_be() const { return epoch_.state == State::failed && parts_unusable_; }

    DrainedEpoch look() {
        const Status found = find_missing();
        if (!found.ok()) fail(found);
        return epoch_;
    }

  private:
    using State = DrainedEpoch::State;

    void fail(const Status& why) {
        epoch_.state = State::failed;
        epoch_.why = why;
    }

    // If this node cannot write its own share, others may, and it may write theirs.
    Result<State> drain(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        // The program may have completed all files, in whatever groups.
        TAILRACE_ASSIGN(bool complete, name_files());
        if (complete) return State::committed;
        const auto own = try_own_share(stop, watcher);
        if (own.ok() && *own == NodeShare::End::stopped) return State::stopped;
        if (lost_ != nullptr) {
            TAILRACE_ASSIGN(const bool stopped, write_kept_share(stop, watcher));
            if (stopped) return State::stopped;
        }
        TAILRACE_ASSIGN(complete, name_files());
        if (complete) return State::committed;
        TAILRACE_TRY(own.status());
        TAILRACE_TRY(find_missing());
        if (!epoch_.waiting_for.empty()) return State::waiting;
        // The last share has come since the files were looked at.
        TAILRACE_ASSIGN(complete, name_files());
        return complete ? State::committed : State::waiting;
    }

    Result<bool> name_files() const {
        return name_if_complete(*shared_, record_.shared_dir, record_.job, record_.key);
    }

    Result<NodeShare::End> write(NodeShare& share, const NodeShare::Streams& streams, NodeShare::Lock lock,
                                 const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        const auto end =
            share.write(streams, lock, stop, [&](uint64_t bytes) { watcher(epoch_, share.bytes(), bytes); });
        if (end.ok() && *end == NodeShare::End::written) epoch_.written_bytes += share.bytes();
        return end;
    }

    Result<NodeShare::End> try_own_share(const std::function<bool()>& stop,
                                         const NodeDrain::Watcher& watcher) {
        const auto id = id_of(record_.node);
        if (const auto resting = failed_ ? failed_->resting(id, SteadyClock::now()) : std::nullopt) {
            parts_unusable_ = resting->parts_unusable;
            return resting->why;
        }
        const auto end = write_own_share(stop, watcher);
        if (failed_ && end.ok()) failed_->forget(id);
        if (failed_ && !end.ok()) failed_->failed(id, {end.status(), parts_unusable_}, SteadyClock::now());
        return end;
    }

    Result<NodeShare::End> write_own_share(const std::function<bool()>& stop,
                                           const NodeDrain::Watcher& watcher) {
        TAILRACE_ASSIGN(auto share, NodeShare::create(config_, cap_, record_, local_, shared_));
        TAILRACE_ASSIGN(const bool written, share.is_written());
        if (written) return NodeShare::End::not_needed;
        const auto end = write(
            share, [&] { return captured_streams(*local_, directory_, record_); },
            NodeShare::Lock::if_possible, stop, watcher);
        parts_unusable_ = share.parts_unusable();
        epoch_.wrote = end.ok() && *end == NodeShare::End::written;
        return end;
    }

    ShareId id_of(uint32_t node) const { return {record_.shared_dir, record_.job, record_.key, node}; }

    // Fails only with the shared directory. A copy that cannot be used is passed over. Returns whether
    // stop() said so.
    Result<bool> write_kept_share(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        // What is wrong with all that this node keeps stands under its own number.
        auto id = id_of(record_.node);
        auto copy = id;
        copy.kept = true;
        if (lost_->given_up(id) || (failed_ && failed_->resting(copy, SteadyClock::now()))) return false;
        const auto kept = find_kept_share(*local_, directory_, record_);
        if (failed_ && kept.ok()) failed_->forget(copy);
        if (failed_ && !kept.ok()) failed_->failed(copy, {kept.status()}, SteadyClock::now());
        if (!kept.ok()) return pass_over(id, kept.status(), is_damage(kept.status()));
        if (!*kept) return false;
        id.node = (*kept)->record.node;
        auto share = NodeShare::create(config_, cap_, (*kept)->record, local_, shared_);
        if (!share.ok()) return pass_over(id, share.status(), is_damage(share.status()));
        TAILRACE_ASSIGN(const bool written, share->is_written());
        if (written) {
            lost_->forget(id);
            return false;
        }
        if (!lost_->note_missing(id, SteadyClock::now())) {
            epoch_.may_write_more = !lost_->given_up(id);
            return false;
        }
        const auto end = write(
            *share, [&] { return (*kept)->streams; }, NodeShare::Lock::must, stop, watcher);
        if (!end.ok()) return pass_over(id, end.status(), share->parts_unusable());
        epoch_.may_write_more = *end == NodeShare::End::elsewhere;
        if (*end != NodeShare::End::written) return *end == NodeShare::End::stopped;
        lost_->forget(id);
        epoch_.wrote_for.push_back(to_string(node_of(share->record(), id.node)));
        log(LogLevel::info, "{} of {}: node {} has written the share of {} from the copy that it keeps",
            to_string(record_.key), record_.job, record_.node, epoch_.wrote_for.back());
        return false;
    }

    // `unusable`: the copy, or what is known of it. Returns false: nobody has stopped it.
    bool pass_over(const ShareId& share, const Status& why, bool unusable) {
        const bool own = share.node == record_.node;
        lost_->failed(share, unusable || why.code() == Code::unsupported, SteadyClock::now());
        log(LogLevel::warning, "{} of {}: node {} cannot write {}: {}", to_string(record_.key), record_.job,
            record_.node,
            own ? std::string("the share of another node, whose copy it keeps")
                : fmt::format("the share of node {}, whose copy it keeps", share.node),
            why.message());
        return false;
    }

    // Fills waiting_for.
    Status find_missing() {
        TAILRACE_ASSIGN(const auto share, NodeShare::create(config_, cap_, record_, local_, shared_));
        const auto& plan = share.plan();
        for (const auto& header : share.headers()) {
            TAILRACE_ASSIGN(const auto file,
                            takeover_progress(*shared_, record_.shared_dir, header, plan.streams()));
            if (file.complete()) continue;
            for (const uint32_t leader : file.missing)
                add_missing(node_of(record_, static_cast<uint32_t>(plan.leaders[leader])));
        }
        for (uint32_t file = 0; file < record_.file_count; ++file) {
            if (file >= plan.group.first_file && file < plan.group.last_file) continue;
            TAILRACE_TRY(look_at_other_group(plan, file));
        }
        return {};
    }

    void add_missing(AwaitedNodes nodes) {
        auto& waiting = epoch_.waiting_for;
        if (std::find(waiting.begin(), waiting.end(), nodes) == waiting.end())
            waiting.push_back(std::move(nodes));
    }

    // The layout of another group's file is not known here, but a complete file is recognised.
    Status look_at_other_group(const FlushPlan& plan, uint32_t file) {
        auto header = plan.header(plan.group.first_file);
        header.file_index = file;
        TAILRACE_ASSIGN(const bool complete, file_is_complete(*shared_, record_.shared_dir, header));
        if (complete) return {};
        for (int node = 0; node < static_cast<int>(record_.node_count); ++node) {
            const auto group = group_of_node(node, static_cast<int>(record_.node_count), record_.file_count);
            if (file < group.first_file || file >= group.last_file) continue;
            add_missing(
                {static_cast<uint32_t>(group.first_node), static_cast<uint32_t>(group.last_node - 1)});
            break;
        }
        return {};
    }

    const Config& config_;
    const std::shared_ptr<BandwidthCap> cap_;
    const std::string directory_;
    const PlanRecord record_;
    const std::shared_ptr<Storage> local_, shared_;
    LostNodes* const lost_;
    FailedShares* const failed_;
    bool parts_unusable_ = false;
    DrainedEpoch epoch_;
};

DrainedEpoch without_work(const RecordedEpoch& recorded, DrainedEpoch::State state) {
    DrainedEpoch epoch;
    epoch.job = recorded.record.job;
    epoch.key = recorded.record.key;
    epoch.shared_dir = recorded.record.shared_dir;
    epoch.state = state;
    return epoch;
}

DrainedEpoch failed(const RecordedEpoch& recorded, const Status& why) {
    auto epoch = without_work(recorded, DrainedEpoch::State::failed);
    epoch.why =
        why.code() == Code::not_found
            ? why.with_context("the shared directory is missing (if for good: tailrace drain --forget)")
            : why;
    return epoch;
}

// Of an epoch that needs no flush.
DrainedEpoch::State state_of(EpochNeed need) {
    return need == EpochNeed::committed ? DrainedEpoch::State::committed : DrainedEpoch::State::superseded;
}

// The keys of the records of the same job.
std::vector<EpochKey> keys_beside(const RecordedEpoch& recorded, const std::vector<RecordedEpoch>& records,
                                  const std::set<std::string>& unusable) {
    std::vector<EpochKey> keys;
    for (const auto& other : records)
        if (other.record.job == recorded.record.job &&
            other.record.shared_dir == recorded.record.shared_dir && !unusable.contains(other.path))
            keys.push_back(other.record.key);
    return keys;
}

// The epochs that others have begun: in takeovers, or the program before it died, which may have written this
// node's share in its own files.
Result<std::vector<EpochKey>> begun_epochs(Storage& shared, const PlanRecord& record) {
    TAILRACE_ASSIGN(auto begun, begun_takeovers(shared, record.shared_dir, record.job));
    TAILRACE_ASSIGN(const auto listed, list_shared(shared, record.shared_dir, record.job));
    for (const auto& files : listed)
        if (has_unfinished(files)) begun.push_back(files.key);
    return begun;
}

Result<EpochNeed> find_need(Storage& shared, const RecordedEpoch& recorded,
                            const std::vector<EpochKey>& usable, const std::vector<EpochKey>& whole) {
    const auto& record = recorded.record;
    std::vector<EpochKey> begun;
    if (recorded.local) {
        TAILRACE_ASSIGN(begun, begun_epochs(shared, record));
    }
    return need_of(recorded, usable, begun, whole);
}

// Epochs that were kept in the node-local tier come last, and the newest of them first, because it decides
// about the others.
void put_in_order(std::vector<RecordedEpoch>& records, NodeDrain::Order order) {
    const bool newest_first = order == NodeDrain::Order::newest_first;
    std::sort(records.begin(), records.end(), [&](const RecordedEpoch& a, const RecordedEpoch& b) {
        if (!newest_first && a.local != b.local) return b.local;
        return newest_first || a.local ? b.record.key < a.record.key : a.record.key < b.record.key;
    });
}

bool newer_is_there(EpochKey key, const std::vector<EpochKey>& whole) {
    return std::any_of(whole.begin(), whole.end(), [&](EpochKey other) { return key < other; });
}

// The node's own record, and the one that it keeps for another node.
void remove_records(Storage& local, const std::string& directory, const RecordedEpoch& recorded) {
    std::vector<std::string> paths{recorded.path};
    if (const auto entries = local.list(directory); entries.ok())
        for (const auto& entry : *entries) {
            const auto name = parse_kept_plan_file_name(entry.name);
            if (name && name->job == recorded.record.job && name->key == recorded.record.key)
                paths.push_back(join_path(directory, entry.name));
        }
    for (const auto& path : paths) {
        const Status removed = remove_if_there(local, path);
        if (!removed.ok())
            log(LogLevel::warning, "a plan record that is no longer needed could not be removed: {}",
                removed.message());
    }
}

void keep_newest(Storage& shared, const PlanRecord& record) {
    if (record.keep_shared == 0) return;
    std::vector<EpochKey> known{record.key};
    const Status kept =
        apply_shared_retention(shared, record.shared_dir, record.job, record.keep_shared, known, {});
    if (!kept.ok())
        log(LogLevel::warning, "older epochs could not be removed from {}: {}", record.shared_dir,
            kept.message());
}

Result<std::unique_ptr<DirectoryLock>> lock_if_possible(Storage& storage, const std::string& directory,
                                                        LockKind kind) {
    auto lock = storage.lock_directory(directory, kind);
    if (lock.status().code() == Code::unsupported) return std::unique_ptr<DirectoryLock>();
    return lock;
}

}  // namespace

const char* name_of(DrainedEpoch::State state) {
    switch (state) {
        case DrainedEpoch::State::committed:
            return "committed";
        case DrainedEpoch::State::waiting:
            return "waiting";
        case DrainedEpoch::State::superseded:
            return "superseded";
        case DrainedEpoch::State::failed:
            return "failed";
        case DrainedEpoch::State::stopped:
            return "stopped";
    }
    return "";
}

NodeDrain::NodeDrain(Config config, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared)
    : config_(std::move(config)),
      local_(std::move(local)),
      shared_(std::move(shared)),
      cap_(std::make_shared<BandwidthCap>(config_.bandwidth_cap)) {}

Result<DrainPass> NodeDrain::pass(const std::string& node_directory, const std::function<bool()>& stop,
                                  Order order) {
    DrainPass pass;
    // Without a record there is nothing to do, and the directory is nobody's business.
    TAILRACE_ASSIGN(const auto before, list_plan_records(*local_, node_directory));
    if (before.empty()) return pass;
    const auto own_lock = lock_if_possible(*local_, node_directory, LockKind::exclusive);
    if (own_lock.status().code() == Code::busy) {
        pass.busy = own_lock.status();
        return pass;
    }
    TAILRACE_TRY(own_lock.status());
    if (*own_lock != nullptr) remove_file_sets(*local_, node_directory);
    TAILRACE_ASSIGN(auto records, list_plan_records(*local_, node_directory));
    put_in_order(records, order);

    std::set<std::string> unusable;
    for (const auto& recorded : records) {
        const auto usable = keys_beside(recorded, records, unusable);
        if (stop() || yield_()) {
            if (need_of(recorded, usable, {}, {}) != EpochNeed::stays)
                pass.epochs.push_back(without_work(recorded, DrainedEpoch::State::stopped));
        } else if (!finish(node_directory, recorded, usable, stop, pass)) {
            unusable.insert(recorded.path);
        }
    }
    std::sort(pass.epochs.begin(), pass.epochs.end(),
              [](const DrainedEpoch& a, const DrainedEpoch& b) { return a.key < b.key; });
    return pass;
}

bool NodeDrain::finish(const std::string& node_directory, const RecordedEpoch& recorded,
                       const std::vector<EpochKey>& usable, const std::function<bool()>& stop,
                       DrainPass& pass) {
    const auto& record = recorded.record;
    const auto shared_lock = lock_if_possible(*shared_, record.shared_dir, LockKind::shared);
    if (shared_lock.status().code() == Code::busy) {
        pass.busy = shared_lock.status();
        return true;
    }
    const auto whole = shared_lock.ok() ? whole_in(*shared_, record) : shared_lock.status();
    const auto need = whole.ok() ? find_need(*shared_, recorded, usable, *whole) : whole.status();
    if (!need.ok()) {
        pass.epochs.push_back(failed(recorded, need.status()));
        return true;
    }
    if (*need == EpochNeed::stays) return true;
    bool is_usable = true;
    if (*need == EpochNeed::flush) {
        EpochDrain drain(config_, cap_, node_directory, recorded, local_, shared_, lost_, failed_);
        pass.epochs.push_back(drain.run(stop, watcher_));
        auto& epoch = pass.epochs.back();
        if (epoch.state == DrainedEpoch::State::committed) keep_newest(*shared_, record);
        is_usable = !drain.can_never_be();
        if (!is_usable && newer_is_there(record.key, *whole)) {
            log(LogLevel::warning, "{} is given up, because a newer epoch is committed: {}",
                to_string(record.key), epoch.why.message());
            epoch.state = DrainedEpoch::State::superseded;
        }
    } else {
        (void)remove_share_locks(*shared_, record.shared_dir, record.job, record.key);
        pass.epochs.push_back(without_work(recorded, state_of(*need)));
    }
    const auto state = pass.epochs.back().state;
    // Whoever has given the epoch its names may have died before it did this.
    if (state == DrainedEpoch::State::committed)
        complete_originals({*shared_, record.shared_dir, record.job}, record.key, Replace::no);
    if (state == DrainedEpoch::State::committed || state == DrainedEpoch::State::superseded)
        remove_records(*local_, node_directory, recorded);
    return is_usable;
}

Result<DrainPass> NodeDrain::look(const std::string& node_directory) {
    DrainPass pass;
    TAILRACE_ASSIGN(const auto records, list_plan_records(*local_, node_directory));
    for (const auto& recorded : records) {
        const auto whole = whole_in(*shared_, recorded.record);
        const auto need = whole.ok()
                              ? find_need(*shared_, recorded, keys_beside(recorded, records, {}), *whole)
                              : whole.status();
        if (!need.ok())
            pass.epochs.push_back(failed(recorded, need.status()));
        else if (*need == EpochNeed::flush)
            pass.epochs.push_back(
                EpochDrain(config_, cap_, node_directory, recorded, local_, shared_, nullptr, nullptr)
                    .look());
        else if (*need != EpochNeed::stays)
            pass.epochs.push_back(without_work(recorded, state_of(*need)));
    }
    return pass;
}

Result<std::vector<std::string>> directories_to_drain(Storage& local, const std::string& local_dir,
                                                      std::vector<std::string>& skipped) {
    std::vector<std::string> directories;
    const auto entries = local.list(local_dir);
    if (entries.status().code() == Code::not_found) return directories;
    TAILRACE_TRY(entries.status());
    for (const auto& entry : *entries) {
        if (entry.name.find(".node") == std::string::npos) continue;
        const auto directory = join_path(local_dir, entry.name);
        const auto files = local.list(directory);
        if (!files.ok()) {
            skipped.push_back(fmt::format("{} is skipped: {}", directory, files.status().message()));
            continue;
        }
        const bool any = std::any_of(files->begin(), files->end(), [](const DirectoryEntry& file) {
            const auto name = parse_plan_file_name(file.name);
            return name && !name->unfinished;
        });
        if (any) directories.push_back(directory);
    }
    return directories;
}

}  // namespace tailrace::internal
