// particles_bench: measures what checkpoints cost a program that computes on every core. The simulation of
// examples/particles.cc runs for about S seconds at a time. It runs in turn without a checkpoint, and after
// one by each of a few ways: by tailrace, by a file per process, by two-phase MPI-IO. Rank 0 prints a line of
// JSON per round. bench.py starts it and compares.
//
//   particles_bench --particles N --seconds S --rounds R --first F --peers DIR key=value...
//   particles_bench --particles N --seconds S --rounds R --first F --carried SHARED_DIR key=value...
//
// With --carried the ways are: none, tailrace by its thread, tailrace by agent processes, which must run
// (`tailrace agent --mpi`) and get SHARED_DIR.
//
// Each round begins with the next way, and the first round with way F, because later ways find fuller caches.
// key=value are settings of tailrace. A section lasts from the moment when all ranks begin its checkpoint
// until the last rank has done its steps. A peer's checkpoint returns when its bytes are durable, tailrace's
// when they are copied. The flush of a section must end within the section. If it has not ended by then, it
// is waited for, and the wait counts.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tailrace_mpi.hpp>

#include "../examples/particles_simulation.h"

namespace {

using namespace simulation;

int rank = 0;

struct Piece {
    std::string name;
    std::span<std::byte> memory;
};

// What a checkpoint holds, where it lies in memory now.
std::vector<Piece> state_of(Simulation& simulation) {
    std::vector<Piece> pieces;
    Particles::each_field(simulation.particles, [&](const char* name, auto& field) {
        pieces.push_back({name, std::as_writable_bytes(std::span(field))});
    });
    pieces.push_back({"density", std::as_writable_bytes(simulation.own_grid())});
    return pieces;
}

double reduced(double value, MPI_Op operation) {
    double result = value;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
    return result;
}

// ---- ways to write a checkpoint ----------------------------------------------------------------------

class Way {
  public:
    virtual ~Way() = default;
    virtual void save(Simulation& simulation) = 0;
    // Waits until everything saved is durable. Returns the seconds of the last flush, if there is
    // one.
    virtual double finish() { return 0; }
};

class NoCheckpoint final : public Way {
    void save(Simulation&) override {}
};

class Tailrace final : public Way {
  public:
    Tailrace(Simulation& simulation, const tailrace::Options& options)
        : session_(tailrace::open_mpi(MPI_COMM_WORLD, options)) {
        for (const Piece& piece : state_of(simulation))
            session_.add(piece.name, piece.memory.data(), piece.memory.size());
    }
    void save(Simulation& simulation) override {
        for (const Piece& piece : state_of(simulation))
            session_.update(piece.name, piece.memory.data(), piece.memory.size());
        session_.save(++epoch_);
    }
    double finish() override {
        session_.wait_all();
        return session_.state(epoch_).flush_seconds;
    }

  private:
    tailrace::Session session_;
    uint64_t epoch_ = 0;
};

class FilePerProcess final : public Way {
  public:
    explicit FilePerProcess(const std::string& directory)
        : path_(directory + "/rank." + std::to_string(rank)) {}
    void save(Simulation& simulation) override {
        const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (file < 0) fail();
        for (const Piece& piece : state_of(simulation))
            for (auto rest = piece.memory; !rest.empty();) {
                const ssize_t written = ::write(file, rest.data(), rest.size());
                if (written <= 0) fail();
                rest = rest.subspan(static_cast<size_t>(written));
            }
        if (::fsync(file) != 0 || ::close(file) != 0) fail();
    }

  private:
    [[noreturn]] void fail() const { throw std::system_error(errno, std::generic_category(), path_); }
    const std::string path_;
};

// One collective call into one file, with the ranks one after the other. Collective buffering is
// forced on, because by default ROMIO has every rank write contiguous data by itself.
class TwoPhase final : public Way {
  public:
    explicit TwoPhase(const std::string& directory) : path_(directory + "/all") {
        MPI_Info_create(&info_);
        MPI_Info_set(info_, "romio_cb_write", "enable");
    }
    ~TwoPhase() override { MPI_Info_free(&info_); }
    void save(Simulation& simulation) override {
        std::vector<int> lengths;
        std::vector<MPI_Aint> addresses;
        uint64_t bytes = 0, offset = 0;
        for (const Piece& piece : state_of(simulation)) {
            lengths.push_back(static_cast<int>(piece.memory.size()));
            MPI_Get_address(piece.memory.data(), &addresses.emplace_back());
            bytes += piece.memory.size();
        }
        if (bytes > INT32_MAX) throw std::runtime_error("a rank has 2 GiB or more: choose fewer particles");
        MPI_Exscan(&bytes, &offset, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) offset = 0;
        MPI_Datatype state;
        MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(), addresses.data(), MPI_BYTE,
                                 &state);
        MPI_Type_commit(&state);
        MPI_File file;
        check(MPI_File_open(MPI_COMM_WORLD, path_.c_str(), MPI_MODE_CREATE | MPI_MODE_WRONLY, info_, &file));
        check(MPI_File_set_size(file, 0));
        check(MPI_File_write_at_all(file, static_cast<MPI_Offset>(offset), MPI_BOTTOM, 1, state,
                                    MPI_STATUS_IGNORE));
        check(MPI_File_sync(file));
        check(MPI_File_close(&file));
        MPI_Type_free(&state);
    }

  private:
    void check(int code) const {
        if (code != MPI_SUCCESS) throw std::runtime_error(path_ + " could not be written with MPI-IO");
    }
    const std::string path_;
    MPI_Info info_ = MPI_INFO_NULL;
};

// ---- measuring -----------------------------------------------------------------------------------------

struct Section {
    double seconds = 0;  // of the whole section
    double saving = 0;   // until save returned on every rank
    double waiting = 0;  // at its end, for a flush that has not ended
    double flush = 0;
};

Section run(Way& way, Simulation& simulation, uint64_t steps) {
    Section section;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    way.save(simulation);
    section.saving = reduced(MPI_Wtime() - start, MPI_MAX);
    for (uint64_t step = 0; step < steps; ++step) simulation.step();
    const double worked = MPI_Wtime();
    section.flush = reduced(way.finish(), MPI_MAX);
    section.waiting = reduced(MPI_Wtime() - worked, MPI_MAX);
    section.seconds = reduced(MPI_Wtime() - start, MPI_MAX);
    return section;
}

struct Arguments {
    uint64_t particles = 5'000'000, rounds = 1, first = 0;
    double seconds = 10;
    std::string peers, carried;
    tailrace::Options options, carried_options;
};

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        const bool more = i + 1 < argc;
        if (more && option == "--particles") {
            arguments.particles = std::strtoull(argv[++i], nullptr, 10);
        } else if (more && option == "--seconds") {
            arguments.seconds = std::strtod(argv[++i], nullptr);
        } else if (more && option == "--rounds") {
            arguments.rounds = std::strtoull(argv[++i], nullptr, 10);
        } else if (more && option == "--first") {
            arguments.first = std::strtoull(argv[++i], nullptr, 10);
        } else if (more && option == "--peers") {
            arguments.peers = argv[++i];
        } else if (more && option == "--carried") {
            arguments.carried = argv[++i];
        } else if (const size_t equals = option.find('='); equals != std::string::npos) {
            for (auto* options : {&arguments.options, &arguments.carried_options})
                options->set(option.substr(0, equals), option.substr(equals + 1));
        } else {
            throw std::runtime_error("\"" + option + "\" is neither an option nor key=value");
        }
    }
    if (arguments.peers.empty() && arguments.carried.empty())
        throw std::runtime_error("--peers DIR or --carried DIR is missing");
    if (!arguments.carried.empty()) {
        arguments.options.set("agent_carries", "no");
        arguments.carried_options.set("agent_carries", "yes");
        arguments.carried_options.set("agent", "required");
        arguments.carried_options.set("shared_dir", arguments.carried);
    }
    return arguments;
}

void measure(const Arguments& arguments) {
    const Ranks ranks = make_ranks(MPI_COMM_WORLD);
    Simulation simulation(ranks, MPI_COMM_WORLD);
    simulation.create(arguments.particles);

    uint64_t steps = 4;
    const double tried = run(*std::make_unique<NoCheckpoint>(), simulation, steps).seconds;
    steps =
        std::max<uint64_t>(1, static_cast<uint64_t>(arguments.seconds / tried * static_cast<double>(steps)));
    std::vector<std::pair<std::string, std::unique_ptr<Way>>> ways;
    ways.emplace_back("none", std::make_unique<NoCheckpoint>());
    ways.emplace_back("tailrace", std::make_unique<Tailrace>(simulation, arguments.options));
    if (!arguments.carried.empty()) {
        ways.emplace_back("tailrace, carried",
                          std::make_unique<Tailrace>(simulation, arguments.carried_options));
    } else {
        ways.emplace_back("file per process", std::make_unique<FilePerProcess>(arguments.peers));
        ways.emplace_back("MPI-IO, two-phase", std::make_unique<TwoPhase>(arguments.peers));
    }
    for (const auto& [name, way] : ways) run(*way, simulation, 1);  // the first run of each is not measured

    for (uint64_t round = 0; round < arguments.rounds; ++round) {
        double bytes = 0;
        for (const Piece& piece : state_of(simulation)) bytes += static_cast<double>(piece.memory.size());
        std::string line = "{\"bytes\": " + std::to_string(reduced(bytes, MPI_SUM)) +
                           ", \"steps\": " + std::to_string(steps) + ", \"ways\": {";
        for (size_t i = 0; i < ways.size(); ++i) {
            const auto& [name, way] = ways[(i + arguments.first + round) % ways.size()];
            const Section section = run(*way, simulation, steps);
            std::array<char, 256> text{};
            std::snprintf(
                text.data(), text.size(),
                "%s\"%s\": {\"seconds\": %.6f, \"saving\": %.6f, \"waiting\": %.6f, \"flush\": %.6f}",
                i == 0 ? "" : ", ", name.c_str(), section.seconds, section.saving, section.waiting,
                section.flush);
            line += text.data();
        }
        if (rank == 0) std::printf("%s}}\n", line.c_str());
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        measure(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "particles_bench: rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
