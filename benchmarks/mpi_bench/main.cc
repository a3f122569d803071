// tailrace-mpi-bench: tailrace and its peers write the same memory to the same directory, in one run.
//
//   For each K: repetition by repetition, strategy by strategy (A B C, A B C):
//     0  before the very first: an untimed write of every strategy
//     1  fill the memory anew
//     2  write, timed until durable on all ranks, with the local phase apart. tailrace writes some untimed
//        epochs before, because a program saves many times, and the first saves make buffers
//     3  read what was written, first with the page cache dropped (cold), then again (warm); timed
//     4  compare every byte
//     5  remove the files
// Rates are medians with least and most. Ratios are the other's time / tailrace's.
#include <mpi.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <tailrace_mpi.hpp>
#include <utility>

#include "measure.h"
#include "results.h"
#include "space.h"
#include "strategy.h"

namespace {

using namespace mpi_bench;

struct Options {
    std::string directory, local_dir, output;
    uint64_t bytes = 64 << 20, seed = 1;
    uint32_t imbalance = 20, repetitions = 3, warm_up = 3;
    std::vector<int> files{1};
    std::vector<std::string> only, settings, variants;
};

Settings parse_settings(const std::vector<std::string>& texts) {
    Settings settings;
    for (const std::string& text : texts) {
        const size_t equals = text.find('=');
        if (equals == std::string::npos)
            throw std::invalid_argument("a setting of tailrace has the form KEY=VALUE, not " + text);
        const std::string key = text.substr(0, equals);
        if (key == "files" || key == "local_dir" || key == "shared_dir" || key == "record_dir")
            throw std::invalid_argument("the benchmark itself sets " + key +
                                        ": use --files, --local-dir or DIR");
        settings.emplace_back(key, text.substr(equals + 1));
    }
    try {  // check it now, not when its turn comes
        tailrace::Options options;
        for (const auto& [key, value] : settings) options.set(key, value);
    } catch (const tailrace::Error& error) {
        throw std::invalid_argument(error.what());
    }
    return settings;
}

// tailrace with the settings of --set, once more with each --variant's, and the peers.
std::vector<std::unique_ptr<Strategy>> chosen_strategies(const Options& options, const std::string& tier) {
    std::vector<std::unique_ptr<Strategy>> all;
    all.push_back(make_tailrace("tailrace", tier, parse_settings(options.settings), options.warm_up));
    for (const std::string& variant : options.variants) {
        if (std::count(options.variants.begin(), options.variants.end(), variant) > 1)
            throw std::invalid_argument("the variant " + variant + " is given twice");
        std::vector<std::string> texts = options.settings;
        std::istringstream list(variant);
        for (std::string text; std::getline(list, text, ',');) texts.push_back(text);
        all.push_back(make_tailrace("tailrace," + variant, tier, parse_settings(texts), options.warm_up));
    }
    for (auto& peer : peer_strategies()) all.push_back(std::move(peer));
    if (options.only.empty()) return all;
    const auto is_variant = [](const std::string& name) { return name.starts_with("tailrace,"); };
    for (const std::string& name : options.only)
        if (std::none_of(all.begin(), all.end(), [&](const auto& one) { return one->name() == name; }))
            throw std::invalid_argument("there is no strategy " + name +
                                        "; tailrace-mpi-bench --list names the strategies");
    std::erase_if(all, [&](const auto& one) {
        return !is_variant(one->name()) &&
               std::find(options.only.begin(), options.only.end(), one->name()) == options.only.end();
    });
    return all;
}

void announce(const std::vector<std::unique_ptr<Strategy>>& strategies) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    const std::string library(version, static_cast<size_t>(length));
    std::printf("%s\n", library.substr(0, library.find('\n')).c_str());
    for (const auto& strategy : strategies)
        std::printf("%-20s %s\n", strategy->name().c_str(), strategy->settings().c_str());
    for (const std::string& absent : absent_strategies()) std::printf("absent: %s\n", absent.c_str());
    (void)std::fflush(stdout);  // a reader of a pipe sees that it has begun
}

// A name that no other run has at the same time, equal on all ranks. Many machines may share DIR.
std::string own_name() {
    char host[256] = "";
    (void)::gethostname(host, sizeof host - 1);
    return broadcast("tailrace-mpi-bench-" + std::string(host) + "-" + std::to_string(::getpid()), 0);
}

// As in the library: in memory if possible.
std::string default_local_dir() {
    return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
}

// The reason why the results could not be written, or nothing.
std::string write_results(const std::string& path, const Json& document) {
    if (path.empty()) return "";
    std::ofstream file(path);
    file << document.dump(1) << "\n";
    return file.flush() ? "" : "writing " + path + ": " + std::strerror(errno);
}

void run(const Options& options) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const std::string name = own_name();
    const auto strategies = chosen_strategies(options, Space::tier(options.local_dir, name));
    Json document{{"absent", absent_strategies()},
                  {"repetitions", options.repetitions},
                  {"runs", Json::array()},
                  {"turns", Json::array()}};
    // Now, and after every K, because hours of work must not end with a file that cannot be
    // written.
    refuse_together(rank == 0 ? write_results(options.output, document) : "");
    Space space(options.directory, options.local_dir, name);
    if (rank == 0) announce(strategies);
    const bool has_tier = std::any_of(strategies.begin(), strategies.end(),
                                      [](const auto& one) { return one->name().starts_with("tailrace"); });
    const size_t steps = options.files.size() * options.repetitions * strategies.size();
    size_t done = 0;
    const double start = MPI_Wtime();
    bool first_time = true;
    uint64_t dump = 0;
    for (const int files : options.files) {
        Load load;
        make_load(load, options.bytes, options.imbalance, files, options.seed);
        const uint64_t epochs = options.warm_up + uint64_t{1};
        space.check_room(epochs * load.all_bytes, has_tier ? epochs * load.bytes : 0);
        load.memory = Memory(load.bytes);
        // The first time is untimed, because a library's setup in a process is not compared.
        if (std::exchange(first_time, false))
            for (const auto& strategy : strategies) {
                strategy->write(load, space.new_place(), ++dump);
                space.remove_parts();
            }
        std::map<std::string, Times> results;
        for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
            ++dump;
            Json turn = Json::array();
            // Each is first, second and last in turn.
            for (size_t i = 0; i < strategies.size(); ++i) {
                Strategy& strategy = *strategies[(i + repetition) % strategies.size()];
                run_once(strategy, load, space.new_place(), dump, results[strategy.name()]);
                ++done;
                // Tables are printed when a K is done, perhaps after an hour. So progress is told
                // here.
                if (rank == 0)
                    std::fprintf(
                        stderr, "%zu of %zu done: K = %d, repetition %u of %u, %s; about %.0f s left\n", done,
                        steps, files, repetition + 1, options.repetitions, strategy.name().c_str(),
                        (MPI_Wtime() - start) / static_cast<double>(done) *
                            static_cast<double>(steps - done));
                space.remove_parts();
                turn.push_back(strategy.name());
            }
            document["turns"].push_back(std::move(turn));
        }
        if (rank != 0) continue;
        print_table(load, strategies, results);
        for (const auto& strategy : strategies) {
            Json about{{"strategy", strategy->name()},
                       {"settings", strategy->settings()},
                       {"files", files},
                       {"ranks", load.size},
                       {"bytes", load.all_bytes},
                       {"imbalance_percent", options.imbalance}};
            about.update(json_of(results.at(strategy->name())));
            document["runs"].push_back(std::move(about));
        }
        if (const std::string why = write_results(options.output, document); !why.empty())
            throw std::runtime_error(why);
    }
    space.close();
}

int parse_and_run(int argc, char** argv, int rank) {
    Options options;
    bool list = false;
    CLI::App program("Compares tailrace with other ways to write the memory of all ranks to files.",
                     "tailrace-mpi-bench");
    program.add_option("dir", options.directory, "A directory that all nodes see; created if missing")
        ->type_name("DIR");
    program.add_option("--size", options.bytes, "Bytes per rank")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->check(CLI::Range(uint64_t{8}, uint64_t{1} << 40).description("8 B to 1 TiB"))
        ->type_name("SIZE")
        ->default_str("64MiB");
    program.add_option("--imbalance", options.imbalance, "How much sizes differ, in percent")
        ->check(CLI::Range(0, 90))
        ->capture_default_str();
    program.add_option("--files", options.files, "K, or several values separated by commas")
        ->delimiter(',')
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    program.add_option("--repeat", options.repetitions, "Repetitions of each strategy, in turn")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    program.add_option("--warm-up", options.warm_up, "Epochs that tailrace writes before the timed one")
        ->check(CLI::Range(0, 100))
        ->capture_default_str();
    program.add_option("--seed", options.seed, "Seed of the sizes and the content")->capture_default_str();
    program.add_option("--local-dir", options.local_dir, "tailrace's node-local tier (default: /dev/shm)");
    program.add_option("--only", options.only, "Strategies, separated by commas")->delimiter(',');
    program.add_option("--set", options.settings, "KEY=VALUE: a setting of tailrace; may be repeated")
        ->allow_extra_args(false);
    program
        .add_option("--variant", options.variants,
                    "KEY=VALUE,...: run tailrace once more, with these settings too; may be repeated")
        ->allow_extra_args(false);
    program.add_option("-o,--output", options.output, "Also write the results as JSON")->type_name("FILE");
    program.add_flag("--list", list, "Name the available and the absent strategies");
    program.footer(
        "  mpiexec -n 8 tailrace-mpi-bench /scratch/me --files 1,2,4 --size 256MiB -o peers.json\n"
        "Prints one line of results per strategy. Every byte is read back and compared.");
    try {
        program.parse(argc, argv);
        if (options.directory.empty() && !list) throw CLI::RequiredError("dir");
    } catch (const CLI::ParseError& error) {
        if (rank == 0) return program.exit(error) == 0 ? 0 : 2;
        return error.get_exit_code() == 0 ? 0 : 2;
    }
    if (list) {
        if (rank == 0) announce(chosen_strategies(options, default_local_dir()));
        return 0;
    }
    options.directory = std::filesystem::absolute(options.directory).string();
    if (options.local_dir.empty()) options.local_dir = default_local_dir();
    options.local_dir = std::filesystem::absolute(options.local_dir).string();
    run(options);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    int provided = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int status = 1;
    try {
        status = parse_and_run(argc, argv, rank);
    } catch (const std::invalid_argument& error) {
        // The arguments are wrong, on every rank alike. Ends normally, because otherwise the
        // sentence may be lost.
        if (rank == 0) std::fprintf(stderr, "tailrace-mpi-bench: %s\n", error.what());
        status = 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tailrace-mpi-bench: rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return status;
}
