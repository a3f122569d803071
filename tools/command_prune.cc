// tailrace prune: removes old epochs. It says what would be removed, and removes it only with
// --yes.
//
//   1  lock the directory, so that no session writes there (needed only with --yes)
//   2  judge every epoch by its heads, and decide what goes (shared/pruning.h)
//   3  say what would be removed
//   4  remove it, oldest epoch first
//
// If prune is killed in step 4, an epoch has lost some of its files. That epoch is marked as
// unfinished, and the next session removes the rest.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "command.h"
#include "epoch_directory.h"
#include "progress.h"
#include "read/epoch_reader.h"
#include "shared/epoch_files.h"
#include "shared/pruning.h"
#include "text.h"
#include "whole_number.h"

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

Status read_every_byte(Storage& storage, const JudgedEpoch& epoch) {
    TAILRACE_ASSIGN(const auto reader, EpochReader::open(storage, storage, epoch.sources()));
    Progress progress("reading " + to_string(epoch.found.key), epoch.data_bytes());
    for (const StreamMap& stream : epoch.shared->streams)
        TAILRACE_TRY(reader->verify(stream.info.rank, [&](uint64_t bytes) { progress.add(bytes); }));
    return Status();
}

std::vector<Removal> choose(Storage& storage, const std::vector<ListedEpoch>& epochs, const PruneRule& rule) {
    std::vector<const JudgedEpoch*> judged;
    for (const ListedEpoch& epoch : epochs) judged.push_back(&epoch);
    PruneSteps steps;
    steps.read_every_byte = [&](const JudgedEpoch& epoch) { return read_every_byte(storage, epoch); };
    steps.tell = [](const std::string& sentence) {
        std::fprintf(stderr, "tailrace: %s\n", printable(sentence).c_str());
    };
    std::vector<Removal> removals;
    for (const Pruned& pruned : choose_pruned(storage, judged, rule, steps))
        removals.push_back({&epochs[pruned.epoch], std::string(pruned.why)});
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
    PruneRule rule;
    rule.leftovers = options.leftovers;
    rule.retention.keep_newest = options.keep;
    if (!options.older_than.empty()) {
        auto age = parse_age(options.older_than);
        if (!age.ok()) return report(age.status().with_context("--older-than"));
        rule.retention.older_than_seconds = *age;
    }
    if (!options.keep && options.older_than.empty() && !options.leftovers)
        return report(Status(Code::invalid_argument,
                             "no rule says what to remove: give --keep, --older-than or --leftovers"));

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
    const auto listed = list_job(storage, options.choice);
    if (!listed.ok()) return report(listed.status());
    const auto& epochs = *listed;
    rule.nobody_writes = lock.ok();
    const auto removals = choose(storage, epochs, rule);

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
    CLI::App* command = program.add_subcommand("prune", "Remove old epochs (without --yes: only list them)");
    command->add_option("DIR", options->choice.directory, "Directory with the checkpoint's files")
        ->required();
    command->add_option("--job", options->choice.job, "Job name, if the directory holds several jobs' files");
    command->add_option("--keep", options->keep, "Number of complete epochs to keep: the newest ones")
        ->transform(whole_number(1, UINT32_MAX));
    command->add_option("--older-than", options->older_than,
                        "Remove only older epochs: 90s, 15min, 12h, 7d, 2w");
    command->add_flag("--leftovers", options->leftovers, "Also remove incomplete epochs of any age");
    command->add_flag("--yes", options->yes, "Remove them");
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "The newest epoch that can be restored always stays. prune reads all of it before it removes\n"
        "anything. Damaged and unreadable epochs stay, too, unless a later run has saved them again. If\n"
        "an epoch has lost files, prune removes its remains if it would remove a complete epoch of that\n"
        "age. With --keep and --older-than, an epoch must match both. prune refuses to remove anything\n"
        "while a session holds the directory.\n\n"
        "  tailrace prune /scratch/run7 --keep 5\n"
        "  tailrace prune /scratch/run7 --keep 2 --older-than 7d --leftovers --yes");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
