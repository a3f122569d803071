// particles - a program of the shape of a cosmology run, which saves its state in the background and goes on
// after a kill with any number of ranks.
//
//     mpiexec -n 8 particles --steps 100 --every 10 --set shared_dir=checkpoints --set files=2
//
// particles_simulation.h is the simulation; what a program adds for its checkpoints is here. The grid is
// saved as one global array, decomposed over the ranks; particles are saved as plain regions of their rank,
// whose sizes change from epoch to epoch. The end state does not depend on the number of ranks: that is what
// examples/demo.py compares.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tailrace_mpi.hpp>
#include <vector>

#include "particles_simulation.h"

namespace {

using namespace simulation;

// ---- saving and restoring ---------------------------------------------------------------------------

void register_state(tailrace::Session& session, Simulation& simulation, const Ranks& ranks) {
    Particles::each_field(simulation.particles,
                          [&](const char* name, auto& field) { session.add(name, std::span(field)); });
    session.add_array("density", simulation.own_grid(), {planes, planes, planes}, {ranks.first(), 0, 0},
                      {ranks.owned(), planes, planes});
}

void save(tailrace::Session& session, Simulation& simulation, uint64_t step) {
    // The vectors have moved and changed their sizes since the last save.
    Particles::each_field(simulation.particles,
                          [&](const char* name, auto& field) { session.update(name, std::span(field)); });
    session.save(step);
}

// The newest epoch of which every byte is right, or nothing on a first run. The number of ranks may differ
// from the one that saved it: each rank takes over some of the saved ranks' particles and sends them home; of
// the grid it reads the box that it owns now.
std::optional<uint64_t> restore(tailrace::Session& session, Simulation& simulation, const Ranks& ranks) {
    std::optional<tailrace::Reader> reader;
    try {
        // Particles are read rank by rank: what is damaged is to be noticed before, and an older epoch taken.
        reader.emplace(session.open_epoch(TAILRACE_NEWEST, TAILRACE_NEWEST, true));
    } catch (const tailrace::Error& error) {
        if (error.code() == TAILRACE_NOT_FOUND) return std::nullopt;
        throw;
    }
    Particles& particles = simulation.particles;
    particles.resize(0);
    for (auto saved = static_cast<uint32_t>(ranks.rank); saved < reader->rank_count();
         saved += static_cast<uint32_t>(ranks.count)) {
        const size_t have = particles.size();
        particles.resize(have + reader->region(saved, "id").bytes / sizeof(uint64_t));
        Particles::each_field(particles, [&](const char* name, auto& field) {
            reader->read(saved, name, std::span(field).subspan(have));
        });
    }
    simulation.send_home();
    reader->read_box("density", {ranks.first(), 0, 0}, {ranks.owned(), planes, planes},
                     simulation.own_grid());
    return reader->epoch();
}

// ---- what is reported -------------------------------------------------------------------------------

// Particles by id and the grid, gathered in rank 0 and written to a file: equal for every number of ranks.
void dump(const std::string& path, Simulation& simulation, const Ranks& ranks, uint64_t total) {
    const Particles& particles = simulation.particles;
    std::vector<std::byte> mine(particles.size() * record_bytes);
    for (size_t i = 0; i < particles.size(); ++i) particles.pack(i, mine.data() + i * record_bytes);
    const auto gather = [&](const void* data, size_t bytes) {
        std::vector<int> counts(static_cast<size_t>(ranks.count)), offsets(counts.size());
        const int count = static_cast<int>(bytes);
        MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
        std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
        std::vector<std::byte> all(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), 0)));
        MPI_Gatherv(data, count, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE, 0,
                    MPI_COMM_WORLD);
        return all;
    };
    const std::vector<std::byte> records = gather(mine.data(), mine.size());
    const std::vector<std::byte> grid =
        gather(simulation.own_grid().data(), simulation.own_grid().size_bytes());
    if (ranks.rank != 0) return;
    if (records.size() != total * record_bytes)
        throw std::runtime_error("particles were lost: " + std::to_string(records.size() / record_bytes) +
                                 " of " + std::to_string(total) + " are left");
    std::vector<std::byte> sorted(records.size());
    Particles one;
    one.resize(1);
    for (size_t at = 0; at < records.size(); at += record_bytes) {
        one.unpack(0, records.data() + at);
        std::memcpy(sorted.data() + one.id[0] * record_bytes, records.data() + at, record_bytes);
    }
    std::FILE* file = std::fopen(path.c_str(), "wb");
    const bool written = file != nullptr &&
                         std::fwrite(sorted.data(), 1, sorted.size(), file) == sorted.size() &&
                         std::fwrite(grid.data(), 1, grid.size(), file) == grid.size();
    if (file == nullptr || std::fclose(file) != 0 || !written)
        throw std::runtime_error("the end state could not be written to " + path);
}

// One line of JSON per event, from rank 0.
struct Report {
    bool on = false;
    int rank = 0;

    template <class... Values>
    void line(const char* format, Values... values) const {
        if (!on || rank != 0) return;
        std::printf(format, values...);
        std::putchar('\n');
        std::fflush(stdout);
    }

    // The processes of all ranks, for who wants to kill them.
    void processes(int rank_count) const {
        const int mine = static_cast<int>(getpid());
        std::vector<int> all(static_cast<size_t>(rank_count));
        MPI_Gather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
        std::string list;
        for (int process : all) list += (list.empty() ? "" : ", ") + std::to_string(process);
        line("{\"processes\": [%s]}", list.c_str());
    }

    // Bytes of all ranks; the slowest rank's seconds.
    void epoch(const tailrace::Epoch& info) const {
        std::array<double, 2> seconds = {info.blocked_seconds, info.flush_seconds}, slowest{};
        uint64_t bytes = 0;
        MPI_Reduce(seconds.data(), slowest.data(), 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&info.captured_bytes, &bytes, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
        line(
            "{\"epoch\": %llu, \"state\": %d, \"bytes\": %llu, \"blocked_seconds\": %.6f, "
            "\"flush_seconds\": %.6f}",
            static_cast<unsigned long long>(info.epoch), static_cast<int>(info.state),
            static_cast<unsigned long long>(bytes), slowest[0], slowest[1]);
    }
};

struct Arguments {
    uint64_t particles = 800000, steps = 100, every = 0;
    std::string dump;
    bool report = false;
    tailrace::Options options;
};

constexpr const char* usage =
    "usage: particles [--particles N] [--steps N] [--every N] [--dump FILE] [--report] [--set KEY=VALUE]...\n"
    "  --every N         save the state every N steps (default: never)\n"
    "  --set KEY=VALUE   a setting of tailrace, such as shared_dir=checkpoints or files=2\n"
    "  --dump FILE       write the end state, which is the same for every number of ranks\n"
    "  --report          print a line of JSON for every step and epoch\n";

bool read_number(const std::string& text, uint64_t& number) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end && number <= 1000000000000;
}

std::optional<Arguments> parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view option = argv[i];
        if (option == "--report") {
            arguments.report = true;
            continue;
        }
        if (i + 1 == argc) return std::nullopt;
        const std::string value = argv[++i];
        if (option == "--particles") {
            if (!read_number(value, arguments.particles)) return std::nullopt;
        } else if (option == "--steps") {
            if (!read_number(value, arguments.steps)) return std::nullopt;
        } else if (option == "--every") {
            if (!read_number(value, arguments.every)) return std::nullopt;
        } else if (option == "--dump") {
            arguments.dump = value;
        } else if (const size_t equals = value.find('='); option == "--set" && equals != std::string::npos) {
            arguments.options.set(value.substr(0, equals), value.substr(equals + 1));
        } else {
            return std::nullopt;
        }
    }
    return arguments;
}

// Without --every there is no session at all: the run to compare with.
void run(const Arguments& arguments) {
    const Ranks ranks = make_ranks(MPI_COMM_WORLD);
    if (static_cast<uint32_t>(ranks.count) > planes / 2)
        throw std::runtime_error("at most " + std::to_string(planes / 2) + " ranks have a slab each");
    const Report report{arguments.report, ranks.rank};
    report.processes(ranks.count);
    Simulation simulation(ranks, MPI_COMM_WORLD);

    std::optional<tailrace::Session> session;
    std::optional<uint64_t> restored;
    const double opened = MPI_Wtime();
    if (arguments.every > 0) {
        session.emplace(tailrace::open_mpi(MPI_COMM_WORLD, arguments.options));
        restored = restore(*session, simulation, ranks);
        register_state(*session, simulation, ranks);
    }
    if (!restored) simulation.create(arguments.particles);
    uint64_t step = restored.value_or(0);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    report.line("{\"start_step\": %llu, \"restored\": %s, \"restore_seconds\": %.6f}",
                static_cast<unsigned long long>(step), restored ? "true" : "false", start - opened);

    std::vector<uint64_t> saved;
    while (step < arguments.steps) {
        simulation.step();
        ++step;
        if (session && step % arguments.every == 0) {
            save(*session, simulation, step);
            saved.push_back(step);
        }
        report.line("{\"step\": %llu}", static_cast<unsigned long long>(step));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double end = MPI_Wtime();
    if (session) {
        session->wait_all();
        for (uint64_t epoch : saved) report.epoch(session->state(epoch));
        session->close();
    }
    report.line("{\"run_seconds\": %.6f, \"wait_seconds\": %.6f}", end - start, MPI_Wtime() - end);
    if (!arguments.dump.empty()) dump(arguments.dump, simulation, ranks, arguments.particles);
    if (!arguments.report && ranks.rank == 0)
        std::printf("%llu steps done in %.2f s\n", static_cast<unsigned long long>(step), end - start);
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int status = 0;
    try {
        if (const std::optional<Arguments> arguments = parse(argc, argv)) {
            run(*arguments);
        } else {
            std::fputs(usage, stderr);
            status = 2;
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "particles: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return status;
}
