// tailrace halt: asks a job to stop, by a halt file in its shared directory. A session of the job
// finds the file, should_stop says yes on all ranks at the same call, and the program saves and ends.
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/time_text.h"
#include "command.h"
#include "halt_note.h"
#include "storage/own_directories.h"
#include "text.h"
#include "threads/executor.h"
#include "when/halt_file.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

constexpr uint64_t most_saves = 999'999'999'999'999;

struct Options {
    std::string directory;
    bool now = false;
    std::optional<uint64_t> after;
    std::optional<std::string> at;
    bool cancel = false;
    bool json = false;
};

// "anna@login2".
std::string own_name() {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host = {};
    const passwd* user = getpwuid(geteuid());
    return fmt::format("{}@{}", user != nullptr ? user->pw_name : std::to_string(geteuid()), host.data());
}

// Whether a session holds the directory. Nothing if that cannot be known here. Drains share it, and obey
// nobody.
std::optional<bool> in_use(Storage& storage, const std::string& directory) {
    for (const auto kind : {LockKind::exclusive, LockKind::shared}) {
        const auto lock = storage.lock_directory(directory, kind);
        if (lock.ok()) return false;
        if (lock.status().code() != Code::busy) return std::nullopt;
    }
    return true;
}

// A session obeys only its own user's file.
void warn_of_another_owner(const std::string& directory) {
    struct stat info {};
    if (stat(directory.c_str(), &info) != 0 || info.st_uid == geteuid()) return;
    std::fprintf(
        stderr,
        "tailrace: the directory belongs to %s: a session of that user does not obey a file of %s. Run "
        "the command as the user of the job\n",
        printable(user_text(info.st_uid)).c_str(), printable(user_text(geteuid())).c_str());
}

Exit show(const Options& options, Storage& storage) {
    if (options.json) {
        print_json({{"directory", options.directory}, {"halt", halt_json(storage, options.directory)}});
        return exit_ok;
    }
    const auto note = halt_note(storage, options.directory);
    print(note ? printable(*note) + "\n"
               : fmt::format("there is no order to halt in {}; give one with --now, --after N or --at TIME\n",
                             printable(options.directory)));
    return exit_ok;
}

Exit cancel(const Options& options, Storage& storage) {
    const Status removed = remove_halt(storage, options.directory);
    if (!removed.ok() && removed.code() != Code::not_found) return report(removed);
    if (options.json)
        print_json({{"directory", options.directory}, {"cancelled", removed.ok()}});
    else
        print(removed.ok() ? "the order is cancelled, unless a session has found it: a program that has been "
                             "told to stop "
                             "still stops\n"
                           : "there is no order to halt\n");
    return exit_ok;
}

Result<Halt> order_of(const Options& options) {
    Halt halt;
    halt.id = random_number();
    halt.by = own_name();
    if (options.after) {
        halt.kind = HaltKind::after;
        halt.after_saves = *options.after;
    } else if (options.at) {
        halt.kind = HaltKind::at;
        const auto at = parse_moment(*options.at, static_cast<int64_t>(std::time(nullptr)));
        if (!at.ok()) return at.status().with_context("--at");
        halt.at_unix = *at;
    }
    return halt;
}

Exit run(const Options& options, Storage& storage) {
    // Also says so where it is no directory.
    if (const auto listed = storage.list(options.directory); !listed.ok()) return report(listed.status());
    if (options.cancel) return cancel(options, storage);
    if (!options.now && !options.after && !options.at) return show(options, storage);
    const auto halt = order_of(options);
    if (!halt.ok()) return report(halt.status());
    if (const Status written = write_halt(storage, options.directory, *halt); !written.ok())
        return report(written);
    warn_of_another_owner(options.directory);
    const auto used = in_use(storage, options.directory);
    if (options.json) {
        nlohmann::ordered_json json{{"directory", options.directory}, {"halt", to_json(*halt)}};
        if (used) json["in_use"] = *used;
        print_json(json);
        return exit_ok;
    }
    print(fmt::format("{}: to stop {}. {}\n", printable(options.directory), when_text(*halt),
                      !used ? "Whether a session uses the directory cannot be known here"
                      : *used
                          ? "A session uses the directory; it looks for the order about once a second, while "
                            "its program asks should_stop"
                          : "No session uses the directory now; the next one will obey the order"));
    return exit_ok;
}

}  // namespace

Command add_halt(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("halt", "Ask a running job to save once more and stop");
    command->add_option("DIR", options->directory, "The job's shared directory")->required();
    auto* now = command->add_flag("--now", options->now, "Stop at one of the next steps");
    auto* after = command->add_option("--after", options->after, "Stop after this many saves from now on")
                      ->transform(whole_number(0, most_saves));
    auto* at = command->add_option(
        "--at", options->at,
        "Stop at this time: 18:00, 2026-11-24T18:00 (local time, or UTC with a Z), or seconds since 1970");
    auto* cancel = command->add_flag("--cancel", options->cancel, "Cancel the order");
    now->excludes(after)->excludes(at)->excludes(cancel);
    after->excludes(at)->excludes(cancel);
    at->excludes(cancel);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "The order is the file tailrace.halt in DIR. A session on DIR finds it if its program calls\n"
        "tailrace_should_stop (in Python session.should_stop()). All ranks learn of it at the same step,\n"
        "and the program saves and ends. The session then removes the file, so the next run goes on. If\n"
        "the order is not due before a job ends, it holds for the next job, and --after counts anew.\n\n"
        "Run the command as the user of the job, because a session does not obey files of other users.\n"
        "Without --now, --after, --at or --cancel, the command shows the current order.\n\n"
        "  tailrace halt /scratch/run7 --now            before maintenance\n"
        "  tailrace halt /scratch/run7 --at 18:00       before the batch queue closes\n"
        "  tailrace halt /scratch/run7 --after 1        right after the program's next save\n"
        "  tailrace halt /scratch/run7 --cancel");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
