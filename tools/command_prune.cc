// tailrace prune: removes old epochs. It says what would be removed, and removes it only with
// --yes.
//
//   1  lock the directory, so that no session writes there (needed only with --yes)
//   2  read every epoch's heads and tables and decide (choose_removals, pure)
//   3  read every byte of the newest epoch that would stay; if it is damaged, do not count it and go to 2
//   4  say what would be removed
//   5  remove it, oldest epoch first
//
// If prune is killed in step 5, an epoch has lost some of its files. That epoch is marked as
// unfinished, and the next session removes the rest.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "command.h"
#include "epoch_directory.h"
#include "progress.h"
#include "read/epoch_reader.h"
#include "shared/epoch_files.h"
#include "shared/retention.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    EpochChoice choice;
    std::optional<uint64_t> keep;
    std::string older_than;
    bool leftovers = false;
    bool yes = false;
    bool json = false;
};

struct Removal {
    const ListedEpoch* epoch = nullptr;
    std::string why;
};

// An epoch that cannot be restored must not push out one that can.
bool is_restorable(Storage& storage, const ListedEpoch& epoch) {
    const Status restorable = check_restorable(storage, *epoch.shared);
    if (!restorable.ok())
        std::fprintf(stderr, "tailrace: not counted: %s\n", printable(restorable.message()).c_str());
    return restorable.ok();
}

Status read_every_byte(Storage& storage, const ListedEpoch& epoch) {
    TAILRACE_ASSIGN(const auto reader, EpochReader::open(storage, storage, epoch.sources()));
    Progress progress("reading " + to_string(epoch.found.key), epoch.data_bytes());
    for (const StreamMap& stream : epoch.shared->streams)
        TAILRACE_TRY(reader->verify(stream.info.rank, [&](uint64_t bytes) { progress.add(bytes); }));
    return Status();
}

// choose_removals, repeated until at least one of the epochs that stay has been read as a whole and
// is sound. Heads and tables do not tell whether the data are. If nothing would be removed, nothing
// is read.
std::vector<EpochKey> choose_soundly(Storage& storage, const std::vector<ListedEpoch>& epochs,
                                     std::vector<EpochAge>& ages, const RetentionRule& rule) {
    while (true) {
        auto chosen = choose_removals(ages, rule);
        if (chosen.empty()) return chosen;
        const ListedEpoch* newest = nullptr;
        for (const ListedEpoch& epoch : epochs) {
            const auto age = std::find_if(ages.begin(), ages.end(), [&](const EpochAge& other) {
                return other.key == epoch.found.key;
            });
            if (age == ages.end() || !age->complete || !age->restorable || !epoch.shared ||
                epoch.left_behind || std::find(chosen.begin(), chosen.end(), age->key) != chosen.end())
                continue;
            if (newest == nullptr || newest->found.key < epoch.found.key) newest = &epoch;
        }
        if (newest == nullptr) return chosen;
        const Status sound = read_every_byte(storage, *newest);
        if (sound.ok()) return chosen;
        std::fprintf(stderr, "tailrace: %s is damaged and not counted: %s\n",
                     to_string(newest->found.key).c_str(), printable(sound.message()).c_str());
        for (EpochAge& age : ages)
            if (age.key == newest->found.key) age.restorable = false;
    }
}

// An epoch that has lost some files, or never had all of them, and that the rule would remove if it
// were whole. Nobody can use the files that are left. `ages`: of all epochs.
bool is_remainder(const ListedEpoch& epoch, const std::vector<EpochAge>& ages, const RetentionRule& rule) {
    if (epoch.completeness != Completeness::incomplete) return false;
    if (rule.older_than_seconds && epoch.age_seconds() <= *rule.older_than_seconds) return false;
    const auto newer = std::count_if(ages.begin(), ages.end(), [&](const EpochAge& other) {
        return other.complete && other.restorable && epoch.found.key < other.key;
    });
    return static_cast<uint64_t>(newer) >= std::max<uint64_t>(1, rule.keep_newest.value_or(1));
}

// `nobody_writes`: no session holds the directory, so no incomplete epoch is still being written.
std::vector<Removal> choose(Storage& storage, const std::vector<ListedEpoch>& epochs,
                            const RetentionRule& rule, bool by_rule, bool leftovers, bool nobody_writes) {
    std::vector<EpochAge> ages;
    for (const ListedEpoch& epoch : epochs)
        if (epoch.found.files)
            ages.push_back({epoch.found.key, epoch.completeness == Completeness::complete,
                            epoch.age_seconds(), !by_rule || !epoch.shared || is_restorable(storage, epoch)});
    std::set<EpochKey> chosen;
    if (by_rule)
        for (const EpochKey& key : choose_soundly(storage, epochs, ages, rule)) chosen.insert(key);
    std::vector<Removal> removals;
    for (const ListedEpoch& epoch : epochs) {
        if (!epoch.found.files) continue;
        if (chosen.count(epoch.found.key) > 0)
            removals.push_back({&epoch, epoch.replaced      ? "replaced by a later run"
                                        : epoch.left_behind ? "left behind by a later run"
                                                            : "older than what is kept"});
        else if (by_rule && nobody_writes && is_remainder(epoch, ages, rule))
            removals.push_back({&epoch, "incomplete, older than what is kept"});
        else if (leftovers && epoch.completeness == Completeness::incomplete)
            removals.push_back({&epoch, "incomplete"});
    }
    return removals;
}

uint64_t bytes_of(const std::vector<Removal>& removals) {
    uint64_t bytes = 0;
    for (const Removal& removal : removals) bytes += removal.epoch->disk_bytes;
    return bytes;
}

size_t files_of(const std::vector<Removal>& removals) {
    size_t files = 0;
    for (const Removal& removal : removals) files += removal.epoch->found.files->files.size();
    return files;
}

void print_plan(const std::vector<Removal>& removals) {
    if (removals.empty()) return;
    Table table({"EPOCH", "RUN", "FILES", "ON DISK", "AGE", "WHY"}, {0, 1, 2, 3, 4});
    for (const Removal& removal : removals) {
        const ListedEpoch& epoch = *removal.epoch;
        table.add({std::to_string(epoch.found.key.epoch), std::to_string(epoch.found.key.run),
                   std::to_string(epoch.found.files->files.size()), format_bytes(epoch.disk_bytes),
                   age_text(epoch.age_seconds()), removal.why});
    }
    print(table.text());
}

void print_json_plan(const Options& options, const std::vector<ListedEpoch>& epochs,
                     const std::vector<Removal>& removals, bool removed) {
    nlohmann::ordered_json gone = nlohmann::ordered_json::array(), kept = nlohmann::ordered_json::array();
    for (const ListedEpoch& epoch : epochs) {
        nlohmann::ordered_json json{{"epoch", epoch.found.key.epoch},
                                    {"run", epoch.found.key.run},
                                    {"state", completeness_name(epoch.completeness)},
                                    {"disk_bytes", epoch.disk_bytes}};
        auto removal = std::find_if(removals.begin(), removals.end(),
                                    [&](const Removal& candidate) { return candidate.epoch == &epoch; });
        if (removal == removals.end()) {
            kept.push_back(std::move(json));
            continue;
        }
        json["why"] = removal->why;
        json["files"] = nlohmann::ordered_json::array();
        for (const SharedFileEntry& file : epoch.found.files->files) json["files"].push_back(file.path);
        gone.push_back(std::move(json));
    }
    print_json({{"directory", options.choice.directory},
                {"removed", removed},
                {"epochs", std::move(gone)},
                {"disk_bytes", bytes_of(removals)},
                {"kept", std::move(kept)}});
}

Status remove(Storage& storage, const std::string& directory, const std::vector<Removal>& removals) {
    for (const Removal& removal : removals) {
        const FoundEpoch& epoch = removal.epoch->found;
        TAILRACE_TRY(remove_shared_epoch(storage, directory, epoch.job, epoch.key)
                         .with_context(fmt::format(
                             "{} could not be removed; older epochs are gone, newer ones untouched",
                             to_string(epoch.key))));
    }
    return Status();
}

Exit run(const Options& options, Storage& storage) {
    RetentionRule rule;
    rule.keep_newest = options.keep;
    if (!options.older_than.empty()) {
        auto age = parse_age(options.older_than);
        if (!age.ok()) return report(age.status().with_context("--older-than"));
        rule.older_than_seconds = *age;
    }
    const bool by_rule = rule.keep_newest || rule.older_than_seconds;
    if (!by_rule && !options.leftovers)
        return report(Status(Code::invalid_argument,
                             "no rule says what to remove: give --keep, --older-than or --leftovers"));
    if (options.keep && *options.keep == 0)
        return report(
            Status(Code::invalid_argument, "--keep 0 would leave nothing: at least 1 epoch is kept"));

    const std::string& directory = options.choice.directory;
    auto lock = storage.lock_directory(directory);
    const bool no_directory =
        lock.status().code() == Code::not_found || lock.status().code() == Code::invalid_argument;
    if (no_directory) return report(lock.status());
    if (!lock.ok() && options.yes) {
        if (lock.status().code() != Code::unsupported)
            return report(
                lock.status().with_context("nothing was removed, because a session may be writing here"));
        // Complete epochs may be removed beside a session. An incomplete one may be the session's
        // flush.
        if (options.leftovers)
            return report(lock.status().with_context(
                "nothing was removed: this file system cannot tell whether a session is writing, and an "
                "incomplete epoch may still be on its way"));
    }
    auto found = find_job(storage, options.choice);
    if (!found.ok()) return report(found.status());
    const auto epochs = judge_listed(storage, std::move(*found));
    const auto removals = choose(storage, epochs, rule, by_rule, options.leftovers, lock.ok());

    if (!options.json) print_plan(removals);
    if (options.yes && !removals.empty())
        if (const Status status = remove(storage, directory, removals); !status.ok()) return report(status);
    if (options.json) {
        print_json_plan(options, epochs, removals, options.yes);
        return exit_ok;
    }
    const std::string what =
        fmt::format("{} of {}, {}, {}", removals.size(), counted(epochs.size(), "epoch"),
                    counted(files_of(removals), "file"), format_bytes(bytes_of(removals)));
    if (removals.empty())
        print(fmt::format("nothing to remove among {}\n", counted(epochs.size(), "epoch")));
    else if (options.yes)
        print(fmt::format("removed {}\n", what));
    else
        print(fmt::format("would remove {}; nothing was removed: add --yes to remove it\n", what));
    if (!options.yes && !lock.ok() && lock.status().code() == Code::busy)
        std::fputs("tailrace: a session holds this directory: --yes will be refused while it does\n", stderr);
    return exit_ok;
}

}  // namespace

Command add_prune(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("prune", "Remove old epochs (without --yes: only say which)");
    command->add_option("DIR", options->choice.directory, "Directory with the checkpoint's files")
        ->required();
    command->add_option("--job", options->choice.job,
                        "Job name, where the directory holds several jobs' files");
    command->add_option("--keep", options->keep, "Number of complete epochs to keep, the newest ones")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--older-than", options->older_than,
                        "Remove only older epochs: 90s, 15min, 12h, 7d, 2w");
    command->add_flag("--leftovers", options->leftovers, "Also remove epochs that were never completed");
    command->add_flag("--yes", options->yes, "Remove them");
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "The newest epoch that can be restored always stays. It is read as a whole before anything is\n"
        "removed. Damaged and unreadable epochs stay, too. The remains of an epoch that has lost files are\n"
        "removed if a whole epoch of its age would be. With --keep and --older-than, an epoch must match\n"
        "both. prune refuses to remove anything while a session holds the directory.\n\n"
        "  tailrace prune /scratch/run7 --keep 5\n"
        "  tailrace prune /scratch/run7 --keep 2 --older-than 7d --leftovers --yes");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
