#include "drain/node_drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "agent/job_context.h"
#include "agent/node_flusher.h"
#include "base/log.h"
#include "catalog/catalog.h"
#include "drain/kept_share.h"
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
JobContext context_of(const Config& config, const PlanRecord& record, std::shared_ptr<Storage> local,
                      std::shared_ptr<Storage> shared) {
    JobContext context;
    context.config = config;
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
    context.working_name = takeover_name;
    return context;
}

Result<std::vector<EpochKey>> whole_in(Storage& shared, const PlanRecord& record) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(shared, record.shared_dir, record.job));
    return whole_epochs(shared, epochs, {}, {});
}

uint64_t share_bytes(const PlanRecord& record) {
    uint64_t bytes = 0;
    for (const auto& stream : record.own().streams) bytes += stream.stream_bytes;
    return bytes;
}

std::string node_text(const PlanRecord& record, uint32_t node) {
    return fmt::format("node {} ({})", node, record.nodes[node - record.first_node].host);
}

// A node's share of an epoch, by its plan record.
class Share {
  public:
    static Result<Share> create(const Config& config, const PlanRecord& record,
                                std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared) {
        TAILRACE_ASSIGN(auto plan, recorded_plan(record));
        return Share(context_of(config, record, std::move(local), std::move(shared)), record,
                     std::move(plan));
    }

    const PlanRecord& record() const { return record_; }
    const FlushPlan& plan() const { return plan_; }
    std::vector<SharedHeader> headers() const {
        std::vector<SharedHeader> headers;
        for (uint32_t file = plan_.group.first_file; file < plan_.group.last_file; ++file)
            headers.push_back(plan_.header(file));
        return headers;
    }
    Result<bool> is_written() const {
        return share_is_written(*context_.shared, record_.shared_dir, headers(), plan_.streams(),
                                record_.own().leader);
    }

    enum class Lock { must, if_possible };
    enum class End {
        written,
        not_needed,  // it was written already, or newer epochs have made it pointless
        elsewhere,   // another process writes it
        stopped,     // stop() said so
    };
    using Streams = std::function<Result<std::vector<LocalStream>>()>;
    using Progress = std::function<void(uint64_t bytes)>;
    Result<End> write(const Streams& streams, Lock lock, const std::function<bool()>& stop,
                      const Progress& progress) const {
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
        TAILRACE_ASSIGN(job.streams, streams());
        TAILRACE_ASSIGN(const auto flusher, NodeFlusher::create(context_, nullptr));
        flusher->begin();
        flusher->start(std::move(job));
        progress(0);
        while (!flusher->wait_result(SteadyClock::now() + between_questions)) {
            if (stop()) return End::stopped;
            progress(std::min(flusher->bytes_under_way(), share_bytes(record_)));
        }
        for (const auto& result : flusher->take_results()) TAILRACE_TRY(result.status);
        progress(share_bytes(record_));
        return End::written;
    }

  private:
    Share(JobContext context, PlanRecord record, FlushPlan plan)
        : context_(std::move(context)), record_(std::move(record)), plan_(std::move(plan)) {}

    JobContext context_;
    PlanRecord record_;
    FlushPlan plan_;
};

// One epoch, from this node's record of it.
class EpochDrain {
  public:
    // `lost` may be null.
    EpochDrain(const Config& config, const std::string& directory, const RecordedEpoch& recorded,
               std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared, LostNodes* lost)
        : config_(config),
          directory_(directory),
          record_(recorded.record),
          local_(std::move(local)),
          shared_(std::move(shared)),
          lost_(lost) {
        epoch_.job = record_.job;
        epoch_.key = record_.key;
        epoch_.shared_dir = record_.shared_dir;
        epoch_.bytes = share_bytes(record_);
    }

    DrainedEpoch run(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        const auto state = drain(stop, watcher);
        if (state.ok())
            epoch_.state = *state;
        else
            fail(state.status());
        return epoch_;
    }

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
        const auto own = write_own_share(stop, watcher);
        if (own.ok() && *own == Share::End::stopped) return State::stopped;
        if (lost_ != nullptr) {
            TAILRACE_ASSIGN(const auto other, write_kept_share(stop, watcher));
            if (other == Share::End::stopped) return State::stopped;
        }
        TAILRACE_ASSIGN(complete, name_files());
        if (complete) return State::committed;
        TAILRACE_TRY(own.status());
        TAILRACE_TRY(find_missing());
        return State::waiting;
    }

    Result<bool> name_files() const {
        return name_if_complete(*shared_, record_.shared_dir, record_.job, record_.key);
    }

    Result<Share::End> write(const Share& share, const Share::Streams& streams, Share::Lock lock,
                             const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        auto shown = epoch_;
        shown.bytes = share_bytes(share.record());
        const auto end = share.write(streams, lock, stop, [&](uint64_t bytes) { watcher(shown, bytes); });
        if (end.ok() && *end == Share::End::written) epoch_.written_bytes += shown.bytes;
        return end;
    }

    Result<Share::End> write_own_share(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        TAILRACE_ASSIGN(const auto share, Share::create(config_, record_, local_, shared_));
        TAILRACE_ASSIGN(const bool written, share.is_written());
        if (written) return Share::End::not_needed;
        TAILRACE_ASSIGN(const auto end,
                        write(
                            share, [&] { return captured_streams(*local_, directory_, record_); },
                            Share::Lock::if_possible, stop, watcher));
        epoch_.wrote = end == Share::End::written;
        return end;
    }

    // Fails only with the shared directory. A copy that cannot be used is passed over.
    Result<Share::End> write_kept_share(const std::function<bool()>& stop,
                                        const NodeDrain::Watcher& watcher) {
        // What is wrong with all that this node keeps stands under its own number.
        LostShare id{record_.shared_dir, record_.job, record_.key, record_.node};
        if (lost_->given_up(id)) return Share::End::not_needed;
        const auto kept = find_kept_share(*local_, directory_, record_);
        if (!kept.ok()) return pass_over(id, kept.status());
        if (!*kept) return Share::End::not_needed;
        id.node = (*kept)->record.node;
        const auto share = Share::create(config_, (*kept)->record, local_, shared_);
        if (!share.ok()) return pass_over(id, share.status());
        TAILRACE_ASSIGN(const bool written, share->is_written());
        if (written) {
            lost_->forget(id);
            return Share::End::not_needed;
        }
        if (!lost_->is_lost(id, SteadyClock::now())) {
            epoch_.may_write_more = !lost_->given_up(id);
            return Share::End::not_needed;
        }
        const auto end = write(
            *share, [&] { return (*kept)->streams; }, Share::Lock::must, stop, watcher);
        if (!end.ok()) return pass_over(id, end.status());
        epoch_.may_write_more = *end == Share::End::elsewhere;
        if (*end != Share::End::written) return end;
        lost_->forget(id);
        epoch_.wrote_for.push_back(node_text(share->record(), id.node));
        log(LogLevel::info, "{} of {}: node {} has written the share of {}, of which it keeps a copy",
            to_string(record_.key), record_.job, record_.node, epoch_.wrote_for.back());
        return end;
    }

    Share::End pass_over(const LostShare& share, const Status& why) {
        const bool own = share.node == record_.node;
        const auto code = why.code();
        const bool for_good = code == Code::corrupt || code == Code::not_found || code == Code::unsupported;
        lost_->failed(share, for_good, SteadyClock::now());
        log(LogLevel::warning, "{} of {}: node {} cannot write {}: {}", to_string(record_.key), record_.job,
            record_.node,
            own ? std::string("the share of another node of which it keeps a copy")
                : fmt::format("the share of node {}, of which it keeps a copy", share.node),
            why.message());
        return Share::End::not_needed;
    }

    // Fills waiting_for.
    Status find_missing() {
        TAILRACE_ASSIGN(const auto share, Share::create(config_, record_, local_, shared_));
        const auto& plan = share.plan();
        for (const auto& header : share.headers()) {
            TAILRACE_ASSIGN(const auto file,
                            takeover_progress(*shared_, record_.shared_dir, header, plan.streams()));
            if (file.complete()) continue;
            for (const uint32_t leader : file.missing) add_missing(plan.leaders[leader]);
        }
        for (uint32_t file = 0; file < record_.file_count; ++file) {
            if (file >= plan.group.first_file && file < plan.group.last_file) continue;
            TAILRACE_TRY(look_at_other_group(plan, file));
        }
        return {};
    }

    void add_missing(int node) { add_once(node_text(record_, static_cast<uint32_t>(node))); }

    void add_once(std::string text) {
        auto& waiting = epoch_.waiting_for;
        if (std::find(waiting.begin(), waiting.end(), text) == waiting.end())
            waiting.push_back(std::move(text));
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
            add_once(group.node_count() == 1
                         ? fmt::format("node {}", group.first_node)
                         : fmt::format("some of nodes {} to {}", group.first_node, group.last_node - 1));
            break;
        }
        return {};
    }

    const Config& config_;
    const std::string directory_;
    const PlanRecord record_;
    const std::shared_ptr<Storage> local_, shared_;
    LostNodes* const lost_;
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
    epoch.why = why;
    return epoch;
}

// Its captured part is missing or damaged.
bool can_never_be(const DrainedEpoch& epoch) {
    return epoch.state == DrainedEpoch::State::failed &&
           (epoch.why.code() == Code::corrupt || epoch.why.code() == Code::not_found);
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
        const Status removed = local.remove(path);
        if (!removed.ok() && removed.code() != Code::not_found)
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

NodeDrain::NodeDrain(Config config, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared)
    : config_(std::move(config)), local_(std::move(local)), shared_(std::move(shared)) {}

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
    TAILRACE_ASSIGN(auto records, list_plan_records(*local_, node_directory));
    if (order == Order::newest_first) std::reverse(records.begin(), records.end());

    for (const auto& recorded : records) {
        if (stop()) {
            pass.epochs.push_back(without_work(recorded, DrainedEpoch::State::stopped));
            continue;
        }
        const auto& record = recorded.record;
        const auto shared_lock = lock_if_possible(*shared_, record.shared_dir, LockKind::shared);
        if (shared_lock.status().code() == Code::busy) {
            pass.busy = shared_lock.status();
            continue;
        }
        const auto whole = shared_lock.ok() ? whole_in(*shared_, record) : shared_lock.status();
        if (!whole.ok()) {
            pass.epochs.push_back(failed(recorded, whole.status()));
            continue;
        }
        const auto need = epoch_need(record.key, record.keep_shared, *whole);
        if (need == EpochNeed::flush) {
            pass.epochs.push_back(
                EpochDrain(config_, node_directory, recorded, local_, shared_, lost_).run(stop, watcher_));
            auto& epoch = pass.epochs.back();
            if (epoch.state == DrainedEpoch::State::committed) keep_newest(*shared_, record);
            if (can_never_be(epoch) && newer_is_there(record.key, *whole)) {
                log(LogLevel::warning, "{} is given up, since a newer epoch is committed: {}",
                    to_string(record.key), epoch.why.message());
                epoch.state = DrainedEpoch::State::superseded;
            }
        } else {
            (void)remove_share_locks(*shared_, record.shared_dir, record.job, record.key);
            pass.epochs.push_back(without_work(recorded, need == EpochNeed::committed
                                                             ? DrainedEpoch::State::committed
                                                             : DrainedEpoch::State::superseded));
        }
        const auto state = pass.epochs.back().state;
        if (state == DrainedEpoch::State::committed || state == DrainedEpoch::State::superseded)
            remove_records(*local_, node_directory, recorded);
    }
    std::sort(pass.epochs.begin(), pass.epochs.end(),
              [](const DrainedEpoch& a, const DrainedEpoch& b) { return a.key < b.key; });
    return pass;
}

Result<DrainPass> NodeDrain::look(const std::string& node_directory) {
    DrainPass pass;
    TAILRACE_ASSIGN(const auto records, list_plan_records(*local_, node_directory));
    for (const auto& recorded : records) {
        const auto whole = whole_in(*shared_, recorded.record);
        if (!whole.ok()) {
            pass.epochs.push_back(failed(recorded, whole.status()));
            continue;
        }
        switch (epoch_need(recorded.record.key, recorded.record.keep_shared, *whole)) {
            case EpochNeed::flush:
                pass.epochs.push_back(
                    EpochDrain(config_, node_directory, recorded, local_, shared_, nullptr).look());
                break;
            case EpochNeed::committed:
                pass.epochs.push_back(without_work(recorded, DrainedEpoch::State::committed));
                break;
            case EpochNeed::superseded:
                pass.epochs.push_back(without_work(recorded, DrainedEpoch::State::superseded));
                break;
        }
    }
    return pass;
}

Result<std::vector<std::string>> directories_to_drain(Storage& local, const std::string& local_dir) {
    std::vector<std::string> directories;
    const auto entries = local.list(local_dir);
    if (entries.status().code() == Code::not_found) return directories;
    TAILRACE_TRY(entries.status());
    for (const auto& entry : *entries) {
        if (!entry.is_directory || entry.name.find(".node") == std::string::npos) continue;
        const auto directory = join_path(local_dir, entry.name);
        const auto files = local.list(directory);
        if (!files.ok()) {
            log(LogLevel::info, "{} is passed over: {}", directory, files.status().message());
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
