// tailrace tune: searches for the best settings of a file system within a given time, explains the
// choice, and writes a configuration file.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "bench/bench_options.h"
#include "bench/interrupt.h"
#include "bench/tune_search.h"
#include "command.h"
#include "config/config.h"
#include "text.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    BenchOptions load;
    std::string budget = "2min", output = "tailrace.toml", memory = "512MiB";
    std::optional<std::string> results;
    uint32_t most_writers = 16;
    bool force = false, json = false;
};

// On a terminal's stderr, a line that says what is going on. Elsewhere, a line for each finished
// run.
class StatusLine {
  public:
    ~StatusLine() { clear(); }
    void done(const std::string& text) const {
        if (!on_terminal_) std::fprintf(stderr, "%s\n", text.c_str());
    }
    void show(const std::string& text) {
        if (!on_terminal_) return;
        std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
        shown_ = true;
    }
    void clear() {
        if (shown_) std::fputs("\r\x1b[K", stderr);
        shown_ = false;
    }

  private:
    const bool on_terminal_ = isatty(STDERR_FILENO) == 1;
    bool shown_ = false;
};

// The library's own settings, including its chunks, under the load of the options.
Result<BenchCase> default_case(const BenchOptions& load) {
    Config config;
    config.shared_dir = load.directory;
    TAILRACE_TRY(complete_config(config, 1));
    BenchCase bench = load.common;
    bench.writers = config.writers;
    bench.buffers = config.buffers;
    bench.buffer_bytes = config.buffer_bytes;
    bench.engine = config.io_engine;
    bench.queue_depth = config.queue_depth;
    bench.direct = config.direct_io;
    bench.block_bytes = config.block_bytes;
    bench.fit_chunks = true;
    TAILRACE_TRY(check_case(bench));
    return bench;
}

// Keeps the runs as results of a benchmark, so that they can be examined like any others.
void note_run(BenchSuite& suite, const BenchCase& bench, const BenchResult& result) {
    size_t number = 0;
    while (number < suite.cases.size() && suite.cases[number] != bench) ++number;
    if (number == suite.cases.size()) {
        suite.cases.push_back(bench);
        suite.refused.emplace_back();
    }
    uint32_t repetition = 0;
    while (suite.has(number, repetition)) ++repetition;
    suite.repetitions = std::max(suite.repetitions, repetition + 1);
    suite.runs.push_back({number, repetition, result});
}

Status search_within(TuneSearch& search, BenchSuite& suite, BenchSpace& space, double budget_seconds,
                     const std::atomic<bool>& stop) {
    BenchEngines engines;
    StatusLine line;
    const auto start = Clock::now();
    auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    double longest = 0;
    size_t runs = 0;
    Status no_room;  // of the last case that would not fit on the disk or in memory
    while (true) {
        const auto round = search.next_round();
        if (round.empty()) return runs > 0 ? Status() : no_room;
        for (const BenchCase& bench : round) {
            // At least one case is run, however short the time is.
            if (runs > 0 && elapsed() + longest > budget_seconds) return Status();
            // If a large case does not fit, a smaller one may.
            if (Status status = space.check_room(bench); !status.ok()) {
                search.refuse(bench);
                no_room = std::move(status);
                continue;
            }
            const auto* best = search.choice();
            line.show(fmt::format(
                "tune: {:.0f} of {:.0f} s, {} runs, best {:.0f} MiB/s, now {}", elapsed(), budget_seconds,
                runs, best == nullptr ? 0 : best->median() / static_cast<double>(MiB), settings_text(bench)));
            const double before = elapsed();
            auto engine = engines.of(bench);
            Status failure = engine.status();
            if (engine.ok()) {
                auto result = run_case(bench, space, **engine, stop, nullptr);
                failure = result.status();
                if (result.ok()) {
                    search.take(bench, result->rate());
                    note_run(suite, bench, *result);
                    ++runs;
                    line.done(fmt::format("tune: {:.0f} of {:.0f} s, run {}: {:.0f} MiB/s by {}", elapsed(),
                                          budget_seconds, runs, result->rate() / static_cast<double>(MiB),
                                          settings_text(bench)));
                }
            }
            if (failure.code() == Code::unsupported)
                search.refuse(bench);
            else if (!failure.ok())
                return failure;
            longest = std::max(longest, elapsed() - before);
        }
    }
}

void print_json_choice(const TuneSearch& search, const std::string& output) {
    const auto& chosen = *search.choice();
    nlohmann::ordered_json tried = nlohmann::ordered_json::array();
    for (const auto& one : search.tried())
        tried.push_back(
            {{"settings", text_of(one.bench)}, {"refused", one.refused}, {"bytes_per_second", one.rates}});
    print_json({{"file", output},
                {"writers", chosen.bench.writers},
                {"buffers", chosen.bench.buffers},
                {"buffer_bytes", chosen.bench.buffer_bytes},
                {"io_engine", name_of(chosen.bench.engine)},
                {"queue_depth", chosen.bench.queue_depth},
                {"direct_io", name_of(chosen.bench.direct)},
                {"bytes_per_second", chosen.median()},
                {"noise", search.noise()},
                {"converged", search.converged()},
                {"explanation", search.explanation()},
                {"tried", std::move(tried)}});
}

// All files that will be written.
std::vector<std::string> files_of(const Options& options) {
    std::vector<std::string> files{options.output};
    if (options.results)
        for (const char* kind : {".json", ".csv"}) files.push_back(*options.results + kind);
    return files;
}

Status check_output(Storage& storage, const std::string& path, bool replace) {
    if (auto there = storage.open(path, {Access::read, DirectIo::off}); there.ok() && !replace)
        return Status(Code::already_exists,
                      fmt::format("{} exists: replace it with --force, or give another name", path));
    return check_text_file(storage, path);
}

Exit run(Options& options, Storage& storage) {
    if (const Status status = options.load.complete(); !status.ok()) return report(status);
    const auto budget = parse_age(options.budget);
    if (!budget.ok()) return report(budget.status().with_context("--time"));
    if (*budget == 0)
        return report(
            Status(Code::invalid_argument, fmt::format("--time takes 1s or more, not {}", options.budget)));
    TuneLimits limits;
    limits.most_writers = options.most_writers;
    const auto memory = parse_bytes(options.memory);
    if (!memory.ok()) return report(memory.status().with_context("--memory"));
    limits.most_memory_bytes = *memory;
    if (limits.most_memory_bytes < least_tuned_memory_bytes)
        return report(Status(Code::invalid_argument,
                             fmt::format("--memory takes {} or more, not {}",
                                         format_bytes(least_tuned_memory_bytes), options.memory)));
    const auto defaults = default_case(options.load);
    if (!defaults.ok()) return report(defaults.status());
    Status named = check_file_name("--output", options.output);
    if (named.ok() && options.results) named = check_file_name("--results", *options.results);
    if (!named.ok()) return report(named);
    for (const std::string& path : files_of(options))
        if (const Status status = check_output(storage, path, options.force); !status.ok())
            return report(status);

    Interrupt interrupt;
    auto space = BenchSpace::create(storage, options.load.directory, options.load.local_dir);
    if (!space.ok()) return report(space.status());
    BenchSuite suite;
    auto machine = this_machine(storage, options.load.directory, options.load.local_dir);
    if (!machine.ok()) return report(machine.status());
    suite.machine = std::move(*machine);
    std::fprintf(stderr, "searching for settings for %s (%s), for at most %s; a run writes %s\n",
                 printable(options.load.directory).c_str(), suite.machine.file_system.c_str(),
                 age_text(*budget).c_str(), format_bytes(bytes_of(*defaults)).c_str());
    announce_end(*defaults);

    TuneSearch search(*defaults, limits);
    const Status status =
        search_within(search, suite, **space, static_cast<double>(*budget), interrupt.flag());
    if (status.code() == Code::aborted && interrupt.flag()) {
        std::fputs("tailrace: interrupted; its files were removed, and no configuration was written\n",
                   stderr);
        return exit_interrupted;
    }
    if (!status.ok()) return report(status);
    const auto* chosen = search.choice();
    if (chosen == nullptr)
        return report(Status(Code::unsupported, "none of the settings within the limits could be run here"));
    const auto explanation = search.explanation();
    if (!options.json)
        for (const std::string& sentence : explanation) print(sentence + "\n");
    Status written = write_text_file(storage, options.output, tune_toml(*chosen, explanation, suite.machine));
    if (written.ok() && options.results) {
        written = write_text_file(storage, *options.results + ".json", to_json(suite));
        if (written.ok()) written = write_text_file(storage, *options.results + ".csv", to_csv(suite));
    }
    if (!written.ok()) return report(written);
    if (options.json) {
        print_json_choice(search, options.output);
        return exit_ok;
    }
    print(fmt::format("Written to {0}. To use it, set TAILRACE_CONFIG={0}\n", printable(options.output)));
    return exit_ok;
}

constexpr const char* footer = R"(  tailrace tune /scratch/me --time 5min --size 1GiB
  TAILRACE_CONFIG=tailrace.toml mpiexec ./program

tune measures on the node on which it is started, so start it on a compute node.)";

}  // namespace

Command add_tune(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("tune", "Find settings for a file system and write a configuration file");
    options->load.add_to(*command);
    command
        ->add_option("--followers", options->load.common.followers,
                     "Number of nodes whose data the leader has received")
        ->transform(whole_number(follower_range.least, follower_range.most))
        ->capture_default_str();
    command->add_option("--files", options->load.common.files, "Number of files that the leader writes")
        ->transform(whole_number(file_range.least, file_range.most))
        ->capture_default_str();
    command->add_option("--time", options->budget, "Time for the search, such as 90s or 5min")
        ->capture_default_str();
    command->add_option("--most-writers", options->most_writers, "Largest number of writer threads")
        ->transform(whole_number(writer_range.least, writer_range.most))
        ->capture_default_str();
    command->add_option("--memory", options->memory, "Largest amount of memory for buffers")
        ->capture_default_str()
        ->type_name("SIZE");
    command->add_option("-o,--output", options->output, "The configuration file")
        ->capture_default_str()
        ->type_name("FILE");
    command->add_flag("--force", options->force, "Replace existing files");
    command->add_option("--results", options->results, "Also keep all runs in PREFIX.json and PREFIX.csv")
        ->type_name("PREFIX");
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(footer);
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
