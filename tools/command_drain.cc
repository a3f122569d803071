// tailrace drain: finishes the captured epochs of programs that have died, as far as this machine's
// node-local directories hold them (drain/node_drain.h).
//
//   1  find the directories with plan records
//   2  one pass over each of them
//   3  if several directories lie here, go back to 1 until no pass writes or finishes anything: the node
//      that writes the last share finishes the epoch, and the others hear of it in their next pass
//   4  with --wait, go back to 1 every few seconds while other nodes are missing
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "base/log.h"
#include "base/units.h"
#include "bench/interrupt.h"
#include "catalog/catalog.h"
#include "command.h"
#include "config/config.h"
#include "drain/node_drain.h"
#include "drain/recorded_epochs.h"
#include "drain/tier_pass.h"
#include "drain_places.h"
#include "forget.h"
#include "progress.h"
#include "shared/retention.h"
#include "text.h"
#include "threads/mutex.h"
#include "tier_settings.h"

namespace tailrace::internal::tool {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto first_nap = 500ms;
constexpr auto longest_nap = 5s;
// A program that was killed disappears a moment before its locks do.
constexpr auto patience = 3s;

struct Options {
    std::string directory;
    std::string local_dir;
    std::string job;
    std::string wait;
    std::string for_lost;
    ForgetOptions forget;
    bool newest_first = false;
    bool dry_run = false;
    bool json = false;
};

// One epoch, as one of this machine's directories has it.
enum class Fate { committed, superseded, failed, in_use, stopped, waiting };

std::string_view name_of(Fate fate) {
    switch (fate) {
        case Fate::committed:
            return "committed";
        case Fate::superseded:
            return "superseded";
        case Fate::failed:
            return "failed";
        case Fate::in_use:
            return "in_use";
        case Fate::stopped:
            return "stopped";
        case Fate::waiting:
            return "waiting";
    }
    return "waiting";
}

Fate fate_of(DrainedEpoch::State state) {
    switch (state) {
        case DrainedEpoch::State::committed:
            return Fate::committed;
        case DrainedEpoch::State::superseded:
            return Fate::superseded;
        case DrainedEpoch::State::failed:
            return Fate::failed;
        case DrainedEpoch::State::stopped:
            return Fate::stopped;
        case DrainedEpoch::State::waiting:
            return Fate::waiting;
    }
    return Fate::waiting;
}

struct Share {
    Fate fate = Fate::waiting;
    std::string why;
    std::vector<AwaitedNodes> waiting_for;
    int round = 0;      // in which its record was last seen
    bool more = false;  // a later pass may write the share of a lost node
};

struct EpochId {
    std::string shared_dir;  // empty: only the record knows it, and cannot be read
    std::string job;
    EpochKey key;
    auto operator<=>(const EpochId&) const = default;
};

// One epoch over all directories of this machine.
struct Summary {
    std::map<std::string, Share> shares;  // by directory
    bool looked_only = false;             // this machine's own shares may be among those that are missing
    uint64_t written_bytes = 0;           // by this command
    std::set<std::string> written_for;    // lost nodes whose shares are among these

    // What is true of the epoch: the first of these that some directory says.
    const Share& decisive() const {
        return std::min_element(shares.begin(), shares.end(),
                                [](const auto& a, const auto& b) { return a.second.fate < b.second.fate; })
            ->second;
    }
    Fate fate() const { return decisive().fate; }
    std::vector<AwaitedNodes> waiting_for() const {
        std::vector<AwaitedNodes> all;
        for (const auto& [directory, share] : shares)
            all.insert(all.end(), share.waiting_for.begin(), share.waiting_for.end());
        return merge_awaited(all);
    }
    std::string text(bool with_bytes = true) const {
        std::string said;
        switch (fate()) {
            case Fate::committed:
                said = "committed";
                break;
            case Fate::superseded:
                said = "superseded: newer epochs have taken its place";
                break;
            case Fate::failed:
                said = "failed: " + decisive().why;
                break;
            case Fate::in_use:
                said = "in use: " + decisive().why;
                break;
            case Fate::stopped:
                said = "stopped before its share was written";
                break;
            case Fate::waiting:
                if (const auto nodes = waiting_for(); nodes.empty())
                    said = "all shares are written; a drain commits it";
                else
                    said = (looked_only ? "waits for the shares of " : "waiting for ") + to_string(nodes);
                break;
        }
        if (with_bytes && written_bytes > 0)
            said += fmt::format(
                " ({} written here{})", format_bytes(written_bytes),
                written_for.empty() ? "" : fmt::format(", also for {}", fmt::join(written_for, ", ")));
        return said;
    }
};

// Each round finds the same things again. What the library warns of is printed once.
class WarnOnce {
  public:
    WarnOnce() {
        set_log_callback([this](LogLevel level, std::string_view message) { hear(level, message); });
    }
    ~WarnOnce() { set_log_callback({}); }
    WarnOnce(const WarnOnce&) = delete;
    WarnOnce& operator=(const WarnOnce&) = delete;

  private:
    void hear(LogLevel level, std::string_view message) {
        static constexpr std::array<const char*, 4> names = {"debug", "info", "warning", "error"};
        MutexLock lock(mutex_);
        if (level >= LogLevel::warning && !said_.emplace(message).second) return;
        std::fprintf(stderr, "tailrace: %s: %s\n", names[static_cast<size_t>(level)],
                     std::string(message).c_str());
    }

    Mutex mutex_;
    std::set<std::string> said_ GUARDED_BY(mutex_);
};

class Drain {
  public:
    // `directories`: of the tier; empty: all. `for_lost`: see --for-lost; empty: never.
    Drain(const Options& options, const Config& config, const std::set<std::string>& directories,
          std::optional<std::chrono::seconds> for_lost, std::shared_ptr<Storage> local,
          std::shared_ptr<Storage> shared)
        : options_(options),
          directories_(directories),
          local_dir_(config.local_dir),
          local_(local),
          shared_(shared),
          drain_(config, std::move(local), std::move(shared)) {
        drain_.watch(
            [this](const DrainedEpoch& epoch, uint64_t share, uint64_t bytes) { show(epoch, share, bytes); });
        if (for_lost) drain_.write_for(lost_.emplace(*for_lost));
    }

    // Returns once there is nothing left to do here, or the time is over.
    Status run(std::chrono::seconds wait) {
        const auto begun = Clock::now(), deadline = begun + wait;
        Clock::duration nap = first_nap;
        std::set<std::string> said;
        while (true) {
            TAILRACE_ASSIGN(const bool moved, round());
            if (stopped() || options_.dry_run) return {};
            if (moved) {
                nap = first_nap;
                continue;
            }
            const auto missing = missing_text();
            if (missing.empty()) return {};
            // A node may be about to be taken for lost, and a program that was killed still have its locks.
            auto until = deadline;
            if (const auto next = next_lost()) until = std::max(until, *next);
            if (any_in_use()) until = std::max(until, begun + patience);
            if (Clock::now() >= until) return {};
            if ((Clock::now() < deadline || next_lost()) && said.insert(missing).second)
                std::fprintf(stderr, "tailrace: drain: %s; looking again for %s\n",
                             printable(missing).c_str(), age_text(seconds_until(until)).c_str());
            sleep_until(std::min(until, Clock::now() + nap));
            nap = std::min<Clock::duration>(nap * 2, longest_nap);
        }
    }

    const std::map<EpochId, Summary>& epochs() const { return epochs_; }
    const std::set<std::string>& skipped() const { return skipped_; }
    bool stopped() const { return interrupt_.flag(); }

  private:
    bool any_in_use() const {
        return std::any_of(epochs_.begin(), epochs_.end(),
                           [](const auto& entry) { return entry.second.fate() == Fate::in_use; });
    }

    static uint64_t seconds_until(Clock::time_point deadline) {
        return static_cast<uint64_t>(
            std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now()).count());
    }

    std::optional<Clock::time_point> next_lost() const {
        const bool more = std::any_of(epochs_.begin(), epochs_.end(), [](const auto& epoch) {
            const auto& shares = epoch.second.shares;
            return std::any_of(shares.begin(), shares.end(),
                               [](const auto& share) { return share.second.more; });
        });
        return more ? lost_->next(Clock::now()) : std::nullopt;
    }

    void sleep_until(Clock::time_point when) const {
        while (!stopped() && Clock::now() < when) std::this_thread::sleep_for(50ms);
    }

    // Returns whether another round could find more, because a share was written or an epoch finished in
    // this one.
    Result<bool> round() {
        ++round_;
        bool moved = false;
        size_t directories = 0;
        const auto wanted = [this](const std::string& directory) {
            return directories_.empty() || directories_.contains(directory);
        };
        const auto pass = [&](const std::string& directory) {
            if (!wanted(directory)) return Result<DrainPass>(DrainPass());
            return options_.dry_run ? drain_.look(directory)
                                    : drain_.pass(
                                          directory, [this] { return stopped(); },
                                          options_.newest_first ? NodeDrain::Order::newest_first
                                                                : NodeDrain::Order::oldest_first);
        };
        TAILRACE_ASSIGN(const auto skipped, pass_over_tier(*local_, local_dir_, options_.job, pass,
                                                           [&](const DirectoryPass& passed) {
                                                               if (!wanted(passed.directory)) return;
                                                               ++directories;
                                                               moved |= hear(passed);
                                                           }));
        for (const auto& sentence : skipped)
            if (skipped_.insert(sentence).second)
                std::fprintf(stderr, "tailrace: drain: %s\n", printable(sentence).c_str());
        ask_about_the_gone();
        return moved && directories > 1;
    }

    bool hear(const DirectoryPass& passed) {
        progress_.reset();
        bool moved = false;
        for (const auto& epoch : passed.pass.epochs) {
            Summary& summary = epochs_[{epoch.shared_dir, epoch.job, epoch.key}];
            Share& share = summary.shares[passed.directory];
            summary.looked_only = options_.dry_run;
            // A record that cannot be removed tells of a committed epoch in every round.
            const bool finished =
                epoch.state == DrainedEpoch::State::committed && share.fate != Fate::committed;
            share = {fate_of(epoch.state), epoch.why.message(), epoch.waiting_for, round_,
                     epoch.may_write_more};
            summary.written_bytes += epoch.written_bytes;
            summary.written_for.insert(epoch.wrote_for.begin(), epoch.wrote_for.end());
            moved |= epoch.written_bytes > 0 || finished;
        }
        for (const auto& record : passed.untold) {
            const auto fate = record.why.code() == Code::busy ? Fate::in_use : Fate::failed;
            epochs_[{record.shared_dir, record.name.job, record.name.key}].shares[passed.directory] = {
                fate, record.why.message(), {}, round_};
        }
        return moved;
    }

    // Somebody else, such as another drain, may have finished an epoch and removed its record.
    void ask_about_the_gone() {
        for (auto& [id, summary] : epochs_)
            for (auto& [directory, share] : summary.shares) {
                const bool settled = share.fate == Fate::committed || share.fate == Fate::superseded;
                if (settled || share.round == round_) continue;
                share = {Fate::failed, "its plan record is gone, and it is not committed", {}, round_};
                const auto listed = list_shared(*shared_, id.shared_dir, id.job);
                if (!listed.ok()) continue;
                // The record is gone, and with it how many epochs the directory keeps. A newer epoch
                // may have taken the place of this one.
                const auto need = epoch_need(id.key, 1, whole_epochs(*shared_, *listed, {}, {}));
                if (need == EpochNeed::committed) share.fate = Fate::committed;
                if (need == EpochNeed::superseded) share.fate = Fate::superseded;
            }
    }

    // What another round may still change. Empty: nothing.
    std::string missing_text() const {
        std::map<std::string, std::vector<std::string>> epochs_of;  // by what is said of them
        for (const auto& [id, summary] : epochs_)
            if (summary.fate() == Fate::waiting || summary.fate() == Fate::in_use)
                epochs_of[summary.text(false)].push_back(to_string(id.key));
        std::vector<std::string> missing;
        for (const auto& [text, epochs] : epochs_of)
            missing.push_back(fmt::format("{}: {}", fmt::join(epochs, ", "), text));
        return fmt::format("{}", fmt::join(missing, "; "));
    }

    void show(const DrainedEpoch& epoch, uint64_t share_bytes, uint64_t bytes) {
        if (bytes == 0) {
            progress_.emplace(
                fmt::format("tailrace: drain: writing {} of {}", to_string(epoch.key), epoch.job),
                share_bytes);
            shown_bytes_ = 0;
        }
        if (!progress_ || bytes < shown_bytes_) return;
        progress_->add(bytes - shown_bytes_);
        shown_bytes_ = bytes;
        if (bytes == share_bytes) progress_->finished("written");
    }

    const Options& options_;
    const std::set<std::string>& directories_;
    const std::string local_dir_;
    const std::shared_ptr<Storage> local_, shared_;
    const Interrupt interrupt_;
    const WarnOnce warn_once_;
    std::optional<LostNodes> lost_;
    NodeDrain drain_;
    std::map<EpochId, Summary> epochs_;
    std::set<std::string> skipped_;  // sentences about directories
    int round_ = 0;
    std::optional<Progress> progress_;
    uint64_t shown_bytes_ = 0;
};

nlohmann::ordered_json to_json(const EpochId& id, const Summary& summary) {
    nlohmann::ordered_json json{{"job", id.job}, {"epoch", id.key.epoch}, {"run", id.key.run}};
    if (!id.shared_dir.empty()) json["shared_dir"] = id.shared_dir;
    const auto fate = summary.fate();
    json["state"] = name_of(fate);
    if (fate == Fate::failed || fate == Fate::in_use) json["why"] = summary.decisive().why;
    if (fate == Fate::waiting) json["waiting_for"] = texts_of(summary.waiting_for());
    json["written_bytes"] = summary.written_bytes;
    if (!summary.written_for.empty()) json["written_for"] = summary.written_for;
    json["directories"] = nlohmann::ordered_json::array();
    for (const auto& [directory, share] : summary.shares) json["directories"].push_back(directory);
    return json;
}

// What the drains of several tiers have found.
struct Found {
    std::map<EpochId, Summary> epochs;
    std::set<std::string> skipped;
    bool stopped = false;

    void add(const Drain& drain) {
        for (const auto& [id, summary] : drain.epochs()) {
            Summary& all = epochs[id];
            all.shares.insert(summary.shares.begin(), summary.shares.end());
            all.looked_only = summary.looked_only;
            all.written_bytes += summary.written_bytes;
            all.written_for.insert(summary.written_for.begin(), summary.written_for.end());
        }
        skipped.insert(drain.skipped().begin(), drain.skipped().end());
        stopped = drain.stopped();
    }
};

Exit exit_of(const Found& found) {
    std::set<Fate> fates;
    for (const auto& [id, summary] : found.epochs) fates.insert(summary.fate());
    if (found.stopped) return exit_interrupted;
    if (fates.contains(Fate::failed)) return exit_damaged;
    if (fates.contains(Fate::in_use)) return exit_failed;
    return fates.contains(Fate::waiting) ? exit_waiting : exit_ok;
}

Result<std::optional<std::chrono::seconds>> time_of(const char* option, const std::string& text) {
    if (text.empty()) return std::optional<std::chrono::seconds>();
    const auto seconds = parse_age(text);
    if (!seconds.ok()) return seconds.status().with_context(option);
    return std::optional(std::chrono::seconds(*seconds));
}

struct Tier {
    Config config;
    std::shared_ptr<Storage> local, shared;
};

Result<Tier> open_tier(const std::string& local_dir) {
    Tier tier;
    TAILRACE_ASSIGN(tier.config, tier_settings(local_dir));
    const auto& config = tier.config;
    TAILRACE_ASSIGN(tier.local,
                    make_system_storage({.engine = IoEngine::posix, .rules = {.own_in = config.local_dir}}));
    TAILRACE_ASSIGN(tier.shared,
                    make_system_storage({.engine = config.io_engine, .queue_depth = config.queue_depth}));
    return tier;
}

// The time to wait is that of all tiers together.
Result<Found> drain(const Options& options, const DrainPlaces& places, std::chrono::seconds wait,
                    const std::optional<std::chrono::seconds>& for_lost) {
    Found found;
    const auto deadline = Clock::now() + wait;
    for (const auto& local_dir : places.tiers) {
        TAILRACE_ASSIGN(const auto tier, open_tier(local_dir));
        Drain drain(options, tier.config, places.directories, for_lost, tier.local, tier.shared);
        const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
        TAILRACE_TRY(drain.run(std::clamp(left, 0s, wait)));
        found.add(drain);
        if (found.stopped) break;
    }
    return found;
}

Exit run(const Options& options) {
    const auto wait = time_of("--wait", options.wait), for_lost = time_of("--for-lost", options.for_lost);
    for (const auto& time : {wait, for_lost})
        if (!time.ok()) return report(time.status());
    if (!options.forget.shared_dir.empty()) {
        const auto tier = open_tier(options.local_dir);
        if (!tier.ok()) return report(tier.status());
        auto forget_options = options.forget;
        forget_options.job = options.job;
        forget_options.json = options.json;
        return forget(forget_options, tier->config.local_dir, *tier->local, *tier->shared);
    }
    const auto looking = make_system_storage({.engine = IoEngine::posix});
    if (!looking.ok()) return report(looking.status());
    const auto places = find_drain_places(**looking, options.directory, options.local_dir);
    if (!places.ok()) return report(places.status());
    const auto found = drain(options, *places, wait->value_or(0s), *for_lost);
    if (!found.ok()) return report(found.status());
    const Exit exit = exit_of(*found);
    if (options.json) {
        nlohmann::ordered_json json{{"ok", exit == exit_ok}};
        if (places->tiers.size() == 1)
            json["local_dir"] = places->tiers.front();
        else
            json["local_dirs"] = places->tiers;
        json["epochs"] = nlohmann::ordered_json::array();
        for (const auto& [id, summary] : found->epochs) json["epochs"].push_back(to_json(id, summary));
        if (!found->skipped.empty()) json["skipped"] = found->skipped;
        print_json(json);
        return exit;
    }
    for (const auto& [id, summary] : found->epochs)
        print(fmt::format("{} of job {}{}: {}\n", to_string(id.key), printable(id.job),
                          id.shared_dir.empty() ? "" : " in " + printable(id.shared_dir),
                          printable(summary.text())));
    if (exit == exit_waiting && !for_lost->has_value())
        std::fputs(
            "tailrace: if such a node is lost for good, a node that keeps a copy of what it had captured "
            "(redundancy = partner) writes its share, too, when told to by --for-lost 0s\n",
            stderr);
    if (found->epochs.empty())
        std::fprintf(stderr, "tailrace: %s%s\n", places->nothing.c_str(),
                     options.job.empty() ? "" : (" of job " + printable(options.job)).c_str());
    return exit;
}

}  // namespace

Command add_drain(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "drain", "Finish the epochs that programs had captured on this node before they died");
    auto* directory = command->add_option(
        "DIR", options->directory,
        "A shared directory: what was captured for it. Or a node-local tier, or a node's directory in one");
    command->add_option("--local-dir,--local", options->local_dir,
                        "The node-local tier (default: the one that a session would use)");
    command->add_option("--name", options->job, "Only this job's epochs (the setting `name`)");
    auto* wait = command->add_option(
        "--wait", options->wait,
        "Wait for this time at most (90s, 5min) until other nodes have written their shares and sessions "
        "have ended");
    auto* for_lost = command->add_option(
        "--for-lost", options->for_lost,
        "Also write the share of a node that has not begun it after this time (0s, 30s), from this "
        "node's copy of its captured parts (redundancy = partner)");
    auto* newest_first = command->add_flag("--newest-first", options->newest_first,
                                           "Write the newest epoch first, in case time is short");
    auto* dry_run = command->add_flag("--dry-run", options->dry_run,
                                      "Only say which epochs there are, and for which nodes they wait");
    auto* forget = command->add_option(
        "--forget", options->forget.shared_dir,
        "Write nothing: remove everything on this node that was captured for this shared directory, "
        "which is gone for good (without --yes: only list it)");
    forget->excludes(directory)
        ->excludes(wait)
        ->excludes(for_lost)
        ->excludes(newest_first)
        ->excludes(dry_run);
    command->add_flag("--yes", options->forget.yes, "With --forget: remove it")->needs(forget);
    command->add_flag("--force", options->forget.force, "With --forget: even if the directory exists")
        ->needs(forget);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "Use drain in a job script, after the program has died. It commits the epochs that all ranks had\n"
        "captured, without the program. Run it once on every node on which the program ran, at the same\n"
        "time or one after the other. No node needs to reach another. Each node writes its own share into\n"
        "the shared directory, and the node that writes the last share commits the epoch. Captured parts\n"
        "stay, so that the next session can restore from them. That session would also finish these\n"
        "epochs, on the same nodes. drain does so before these nodes are gone.\n\n"
        "drain needs the node-local tier and the shared directory under its path. If the program got its\n"
        "node-local tier from TAILRACE_LOCAL_DIR or the configuration file, drain needs the same.\n"
        "For a shared DIR, the tiers that the records of its sessions name are searched, too.\n"
        "Everything else is in the plan records beside the captured parts. drain leaves an epoch without\n"
        "a plan record to the next session. Of the epochs that the program has kept on the nodes\n"
        "(shared_every, queue_policy) it commits only the newest. It skips a directory of another user,\n"
        "and names it.\n\n"
        "If a node is lost, its epochs wait for it. If another node keeps a copy of its captured parts,\n"
        "--for-lost makes that node write the share of the lost one. It locks the share first, so no harm\n"
        "is done if the node was only late. The shared file system must have locks.\n\n"
        "Parts that were captured for a shared directory that is gone for good stay on the nodes, and\n"
        "drain fails for them. --forget removes them, on each node. No session can restore them then.\n"
        "--forget refuses while a session, an agent or another drain uses them.\n\n"
        "Exit status: 0 nothing is left to do: every epoch is committed or superseded by a newer one; 1\n"
        "an epoch has failed; 4 a session uses the directory; 5 this node has written its share, and\n"
        "other nodes have to write theirs; 130 interrupted: the next drain goes on.\n\n"
        "  srun --ntasks-per-node=1 tailrace drain --wait 5min     in a Slurm job, after the program\n"
        "  srun ... tailrace drain --for-lost 30s                  ... if a node may be lost\n"
        "  mpiexec -ppn 1 tailrace drain --newest-first            with MPICH\n"
        "  tailrace drain /scratch/run7                            only what belongs there\n"
        "  tailrace drain --dry-run                                only list the epochs\n"
        "  tailrace drain --forget /scratch/run7 --yes             if /scratch/run7 is gone for good");
    return [options](Storage&) { return run(*options); };
}

}  // namespace tailrace::internal::tool
