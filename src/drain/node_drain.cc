#include "drain/node_drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "agent/job_context.h"
#include "agent/node_flusher.h"
#include "base/log.h"
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

// One epoch, from this node's record of it.
class EpochDrain {
  public:
    EpochDrain(const Config& config, const std::string& directory, const RecordedEpoch& recorded,
               std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared)
        : directory_(directory),
          record_(recorded.record),
          context_(context_of(config, recorded.record, std::move(local), std::move(shared))) {
        epoch_.job = record_.job;
        epoch_.key = record_.key;
        epoch_.shared_dir = record_.shared_dir;
        for (const auto& stream : record_.own().streams) epoch_.bytes += stream.stream_bytes;
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

    Result<State> drain(const std::function<bool()>& stop, const NodeDrain::Watcher& watcher) {
        TAILRACE_ASSIGN(const auto plan, recorded_plan(record_));
        // The program may have completed all files, in whatever groups.
        TAILRACE_ASSIGN(bool complete, name_files());
        if (complete) return State::committed;
        TAILRACE_ASSIGN(const bool written, own_share_is_written(plan));
        if (!written) {
            TAILRACE_ASSIGN(const bool done, write_own_share(plan, stop, watcher));
            if (!done) return State::stopped;
            epoch_.wrote = true;
            TAILRACE_ASSIGN(complete, name_files());
            if (complete) return State::committed;
        }
        TAILRACE_TRY(find_missing());
        return State::waiting;
    }

    Result<bool> name_files() const {
        return name_if_complete(*context_.shared, record_.shared_dir, record_.job, record_.key);
    }

    Result<std::vector<TakeoverProgress>> progress_of_own_files(const FlushPlan& plan) const {
        std::vector<TakeoverProgress> files;
        for (uint32_t file = plan.group.first_file; file < plan.group.last_file; ++file) {
            TAILRACE_ASSIGN(auto progress, takeover_progress(*context_.shared, record_.shared_dir,
                                                             plan.header(file), plan.streams()));
            files.push_back(std::move(progress));
        }
        return files;
    }

    bool lacks_own(const TakeoverProgress& file) const {
        return std::find(file.missing.begin(), file.missing.end(), record_.own().leader) !=
               file.missing.end();
    }

    // A node that has several files for itself takes over all of them, or none. A takeover that is
    // complete shows that all of them were begun, so one that is not there any more has its place.
    Result<bool> own_share_is_written(const FlushPlan& plan) const {
        TAILRACE_ASSIGN(const auto files, progress_of_own_files(plan));
        return std::all_of(files.begin(), files.end(), [&](const TakeoverProgress& file) {
            return !lacks_own(file) || (!file.begun && file.complete_under_its_name);
        });
    }

    // Returns false if stop() said so.
    Result<bool> write_own_share(const FlushPlan& plan, const std::function<bool()>& stop,
                                 const NodeDrain::Watcher& watcher) {
        FlushJob job;
        job.job = record_.job;
        job.key = record_.key;
        job.run_uid = record_.run_uid;
        job.rank_count = record_.rank_count;
        job.offers = plan.offers;
        TAILRACE_ASSIGN(job.streams, captured_streams(*context_.local, directory_, record_));
        TAILRACE_ASSIGN(const auto flusher, NodeFlusher::create(context_, nullptr));
        flusher->begin();
        flusher->start(std::move(job));
        watcher(epoch_, 0);
        while (!flusher->wait_result(SteadyClock::now() + between_questions)) {
            if (stop()) return false;
            watcher(epoch_, std::min(flusher->bytes_under_way(), epoch_.bytes));
        }
        for (const auto& result : flusher->take_results()) TAILRACE_TRY(result.status);
        watcher(epoch_, epoch_.bytes);
        return true;
    }

    // Fills waiting_for.
    Status find_missing() {
        TAILRACE_ASSIGN(const auto plan, recorded_plan(record_));
        TAILRACE_ASSIGN(const auto files, progress_of_own_files(plan));
        for (const auto& file : files) {
            if (file.complete()) continue;
            for (const uint32_t leader : file.missing) add_missing(plan.leaders[leader]);
        }
        for (uint32_t file = 0; file < record_.file_count; ++file) {
            if (file >= plan.group.first_file && file < plan.group.last_file) continue;
            TAILRACE_TRY(look_at_other_group(plan, file));
        }
        return {};
    }

    void add_missing(int node) {
        const auto& host = record_.nodes[static_cast<size_t>(node) - record_.first_node].host;
        add_once(fmt::format("node {} ({})", node, host));
    }

    void add_once(std::string text) {
        auto& waiting = epoch_.waiting_for;
        if (std::find(waiting.begin(), waiting.end(), text) == waiting.end())
            waiting.push_back(std::move(text));
    }

    // The layout of another group's file is not known here, but a complete file is recognised.
    Status look_at_other_group(const FlushPlan& plan, uint32_t file) {
        auto header = plan.header(plan.group.first_file);
        header.file_index = file;
        TAILRACE_ASSIGN(const bool complete, file_is_complete(*context_.shared, record_.shared_dir, header));
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

    const std::string directory_;
    const PlanRecord record_;
    const JobContext context_;
    DrainedEpoch epoch_;
};

Result<std::vector<EpochKey>> whole_in(Storage& shared, const PlanRecord& record) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(shared, record.shared_dir, record.job));
    return whole_epochs(shared, epochs, {}, {});
}

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

void remove_record(Storage& local, const RecordedEpoch& recorded) {
    const Status removed = local.remove(recorded.path);
    if (!removed.ok() && removed.code() != Code::not_found)
        log(LogLevel::warning, "a plan record that is no longer needed could not be removed: {}",
            removed.message());
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
                EpochDrain(config_, node_directory, recorded, local_, shared_).run(stop, watcher_));
            auto& epoch = pass.epochs.back();
            if (epoch.state == DrainedEpoch::State::committed) keep_newest(*shared_, record);
            if (can_never_be(epoch) && newer_is_there(record.key, *whole)) {
                log(LogLevel::warning, "{} is given up, since a newer epoch is committed: {}",
                    to_string(record.key), epoch.why.message());
                epoch.state = DrainedEpoch::State::superseded;
            }
        } else {
            pass.epochs.push_back(without_work(recorded, need == EpochNeed::committed
                                                             ? DrainedEpoch::State::committed
                                                             : DrainedEpoch::State::superseded));
        }
        const auto state = pass.epochs.back().state;
        if (state == DrainedEpoch::State::committed || state == DrainedEpoch::State::superseded)
            remove_record(*local_, recorded);
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
                pass.epochs.push_back(EpochDrain(config_, node_directory, recorded, local_, shared_).look());
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
