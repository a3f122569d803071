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
    std::optional<std::string> before;
    std::optional<std::string> stop_before;
    bool add = false;
    std::vector<std::string> without;  // conditions, by the names of their options
    bool cancel = false;

    bool asks() const { return now || after || at || before || stop_before; }
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
               : fmt::format("there is no order to halt in {}; give one with --now, --after N, --at TIME or "
                             "--before TIME\n",
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

Result<std::optional<int64_t>> moment_of(const char* option, const std::optional<std::string>& text) {
    if (!text) return std::optional<int64_t>();
    const auto moment = parse_moment(*text, static_cast<int64_t>(std::time(nullptr)));
    if (!moment.ok()) return moment.status().with_context(option);
    return std::optional<int64_t>(*moment);
}

// `halt` with what the options ask for. Its id changes if saves are to be counted from now on.
Status change(Halt& halt, const Options& options) {
    for (const auto& condition : options.without) {
        if (condition == "now") halt.now = false;
        if (condition == "after") halt.after_saves.reset();
        if (condition == "at") halt.at_unix.reset();
        if (condition == "before") halt.before_unix.reset();
        if (condition == "stop-before") halt.stop_before_seconds.reset();
    }
    TAILRACE_ASSIGN(const auto at, moment_of("--at", options.at));
    TAILRACE_ASSIGN(const auto before, moment_of("--before", options.before));
    if (at) halt.at_unix = at;
    if (before) halt.before_unix = before;
    if (options.now) halt.now = true;
    if (options.stop_before) {
        const auto time = parse_duration_ms(*options.stop_before);
        if (!time.ok()) return time.status().with_context("--stop-before");
        halt.stop_before_seconds = (*time + 999) / 1000;
    }
    if (options.after) halt.after_saves = options.after;
    if (options.after || halt.id == 0) halt.id = random_number();
    halt.by = own_name();
    return {};
}

// What the order becomes; nothing if no condition is left.
Result<std::optional<Halt>> order_of(const Options& options, Storage& storage) {
    std::optional<Halt> halt;
    if (options.add || !options.without.empty()) {
        TAILRACE_ASSIGN(halt, read_halt(storage, options.directory));
    }
    if (!halt) halt.emplace();
    TAILRACE_TRY(change(*halt, options));
    if (!has_condition(*halt)) halt.reset();
    return halt;
}

Exit run(const Options& options, Storage& storage) {
    // Also says so where it is no directory.
    if (const auto listed = storage.list(options.directory); !listed.ok()) return report(listed.status());
    if (options.cancel) return cancel(options, storage);
    if (!options.asks() && options.without.empty()) return show(options, storage);
    const auto order = order_of(options, storage);
    if (!order.ok()) return report(order.status());
    if (!*order) return cancel(options, storage);
    const auto& halt = *order;
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

void add_conditions(CLI::App& command, Options& options) {
    auto* now = command.add_flag("--now", options.now, "Stop at one of the next steps");
    auto* after = command.add_option("--after", options.after, "Stop after this many saves from now on")
                      ->transform(whole_number(0, most_saves));
    auto* at = command.add_option(
        "--at", options.at,
        "Stop at this time: 18:00, 2026-11-24T18:00 (local time, or UTC with a Z), or seconds since 1970");
    auto* before = command.add_option("--before", options.before,
                                      "Stop early enough that a last save ends by this time");
    auto* stop_before = command.add_option(
        "--stop-before", options.stop_before,
        "The time of the last save, such as 10min: for --before and for the end of the job, in place of the "
        "setting stop_before");
    auto* add =
        command.add_flag("--add", options.add, "Keep the other conditions of the order that is there");
    auto* without =
        command
            .add_option("--without", options.without, "Take this condition out of the order that is there")
            ->delimiter(',')
            ->allow_extra_args(false)
            ->check(CLI::IsMember({"now", "after", "at", "before", "stop-before"}));
    auto* cancel = command.add_flag("--cancel", options.cancel, "Cancel the order");
    now->excludes(after)->excludes(at)->excludes(before);
    for (auto* other : {now, after, at, before, stop_before, add, without}) cancel->excludes(other);
}

}  // namespace

Command add_halt(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("halt", "Ask a running job to save once more and stop");
    command->add_option("DIR", options->directory, "The job's shared directory")->required();
    add_conditions(*command, *options);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(
        "The order is the file tailrace.halt in DIR. A session on DIR finds it if its program calls\n"
        "tailrace_should_stop (in Python session.should_stop()). All ranks learn of it at the same step,\n"
        "and the program saves and ends. The session then removes the file, so the next run goes on. If\n"
        "the order is not due before a job ends, it holds for the next job, and --after counts anew.\n\n"
        "Run the command as the user of the job, because a session does not obey files of other users.\n"
        "Several conditions may be given: the program stops when one of them holds. A new order replaces\n"
        "the one that is there, unless you give --add. Without options the command shows the order.\n\n"
        "  tailrace halt /scratch/run7 --now            before maintenance\n"
        "  tailrace halt /scratch/run7 --at 18:00       before the batch queue closes\n"
        "  tailrace halt /scratch/run7 --before 18:00   the last save has to be done by then\n"
        "  tailrace halt /scratch/run7 --after 1        right after the program's next save\n"
        "  tailrace halt /scratch/run7 --cancel");
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
