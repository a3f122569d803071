// tailrace bench: measures how fast one leader writes to a file system, and which settings are
// best.
//
//   1  make the grid of cases; with --resume, read the results of an interrupted benchmark
//   2  for each repetition, for each case (A B C, A B C): run it, note the result, rewrite JSON and CSV
//   3  print a table of medians
//
// After an interrupt it removes its files and says how to go on.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "bench/bench_options.h"
#include "bench/bench_results.h"
#include "bench/interrupt.h"
#include "command.h"
#include "progress.h"
#include "text.h"
#include "whole_number.h"

namespace tailrace::internal::tool {

namespace {

struct Options {
    BenchOptions load;
    BenchGrid grid;
    std::vector<std::string> buffer_bytes{"64MiB"}, block_bytes{"0"};
    std::vector<std::string> placements{"append"}, engines{"auto"}, directs{"auto"};
    uint32_t repetitions = 3;
    std::string output = "tailrace-bench";
    bool resume = false, force = false, json = false;
};

template <class Value>
Result<std::vector<Value>> parse_all(std::string_view option, const std::vector<std::string>& texts,
                                     Result<Value> (*parse)(const std::string&)) {
    std::vector<Value> values;
    for (const std::string& text : texts) {
        const auto value = parse(text);
        if (!value.ok()) return value.status().with_context(option);
        values.push_back(*value);
    }
    return values;
}

Result<std::vector<BenchCase>> cases_of(Options& options) {
    BenchGrid& grid = options.grid;
    TAILRACE_TRY(check_file_name("--output", options.output));
    TAILRACE_TRY(options.load.complete());
    TAILRACE_ASSIGN(grid.buffer_bytes, parse_sizes("--buffer", options.buffer_bytes));
    TAILRACE_ASSIGN(grid.block_bytes, parse_sizes("--block", options.block_bytes));
    TAILRACE_ASSIGN(grid.placements, parse_all("--placement", options.placements, parse_placement));
    TAILRACE_ASSIGN(grid.engines, parse_all("--engine", options.engines, parse_engine));
    TAILRACE_ASSIGN(grid.directs, parse_all("--direct", options.directs, parse_direct));
    grid.common = options.load.common;
    auto cases = make_grid(grid);
    for (const BenchCase& bench : cases) TAILRACE_TRY(check_case(bench));
    return cases;
}

// Starts a new suite, or continues an interrupted one.
Result<BenchSuite> begin_suite(Options& options, Storage& storage) {
    BenchSuite suite;
    TAILRACE_ASSIGN(suite.cases, cases_of(options));
    suite.refused.resize(suite.cases.size());
    suite.repetitions = options.repetitions;
    const std::string path = options.output + ".json";
    auto text = read_text_file(storage, path);
    if (!text.ok() && text.status().code() != Code::not_found) return text.status();
    if (text.ok() && options.resume) {
        auto earlier = suite_from_json(*text);
        if (!earlier.ok()) return earlier.status().with_context(path);
        if (earlier->cases != suite.cases || earlier->repetitions != suite.repetitions)
            return Status(Code::invalid_argument,
                          fmt::format("{} holds a benchmark of other settings: repeat its options, or "
                                      "choose another --output",
                                      path));
        return earlier;
    }
    if (text.ok() && !options.force)
        return Status(Code::already_exists,
                      fmt::format("{} exists: continue it with --resume, replace it with --force, or name "
                                  "another with --output",
                                  path));
    return suite;
}

// The settings in which the cases differ.
std::string label_of(const BenchCase& bench, const std::vector<BenchCase>& cases) {
    std::string label;
    auto add = [&](auto field, std::string_view name, const std::string& value) {
        const bool differs = std::any_of(
            cases.begin(), cases.end(), [&](const BenchCase& other) { return other.*field != bench.*field; });
        if (differs) label += fmt::format("{}{}={}", label.empty() ? "" : " ", name, value);
    };
    add(&BenchCase::followers, "followers", std::to_string(bench.followers));
    add(&BenchCase::placement, "placement", std::string(name_of(bench.placement)));
    add(&BenchCase::files, "files", std::to_string(bench.files));
    add(&BenchCase::writers, "writers", std::to_string(bench.writers));
    add(&BenchCase::buffer_bytes, "buffer", format_bytes(bench.buffer_bytes));
    add(&BenchCase::buffers, "buffers", std::to_string(bench.buffers));
    add(&BenchCase::block_bytes, "block", format_bytes(bench.block_bytes));
    add(&BenchCase::direct, "direct", std::string(name_of(bench.direct)));
    add(&BenchCase::engine, "engine", std::string(name_of(bench.engine)));
    add(&BenchCase::queue_depth, "depth", std::to_string(bench.queue_depth));
    return label.empty() ? "all settings as given" : label;
}

Status write_results(Storage& storage, const Options& options, const BenchSuite& suite) {
    TAILRACE_TRY(write_text_file(storage, options.output + ".json", to_json(suite)));
    return write_text_file(storage, options.output + ".csv", to_csv(suite));
}

void announce(const BenchSuite& suite, const Options& options) {
    uint64_t most = 0;
    for (const BenchCase& bench : suite.cases) most = std::max(most, bytes_of(bench));
    std::fprintf(stderr, "%s in %s (%s): %s x %u repetitions, at most %s per run\n",
                 counted(suite.cases.size(), "configuration").c_str(),
                 printable(suite.machine.directory).c_str(), suite.machine.file_system.c_str(),
                 counted(suite.cases.size(), "run").c_str(), suite.repetitions, format_bytes(most).c_str());
    announce_end(options.load.common);
}

void print_table(const BenchSuite& suite) {
    Table table({"CONFIGURATION", "RUNS", "MiB/s", "LEAST", "MOST", "RECEIVED MiB/s", "DIRTY MiB"},
                {1, 2, 3, 4, 5, 6});
    auto text = [](double bytes) { return fmt::format("{:.0f}", bytes / static_cast<double>(MiB)); };
    for (size_t i = 0; i < suite.cases.size(); ++i) {
        const Spread rate = rate_of(suite, i);
        const std::string label = label_of(suite.cases[i], suite.cases);
        if (!suite.refused[i].empty()) {
            table.add({label, "0", "-", "-", "-", "-", "-"});
            table.note("  " + printable(suite.refused[i]));
        } else {
            table.add({label, std::to_string(rate.count), text(rate.median), text(rate.least),
                       text(rate.most), text(received_rate_of(suite, i).median),
                       text(dirty_of(suite, i).median)});
        }
    }
    print(table.text());
    print(fmt::format(
        "MiB/s: all bytes / time from making the files {}. RECEIVED: received bytes / time of the writers "
        "alone. DIRTY: data that the whole system had not written yet at the end. All are medians.\n",
        end_text(suite.cases.front())));
}

Status run_all(BenchSuite& suite, const Options& options, Storage& storage, BenchSpace& space,
               const std::atomic<bool>& stop, size_t& kept) {
    for (const BenchCase& bench : suite.cases) TAILRACE_TRY(space.check_room(bench));

    BenchEngines engines;
    Progress progress("bench", suite.bytes_left());
    for (uint32_t repetition = 0; repetition < suite.repetitions; ++repetition) {
        for (size_t i = 0; i < suite.cases.size(); ++i) {
            if (suite.has(i, repetition) || !suite.refused[i].empty()) continue;
            const BenchCase& bench = suite.cases[i];
            auto engine = engines.of(bench);
            Status failure = engine.status();
            if (engine.ok()) {
                auto result =
                    run_case(bench, space, **engine, stop, [&](uint64_t bytes) { progress.add(bytes); });
                failure = result.status();
                if (result.ok()) suite.runs.push_back({i, repetition, std::move(*result)});
            }
            // A system may lack an engine or direct I/O. The other cases are still worth measuring.
            if (failure.code() == Code::unsupported)
                suite.refused[i] = failure.message();
            else if (!failure.ok())
                return failure;
            progress.expect(suite.bytes_left());
            progress.finished(fmt::format("repetition {} of {}, {}", repetition + 1, suite.repetitions,
                                          label_of(bench, suite.cases)));
            TAILRACE_TRY(write_results(storage, options, suite));
            kept = suite.runs.size();
        }
    }
    return Status();
}

std::string kept_text(size_t kept) {
    return counted(kept, "result") + (kept == 1 ? " is kept" : " are kept");
}

Exit run(Options& options, Storage& storage) {
    auto suite = begin_suite(options, storage);
    if (!suite.ok()) return report(suite.status());
    for (const char* kind : {".json", ".csv"})
        if (const Status status = check_text_file(storage, options.output + kind); !status.ok())
            return report(status);
    Interrupt interrupt;
    auto space = BenchSpace::create(storage, options.load.directory, options.load.local_dir);
    if (!space.ok()) return report(space.status());
    auto machine = this_machine(storage, options.load.directory, options.load.local_dir);
    if (!machine.ok()) return report(machine.status());
    if (suite->machine.host.empty())
        suite->machine = std::move(*machine);
    else if (const std::string why = difference(suite->machine, *machine); !why.empty())
        return report(Status(Code::invalid_argument,
                             fmt::format("{}.json holds runs that must not be mixed with these: {}; choose "
                                         "another --output, or --force to begin anew",
                                         options.output, why)));
    announce(*suite, options);
    size_t kept = suite->runs.size();
    const Status status = run_all(*suite, options, storage, **space, interrupt.flag(), kept);
    if (status.code() == Code::aborted && interrupt.flag()) {
        if (kept == 0) {
            std::fputs("tailrace: interrupted before the first result; its files were removed\n", stderr);
            return exit_interrupted;
        }
        std::fprintf(
            stderr,
            "tailrace: interrupted; its files were removed, and %s in %s.json: repeat the command with "
            "--resume to continue\n",
            kept_text(kept).c_str(), printable(options.output).c_str());
        return exit_interrupted;
    }
    if (!status.ok())
        return report(
            kept == 0 ? status
                      : status.with_context(fmt::format("{} in {}.json", kept_text(kept), options.output)));
    if (options.json)
        print_json(nlohmann::ordered_json::parse(to_json(*suite)));
    else
        print_table(*suite);
    return exit_ok;
}

constexpr const char* footer =
    R"(Commas separate the values of an option that takes several. bench runs every combination.

  tailrace bench /scratch/me --writers 1,2,4,8,16 --files 1,4,8 --followers 1,4,16 \
      --placement contiguous,interleaved --size 1GiB          the figures of the ISPDC paper
  tailrace bench /scratch/me --engine posix,io_uring --direct off,on --queue-depth 8,32

bench writes the results to PREFIX.json and PREFIX.csv after every run.)";

}  // namespace

Command add_bench(CLI::App& program) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "bench", "Measure how fast one leader writes to a file system, with each combination of settings");
    options->load.add_to(*command);
    auto list = [command](const std::string& name, auto& values, const std::string& help) {
        return command->add_option(name, values, help)->delimiter(',')->capture_default_str();
    };
    auto numbers = [list](const std::string& name, auto& values, CountRange range, const std::string& help) {
        list(name, values, help)->transform(whole_number(range.least, range.most));
    };
    numbers("--followers", options->grid.followers, follower_range,
            "Number of nodes whose data the leader has received");
    numbers("--writers", options->grid.writers, writer_range, "Number of writer threads");
    numbers("--files", options->grid.files, file_range, "Number of files that the leader writes");
    list("--placement", options->placements,
         "append (as the library does), contiguous (eq. 1), interleaved (eq. 2)");
    list("--buffer", options->buffer_bytes, "Size of a buffer; a chunk has the same size");
    numbers("--buffers", options->grid.buffers, buffer_range, "Number of buffers");
    list("--block", options->block_bytes, "Alignment of extents (0: as the file system prefers)");
    list("--engine", options->engines, "auto, posix or io_uring");
    numbers("--queue-depth", options->grid.queue_depths, queue_depth_range,
            "Requests in flight per writer (io_uring)");
    list("--direct", options->directs,
         "Direct I/O: off, auto or on; uncached: through the page cache, but not kept there");
    command
        ->add_option("--repeat", options->repetitions,
                     "Number of runs of each configuration (the configurations take turns)")
        ->transform(whole_number(1, 1000))
        ->capture_default_str();
    command->add_option("-o,--output", options->output, "Write the results to PREFIX.json and PREFIX.csv")
        ->capture_default_str()
        ->type_name("PREFIX");
    CLI::Option* resume = command->add_flag("--resume", options->resume,
                                            "Continue an interrupted benchmark with the same options");
    command->add_flag("--force", options->force, "Replace earlier results")->excludes(resume);
    command->add_flag("--json", options->json, "Print one JSON document");
    command->footer(footer);
    return [options](Storage& storage) { return run(*options, storage); };
}

}  // namespace tailrace::internal::tool
