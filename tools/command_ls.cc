// tailrace ls: lists the epochs in a directory, and says which are complete and why the others are
// not.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "beside_notes.h"
#include "command.h"
#include "epoch_directory.h"
#include "halt_note.h"
#include "kept_sets.h"
#include "node_local.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    std::string directory;
    std::string job;
    std::vector<std::string> local_dirs;
    bool json = false;
};

// "2/2": the number of files (or captured parts) that exist, and the number that belong to the
// epoch.
std::string files_text(const ListedEpoch& epoch) {
    if (!epoch.found.files) return fmt::format("{}/{}", epoch.found.parts.size(), epoch.rank_count());
    const auto& files = epoch.found.files->files;
    return fmt::format("{}/{}", files.size(), files.front().name.count);
}

// What other nodes keep of captured epochs, or null.
const std::vector<KeptSet>* kept_of(const ListedEpoch& epoch, const KeptSets& kept) {
    if (epoch.found.parts.empty()) return nullptr;
    const auto sets =
        kept.find({{epoch.found.job, epoch.found.key}, epoch.found.parts.front().header.run_uid});
    return sets == kept.end() ? nullptr : &sets->second;
}

nlohmann::ordered_json to_json(const ListedEpoch& epoch, const KeptSets& kept) {
    nlohmann::ordered_json json{
        {"job", epoch.found.job},     {"epoch", epoch.found.key.epoch},
        {"run", epoch.found.key.run}, {"state", completeness_name(epoch.completeness)},
        {"replaced", epoch.replaced}, {"left_behind", epoch.left_behind}};
    if (!epoch.why.ok()) json["why"] = epoch.why.message();
    nlohmann::ordered_json paths = nlohmann::ordered_json::array();
    if (epoch.found.files) {
        json["files_expected"] = epoch.found.files->files.front().name.count;
        for (const SharedFileEntry& file : epoch.found.files->files) paths.push_back(file.path);
    } else {
        json["files_expected"] = epoch.rank_count();
        for (const CapturedPart& part : epoch.found.parts) paths.push_back(part.path);
        const auto* sets = kept_of(epoch, kept);
        json["protection"] = kept_json(sets ? *sets : std::vector<KeptSet>());
    }
    json["files"] = std::move(paths);
    if (epoch.rank_count() > 0) {
        json["ranks"] = epoch.rank_count();
        json["data_bytes"] = epoch.data_bytes();
    }
    json["file_bytes"] = epoch.file_bytes();
    json["disk_bytes"] = epoch.disk_bytes;
    if (epoch.saved_unix_ms() > 0) {
        json["saved"] = time_text(epoch.saved_unix_ms());
        json["age_seconds"] = epoch.age_seconds();
    }
    return json;
}

nlohmann::ordered_json to_json(const NodeLocalEpoch& epoch) {
    nlohmann::ordered_json json{{"job", epoch.job},
                                {"epoch", epoch.key.epoch},
                                {"run", epoch.key.run},
                                {"ranks_here", epoch.ranks_here}};
    if (epoch.ranks_here > 0) {
        json["ranks"] = epoch.rank_count;
        json["for_shared"] = epoch.for_shared;
        json["protection"] = kept_json(epoch.kept);
    }
    if (!epoch.host.empty()) json["host"] = epoch.host;
    json["directories"] = epoch.directories;
    if (!epoch.waiting_for.empty()) json["waiting_for"] = texts_of(epoch.waiting_for);
    json["in_use"] = epoch.in_use;
    if (!epoch.captured_for.empty()) json["captured_for"] = epoch.captured_for;
    return json;
}

// An empty list is not an error. A hint helps users who meant another directory.
void say_that_none_is_there(const Options& options, Storage& storage) {
    std::string sentence = "no epochs ";
    if (!options.job.empty()) sentence += fmt::format("of job {} ", printable(options.job));
    sentence += "in " + printable(options.directory);
    sentence += printable(hint_of_inside(storage, options.directory));
    std::fprintf(stderr, "tailrace: %s\n", sentence.c_str());
}

void print_table(const std::vector<ListedEpoch>& epochs, const std::vector<Leftover>& leftovers,
                 const KeptSets& kept) {
    Table table({"EPOCH", "RUN", "STATE", "FILES", "RANKS", "DATA", "ON DISK", "AGE", "JOB"},
                {0, 1, 3, 4, 5, 6, 7});
    for (const ListedEpoch& epoch : epochs) {
        const bool known = epoch.rank_count() > 0;
        std::string state(completeness_name(epoch.completeness));
        if (epoch.replaced) state += ", replaced";
        if (epoch.left_behind) state += ", left behind";
        const auto* sets = kept_of(epoch, kept);
        if (sets) state += ", protected";
        table.add({std::to_string(epoch.found.key.epoch), std::to_string(epoch.found.key.run), state,
                   files_text(epoch), known ? std::to_string(epoch.rank_count()) : "-",
                   known ? format_bytes(epoch.data_bytes()) : "-", format_bytes(epoch.disk_bytes),
                   epoch.saved_unix_ms() > 0 ? age_text(epoch.age_seconds()) : "-", epoch.found.job});
        if (!epoch.why.ok()) table.note("      " + printable(epoch.why.message()));
        if (sets) table.note("      " + printable(kept_text(*sets)));
    }
    if (!epochs.empty()) print(table.text());
    for (const Leftover& leftover : leftovers)
        print(fmt::format("leftover {}: {}\n", printable(leftover.path), printable(leftover.why.message())));
}

Exit run(const Options& options, Storage& storage) {
    const auto listed = list_epochs(storage, options.directory, options.job);
    if (!listed.ok()) return report(listed.status());
    const auto& epochs = listed->epochs;
    // If the directory is a node-local tier itself, or one file, only what lies there is listed.
    const bool shared =
        storage.list(options.directory).ok() &&
        std::all_of(epochs.begin(), epochs.end(), [](const auto& epoch) { return epoch.found.files; });
    KeptSets kept;
    if (!shared) find_kept_sets(storage, options.directory, options.job, kept);
    std::vector<NodeLocalEpoch> elsewhere;
    if (shared)
        elsewhere = find_node_local(storage, options.directory, options.job, epochs, options.local_dirs);
    BesideNotes beside;
    if (shared) beside = find_beside(storage, options.directory, options.job);
    if (!options.json) {
        if (epochs.empty()) say_that_none_is_there(options, storage);
        print_table(epochs, listed->leftovers, kept);
        for (const NodeLocalEpoch& epoch : elsewhere)
            print(fmt::format("note: {}\n", printable(epoch.text())));
        for (const auto& text : beside.texts()) print(fmt::format("note: {}\n", printable(text)));
        if (const auto halt = halt_note(storage, options.directory); shared && halt)
            print(fmt::format("note: {}\n", printable(*halt)));
        return exit_ok;
    }
    nlohmann::ordered_json json{{"directory", options.directory}};
    json["epochs"] = nlohmann::ordered_json::array();
    for (const ListedEpoch& epoch : epochs) json["epochs"].push_back(to_json(epoch, kept));
    json["leftovers"] = nlohmann::ordered_json::array();
    for (const Leftover& leftover : listed->leftovers)
        json["leftovers"].push_back({{"path", leftover.path}, {"why", leftover.why.message()}});
    json["node_local"] = nlohmann::ordered_json::array();
    for (const NodeLocalEpoch& epoch : elsewhere) json["node_local"].push_back(to_json(epoch));
    add_to(json, beside);
    if (shared) json["halt"] = halt_json(storage, options.directory);
    print_json(json);
    return exit_ok;
}

}  // namespace

Command add_ls(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("ls", "List epochs with their state, size and age");
    command
        ->add_option("DIR|FILE", options->directory,
                     "Directory with the checkpoint's files, or one of an epoch's files")
        ->required();
    command->add_option("--job", options->job, "Only this job's epochs");
    command
        ->add_option("--local-dir", options->local_dirs,
                     "Also look for newer epochs in this node-local tier; may be repeated")
        ->allow_extra_args(false);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "STATE:\n"
        "  complete     the epoch can be restored\n"
        "  captured     the epoch is in a node-local tier\n"
        "  protected    nodes keep copies or parity of it, as far as this node knows (redundancy)\n"
        "  incomplete   a file or slot is missing: the epoch was never committed, or has lost a file since\n"
        "  damaged      something is there, but wrong\n"
        "  replaced     a later run has saved the same epoch again\n"
        "  left behind  a later run has gone back to an older epoch, and on from there: a restore of\n"
        "               the newest epoch takes the later run's\n"
        "FILES: files that exist / files that belong to the epoch.\n"
        "A directory without epochs is not an error: standard error says so, and the exit status is 0.\n\n"
        "A note names each newer epoch that lies only in a node-local tier, as far as this node and the\n"
        "records of sessions know, and says how to bring it here. A copy of the directory does not\n"
        "contain such an epoch. Notes also count the epochs of outputs beside the checkpoints, and those\n"
        "whose files lie there as they were (files_as). Another note says that somebody has asked the job\n"
        "to stop (tailrace halt).\n\n"
        "  tailrace ls /scratch/run7\n"
        "  tailrace ls --json /scratch/run7 | jq '.epochs[] | select(.state == \"complete\") | .epoch'");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
