#include "forget.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/units.h"
#include "drain/forgetting.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

// An agent that looks for work has a directory's lock for a moment.
constexpr std::chrono::seconds patience(3);

using Locks = std::vector<std::unique_ptr<DirectoryLock>>;

Result<Locks> lock_patiently(Storage& local, const HeldForDirectory& held) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
        auto locks = lock_held(local, held);
        if (locks.status().code() != Code::busy || std::chrono::steady_clock::now() >= deadline) return locks;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

uint64_t bytes_of(const HeldForDirectory& held) {
    uint64_t bytes = 0;
    for (const auto& epoch : held.epochs) bytes += epoch.bytes();
    return bytes;
}

size_t files_of(const HeldForDirectory& held) {
    size_t files = 0;
    for (const auto& epoch : held.epochs) files += epoch.files.size();
    return files;
}

void print_table(const HeldForDirectory& held) {
    for (const auto& path : held.file_sets)
        print(fmt::format("files that the program wrote or restored by itself: {}\n", printable(path)));
    if (held.epochs.empty()) return;
    Table table({"JOB", "EPOCH", "RUN", "RANKS HERE", "FILES", "BYTES"}, {1, 2, 3, 4, 5});
    for (const auto& epoch : held.epochs)
        table.add({printable(epoch.job), std::to_string(epoch.key.epoch), std::to_string(epoch.key.run),
                   epoch.rank_count == 0 ? "0" : fmt::format("{} of {}", epoch.ranks_here, epoch.rank_count),
                   std::to_string(epoch.files.size()), format_bytes(epoch.bytes())});
    for (const auto& directory : held.directories) table.note("in " + printable(directory));
    print(table.text());
}

void print_document(const ForgetOptions& options, const HeldForDirectory& held) {
    auto epochs = nlohmann::ordered_json::array();
    for (const auto& epoch : held.epochs) {
        nlohmann::ordered_json json{{"job", epoch.job},          {"epoch", epoch.key.epoch},
                                    {"run", epoch.key.run},      {"ranks_here", epoch.ranks_here},
                                    {"ranks", epoch.rank_count}, {"bytes", epoch.bytes()}};
        json["files"] = nlohmann::ordered_json::array();
        for (const auto& file : epoch.files) json["files"].push_back(file.path);
        epochs.push_back(std::move(json));
    }
    nlohmann::ordered_json document{{"shared_dir", options.shared_dir}, {"removed", options.yes}};
    document["epochs"] = std::move(epochs);
    document["directories_of_files"] = held.file_sets;
    document["bytes"] = bytes_of(held);
    if (!held.skipped.empty()) document["skipped"] = held.skipped;
    print_json(document);
}

// Why nothing is to be removed. ok: nothing speaks against it.
Status refusal(const ForgetOptions& options, const Status& found_there, const Status& locked) {
    if (found_there.ok() && !options.force)
        return Status(
            Code::already_exists,
            fmt::format(
                "{} exists: the next session, or `tailrace drain`, brings the captured epochs there. To lose "
                "them anyway, add --force",
                options.shared_dir));
    return locked.with_context("a session, an agent or another drain may need it");
}

}  // namespace

Exit forget(const ForgetOptions& options, const std::string& local_dir, Storage& local, Storage& shared) {
    auto held = find_held(local, local_dir, options.shared_dir, options.job);
    if (!held.ok()) return report(held.status());
    const auto locks = lock_patiently(local, *held);
    if (locks.ok()) {
        auto again = find_held(local, local_dir, options.shared_dir, options.job);
        if (!again.ok()) return report(again.status());
        if (again->directories != held->directories)
            return report(Status(Code::busy, "nothing was removed: the data here has just changed"));
        held = std::move(again);
    }
    for (const auto& sentence : held->skipped)
        std::fprintf(stderr, "tailrace: drain: %s\n", printable(sentence).c_str());
    const Status there = shared.list(options.shared_dir).status();
    const Status refused = refusal(options, there, locks.status());
    if (options.yes) {
        if (!refused.ok()) return report(refused.with_context("nothing was removed"));
        if (const Status removed = remove_held(local, *held); !removed.ok()) return report(removed);
        // Nobody uses them, since they are locked. One that holds something else stays.
        for (const auto& directory : held->directories) (void)::rmdir(directory.c_str());
    }
    if (options.json) {
        print_document(options, *held);
        return exit_ok;
    }
    print_table(*held);
    auto what = fmt::format("{}, {}, {}", counted(held->epochs.size(), "epoch"),
                            counted(files_of(*held), "file"), format_bytes(bytes_of(*held)));
    if (const size_t sets = held->file_sets.size(); sets == 1)
        what += ", 1 directory of the program's files";
    else if (sets > 1)
        what += fmt::format(", {} directories of the program's files", sets);
    const auto shared_dir = printable(options.shared_dir);
    if (held->directories.empty())
        print(fmt::format("nothing in {} was captured for {}\n", printable(local_dir), shared_dir));
    else if (options.yes)
        print(fmt::format("removed the data captured for {}: {}\n", shared_dir, what));
    else
        print(fmt::format("would remove the data captured for {}: {}; nothing was removed{}\n", shared_dir,
                          what, refused.ok() ? ": add --yes to remove it" : ""));
    if (!there.ok() && there.code() != Code::not_found)
        std::fprintf(stderr, "tailrace: it is unknown whether %s is gone: %s\n", shared_dir.c_str(),
                     printable(there.message()).c_str());
    if (!refused.ok())
        std::fprintf(stderr, "tailrace: --yes will be refused: %s\n", printable(refused.message()).c_str());
    return exit_ok;
}

}  // namespace tailrace::internal::tool
