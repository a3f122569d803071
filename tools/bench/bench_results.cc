#include "bench/bench_results.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/writer_team.h"
#include "tailrace.h"
#include "text.h"
#include "threads/wall_clock.h"

namespace tailrace::internal::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr int version = 1;

// The fields of a machine, a case and a run, in the order of the columns: one list for JSON and CSV.
Json json_of(const BenchMachine& machine) {
    return {{"host", machine.host},
            {"kernel", machine.kernel},
            {"processor", machine.processor},
            {"processors", machine.processors},
            {"memory_bytes", machine.memory_bytes},
            {"directory", machine.directory},
            {"file_system", machine.file_system},
            {"local_directory", machine.local_directory},
            {"local_file_system", machine.local_file_system},
            {"tailrace", machine.tailrace},
            {"threads", machine.threads},
            {"began_unix_ms", machine.began_unix_ms}};
}

Json json_of(const BenchCase& bench) {
    return {{"writers", bench.writers},
            {"files", bench.files},
            {"placement", name_of(bench.placement)},
            {"buffer_bytes", bench.buffer_bytes},
            {"buffers", bench.buffers},
            {"fit_chunks", bench.fit_chunks},
            {"block_bytes", bench.block_bytes},
            {"io_engine", name_of(bench.engine)},
            {"queue_depth", bench.queue_depth},
            {"direct_io", name_of(bench.direct)},
            {"followers", bench.followers},
            {"processes", bench.processes},
            {"process_bytes", bench.process_bytes},
            {"imbalance_percent", bench.imbalance_percent},
            {"seed", bench.seed},
            {"local", bench.local},
            {"durable", bench.durable}};
}

BenchCase case_from(const Json& json) {
    BenchCase bench;
    bench.writers = json.at("writers");
    bench.files = json.at("files");
    bench.buffer_bytes = json.at("buffer_bytes");
    bench.buffers = json.at("buffers");
    bench.fit_chunks = json.value("fit_chunks", false);  // results of older versions do not have it
    bench.block_bytes = json.at("block_bytes");
    bench.queue_depth = json.at("queue_depth");
    bench.followers = json.at("followers");
    bench.processes = json.at("processes");
    bench.process_bytes = json.at("process_bytes");
    bench.imbalance_percent = json.at("imbalance_percent");
    bench.seed = json.at("seed");
    bench.local = json.at("local");
    bench.durable = json.at("durable");
    auto placement = parse_placement(json.at("placement"));
    auto engine = parse_engine(json.at("io_engine"));
    auto direct = parse_direct(json.at("direct_io"));
    if (!placement.ok() || !engine.ok() || !direct.ok()) throw std::invalid_argument("an unknown name");
    bench.placement = *placement;
    bench.engine = *engine;
    bench.direct = *direct;
    return bench;
}

Json json_of(const BenchResult& result) {
    return {{"engine_used", result.engine},
            {"block_bytes_used", result.block_bytes},
            {"received_bytes", result.received_bytes},
            {"local_bytes", result.local_bytes},
            {"prepare_seconds", result.prepare_seconds},
            {"write_seconds", result.write_seconds},
            {"commit_seconds", result.commit_seconds},
            {"seconds", result.seconds()},
            {"bytes_per_second", result.rate()},
            {"received_bytes_per_second", result.received_rate()},
            {"read_seconds", result.read_seconds},
            {"buffer_wait_seconds", result.buffer_wait_seconds},
            {"least_writer_seconds", result.least_writer_seconds},
            {"most_writer_seconds", result.most_writer_seconds},
            {"dirty_bytes", result.dirty_bytes}};
}

BenchResult result_from(const Json& json) {
    BenchResult result;
    result.engine = json.at("engine_used");
    result.block_bytes = json.at("block_bytes_used");
    result.received_bytes = json.at("received_bytes");
    result.local_bytes = json.at("local_bytes");
    result.prepare_seconds = json.at("prepare_seconds");
    result.write_seconds = json.at("write_seconds");
    result.commit_seconds = json.at("commit_seconds");
    result.read_seconds = json.at("read_seconds");
    result.buffer_wait_seconds = json.at("buffer_wait_seconds");
    result.least_writer_seconds = json.at("least_writer_seconds");
    result.most_writer_seconds = json.at("most_writer_seconds");
    result.dirty_bytes = json.at("dirty_bytes");
    return result;
}

// Quoted as RFC 4180 requires: names of directories and processors may hold any characters.
std::string cell(const Json& value) {
    if (!value.is_string()) return value.dump();
    const auto text = value.get<std::string>();
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
    return quoted + '"';
}

Spread spread_over(const BenchSuite& suite, size_t number, double (*value)(const BenchResult&)) {
    std::vector<double> values;
    for (const BenchRun& run : suite.runs)
        if (run.number == number) values.push_back(value(run.result));
    return spread_of(std::move(values));
}

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name"))
            if (const size_t colon = line.find(": "); colon != std::string::npos)
                return line.substr(colon + 2);
    return "unknown";
}

}  // namespace

Result<BenchMachine> this_machine(Storage& storage, const std::string& directory,
                                  const std::string& local_directory) {
    BenchMachine machine;
    utsname system{};
    if (uname(&system) == 0) {
        machine.host = system.nodename;
        machine.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
    }
    machine.processor = processor_name();
    machine.processors = static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    machine.memory_bytes = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
                           static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    TAILRACE_ASSIGN(const auto shared, storage.space(directory));
    TAILRACE_ASSIGN(const auto local, storage.space(local_directory));
    machine.directory = directory;
    machine.file_system = shared.file_system;
    machine.local_directory = local_directory;
    machine.local_file_system = local.file_system;
    machine.tailrace =
        fmt::format("{}.{}.{}", TAILRACE_VERSION_MAJOR, TAILRACE_VERSION_MINOR, TAILRACE_VERSION_PATCH);
    machine.threads = team_name();
    machine.began_unix_ms = unix_ms_now();
    return machine;
}

std::string difference(const BenchMachine& earlier, const BenchMachine& now) {
    std::string text;
    auto compare = [&](std::string_view what, const std::string& before, const std::string& here) {
        if (before != here)
            text += fmt::format("{}{} \"{}\" is now \"{}\"", text.empty() ? "" : ", ", what, before, here);
    };
    compare("host", earlier.host, now.host);
    compare("directory", earlier.directory, now.directory);
    compare("its file system", earlier.file_system, now.file_system);
    compare("--local-dir", earlier.local_directory, now.local_directory);
    compare("its file system", earlier.local_file_system, now.local_file_system);
    compare("version", earlier.tailrace, now.tailrace);
    return text;
}

bool BenchSuite::has(size_t number, uint32_t repetition) const {
    return std::any_of(runs.begin(), runs.end(), [&](const BenchRun& run) {
        return run.number == number && run.repetition == repetition;
    });
}

bool BenchSuite::complete() const {
    size_t wanted = 0;
    for (const std::string& why : refused) wanted += why.empty() ? repetitions : 0;
    return runs.size() >= wanted;
}

uint64_t BenchSuite::bytes_left() const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < cases.size(); ++i)
        for (uint32_t repetition = 0; refused[i].empty() && repetition < repetitions; ++repetition)
            if (!has(i, repetition)) bytes += bytes_of(cases[i]);
    return bytes;
}

std::string to_json(const BenchSuite& suite) {
    Json json{{"tailrace_bench", version},
              {"complete", suite.complete()},
              {"machine", json_of(suite.machine)},
              {"repetitions", suite.repetitions},
              {"cases", Json::array()},
              {"runs", Json::array()}};
    for (size_t i = 0; i < suite.cases.size(); ++i) {
        json["cases"].push_back(json_of(suite.cases[i]));
        if (!suite.refused[i].empty()) json["cases"].back()["refused"] = suite.refused[i];
    }
    for (const BenchRun& run : suite.runs) {
        Json one{{"case", run.number}, {"repetition", run.repetition}};
        one.update(json_of(run.result));
        json["runs"].push_back(std::move(one));
    }
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<BenchSuite> suite_from_json(std::string_view text) {
    try {
        const Json json = Json::parse(text);
        BenchSuite suite;
        if (json.at("tailrace_bench") != version) throw std::invalid_argument("another version");
        const Json& machine = json.at("machine");
        suite.machine = {
            machine.at("host"),        machine.at("kernel"),          machine.at("processor"),
            machine.at("processors"),  machine.at("memory_bytes"),    machine.at("directory"),
            machine.at("file_system"), machine.at("local_directory"), machine.at("local_file_system"),
            machine.at("tailrace"),    machine.at("threads"),         machine.at("began_unix_ms")};
        suite.repetitions = json.at("repetitions");
        for (const Json& one : json.at("cases")) {
            suite.cases.push_back(case_from(one));
            suite.refused.push_back(one.value("refused", ""));
        }
        for (const Json& one : json.at("runs")) {
            suite.runs.push_back({one.at("case"), one.at("repetition"), result_from(one)});
            if (suite.runs.back().number >= suite.cases.size())
                throw std::invalid_argument("a run without a case");
        }
        return suite;
    } catch (const std::exception& error) {
        return Status(Code::corrupt,
                      fmt::format("these are not results of `tailrace bench`: {}", error.what()));
    }
}

std::string to_csv(const BenchSuite& suite) {
    std::string text;
    auto put_row = [&](const Json& row, bool names) {
        bool first = true;
        for (const auto& [name, value] : row.items()) {
            text += (first ? "" : ",") + (names ? name : cell(value));
            first = false;
        }
        text += '\n';
    };
    auto row_of = [&](const BenchRun& run, const BenchCase& bench) {
        Json row = json_of(suite.machine);
        row.update({{"case", run.number}, {"repetition", run.repetition}});
        row.update(json_of(bench));
        row.update(json_of(run.result));
        return row;
    };
    put_row(row_of({}, {}), true);
    for (const BenchRun& run : suite.runs) put_row(row_of(run, suite.cases[run.number]), false);
    return text;
}

Spread spread_of(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
    return {median, values.front(), values.back(), values.size()};
}

Spread rate_of(const BenchSuite& suite, size_t number) {
    return spread_over(suite, number, [](const BenchResult& result) { return result.rate(); });
}
Spread received_rate_of(const BenchSuite& suite, size_t number) {
    return spread_over(suite, number, [](const BenchResult& result) { return result.received_rate(); });
}
Spread dirty_of(const BenchSuite& suite, size_t number) {
    return spread_over(suite, number,
                       [](const BenchResult& result) { return static_cast<double>(result.dirty_bytes); });
}

}  // namespace tailrace::internal::tool
