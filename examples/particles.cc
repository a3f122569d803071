// particles - a program of the shape of a cosmology run, which saves its state in the background and goes on
// after a kill with any number of ranks.
//
//     mpiexec -n 8 particles --steps 100 --every 10 --set shared_dir=checkpoints --set files=2
//
// A periodic box holds particles (position, velocity, potential, id, mask: 38 bytes each) and a density grid.
// The box is cut into slabs of grid planes, one per rank and of uneven width; a particle lives on the rank
// whose slab it is in, and moves there when it crosses over. The grid counts particles per cell and is saved
// as one global array, decomposed over the ranks; particles are saved as plain regions of their rank, whose
// sizes change from epoch to epoch.
//
// The end state does not depend on the number of ranks, bit for bit: the grid holds whole numbers, which add
// up to the same in any order, and a particle's path depends on the grid and on its own state only. That is
// what examples/demo.py compares.
//
// One step:  grid edges from the neighbours -> forces -> move -> particles to their new ranks -> count.
// So positions and grid agree at the end of a step, where the state is saved.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tailrace_mpi.hpp>
#include <vector>

namespace {

constexpr uint32_t planes = 64;  // cells along each side of the box
constexpr size_t plane_cells = size_t{planes} * planes;

// ---- particles --------------------------------------------------------------------------------------

// A particle on its way to another rank, and in the dump of the end state.
constexpr size_t record_bytes = 7 * sizeof(float) + sizeof(uint64_t) + sizeof(uint16_t);
static_assert(record_bytes == 38);

struct Particles {
    std::vector<float> x, y, z, vx, vy, vz, potential;
    std::vector<uint64_t> id;
    std::vector<uint16_t> mask;

    size_t size() const { return id.size(); }

    // Calls visit(name, vector) for every field.
    template <class Self, class Visit>
    static void each_field(Self& self, Visit&& visit) {
        visit("x", self.x), visit("y", self.y), visit("z", self.z);
        visit("vx", self.vx), visit("vy", self.vy), visit("vz", self.vz);
        visit("potential", self.potential), visit("id", self.id), visit("mask", self.mask);
    }

    void resize(size_t count) {
        each_field(*this, [&](const char*, auto& field) { field.resize(count); });
    }
    void move_within(size_t from, size_t to) {
        each_field(*this, [&](const char*, auto& field) { field[to] = field[from]; });
    }
    void pack(size_t index, std::byte* record) const {
        each_field(*this, [&](const char*, const auto& field) {
            std::memcpy(record, &field[index], sizeof field[index]);
            record += sizeof field[index];
        });
    }
    void unpack(size_t index, const std::byte* record) {
        each_field(*this, [&](const char*, auto& field) {
            std::memcpy(&field[index], record, sizeof field[index]);
            record += sizeof field[index];
        });
    }
};

uint64_t scrambled(uint64_t value) {  // the mixing steps of splitmix64
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// A number in [0, 1) that depends on the particle and the axis only.
float uniform(uint64_t id, uint64_t axis) {
    return static_cast<float>(scrambled(id * 8 + axis) >> 40) * 0x1p-24f;
}

uint32_t cell_of(float position) {
    return static_cast<uint32_t>(position * static_cast<float>(planes));
}

float wrapped(float position) {  // into [0, 1)
    position -= std::floor(position);
    return position < 1.0f ? position : 0.0f;
}

// ---- who owns what ----------------------------------------------------------------------------------

struct Ranks {
    int rank = 0, count = 1;
    std::vector<uint32_t> first_plane;   // of each rank, and `planes` at the end
    std::array<int, planes> owner_of{};  // of each plane

    uint32_t first() const { return first_plane[static_cast<size_t>(rank)]; }
    uint32_t owned() const { return first_plane[static_cast<size_t>(rank) + 1] - first(); }
};

// Slabs of uneven width: some about 20 % wider and some about 20 % narrower than the mean.
Ranks make_ranks(MPI_Comm communicator) {
    Ranks ranks;
    MPI_Comm_rank(communicator, &ranks.rank);
    MPI_Comm_size(communicator, &ranks.count);
    double sum = 0;
    std::vector<double> ends;
    for (int r = 0; r < ranks.count; ++r) ends.push_back(sum += 1.0 + 0.1 * ((r * 3) % 5 - 2));
    ranks.first_plane.push_back(0);
    for (int r = 0; r < ranks.count; ++r) {
        const auto end = static_cast<uint32_t>(std::lround(ends[static_cast<size_t>(r)] / sum * planes));
        for (uint32_t plane = ranks.first_plane.back(); plane < end; ++plane) ranks.owner_of[plane] = r;
        ranks.first_plane.push_back(end);
    }
    return ranks;
}

// ---- the simulation ---------------------------------------------------------------------------------

class Simulation {
  public:
    Simulation(const Ranks& ranks, MPI_Comm communicator)
        : ranks_(ranks), communicator_(communicator), grid_((ranks.owned() + size_t{2}) * plane_cells) {}

    // The start: every rank makes a share of the particles and sends them where they belong.
    void create(uint64_t total) {
        const auto rank = static_cast<uint64_t>(ranks_.rank), count = static_cast<uint64_t>(ranks_.count);
        const uint64_t first = total * rank / count, end = total * (rank + 1) / count;
        particles.resize(end - first);
        for (uint64_t id = first; id < end; ++id) {
            const size_t i = id - first;
            particles.id[i] = id;
            particles.x[i] = uniform(id, 0), particles.y[i] = uniform(id, 1), particles.z[i] = uniform(id, 2);
            constexpr float fastest = 0.5f / planes;  // cells per step
            particles.vx[i] = (uniform(id, 3) - 0.5f) * fastest;
            particles.vy[i] = (uniform(id, 4) - 0.5f) * fastest;
            particles.vz[i] = (uniform(id, 5) - 0.5f) * fastest;
            particles.mask[i] = static_cast<uint16_t>(scrambled(id) & 0xff);
        }
        send_home();
        count_density();
    }

    void step() {
        exchange_edges();
        push();
        send_home();
        count_density();
    }

    // Every particle to the rank whose slab it is in.
    void send_home();

    // The planes this rank owns, without the copies of its neighbours' edges.
    std::span<uint32_t> own_grid() {
        return std::span(grid_).subspan(plane_cells, ranks_.owned() * plane_cells);
    }

    Particles particles;

  private:
    uint32_t density(uint32_t local_plane, uint32_t j, uint32_t k) const {
        return grid_[local_plane * plane_cells + j * planes + k];
    }

    void exchange_edges() {
        const uint32_t before = (ranks_.first() + planes - 1) % planes;
        const uint32_t after = (ranks_.first() + ranks_.owned()) % planes;
        const int left = ranks_.owner_of[before], right = ranks_.owner_of[after];
        const auto cells = static_cast<int>(plane_cells);
        uint32_t* grid = grid_.data();
        MPI_Sendrecv(grid + plane_cells, cells, MPI_UINT32_T, left, 0,
                     grid + (ranks_.owned() + size_t{1}) * plane_cells, cells, MPI_UINT32_T, right, 0,
                     communicator_, MPI_STATUS_IGNORE);
        MPI_Sendrecv(grid + ranks_.owned() * plane_cells, cells, MPI_UINT32_T, right, 1, grid, cells,
                     MPI_UINT32_T, left, 1, communicator_, MPI_STATUS_IGNORE);
    }

    // Particles drift towards denser cells.
    void push() {
        constexpr float strength = 2e-7f;
        Particles& p = particles;
        for (size_t i = 0; i < p.size(); ++i) {
            const uint32_t a = cell_of(p.x[i]) - ranks_.first() + 1, b = cell_of(p.y[i]), c = cell_of(p.z[i]);
            const uint32_t b_before = (b + planes - 1) % planes, b_after = (b + 1) % planes;
            const uint32_t c_before = (c + planes - 1) % planes, c_after = (c + 1) % planes;
            const auto slope = [](uint32_t before, uint32_t after) {
                return static_cast<float>(static_cast<int32_t>(after) - static_cast<int32_t>(before));
            };
            const uint32_t here = density(a, b, c);
            const uint32_t west = density(a - 1, b, c), east = density(a + 1, b, c);
            const uint32_t south = density(a, b_before, c), north = density(a, b_after, c);
            const uint32_t below = density(a, b, c_before), above = density(a, b, c_after);
            p.vx[i] += strength * slope(west, east);
            p.vy[i] += strength * slope(south, north);
            p.vz[i] += strength * slope(below, above);
            p.potential[i] =
                -std::sqrt(static_cast<float>(here + west + east + south + north + below + above));
            p.mask[i] = static_cast<uint16_t>((p.mask[i] << 1) | (here > west ? 1 : 0));
            p.x[i] = wrapped(p.x[i] + p.vx[i]);
            p.y[i] = wrapped(p.y[i] + p.vy[i]);
            p.z[i] = wrapped(p.z[i] + p.vz[i]);
        }
    }

    void count_density() {
        std::fill(grid_.begin(), grid_.end(), 0u);
        for (size_t i = 0; i < particles.size(); ++i) {
            const uint32_t a = cell_of(particles.x[i]) - ranks_.first() + 1;
            ++grid_[a * plane_cells + cell_of(particles.y[i]) * planes + cell_of(particles.z[i])];
        }
    }

    const Ranks& ranks_;
    MPI_Comm communicator_;
    std::vector<uint32_t> grid_;  // the plane before, the own planes, the plane after
};

void Simulation::send_home() {
    // Leavers are packed, and stayers close the gaps.
    std::vector<std::vector<std::byte>> leaving(static_cast<size_t>(ranks_.count));
    size_t stay = 0;
    for (size_t i = 0; i < particles.size(); ++i) {
        const int owner = ranks_.owner_of[cell_of(particles.x[i])];
        if (owner == ranks_.rank) {
            particles.move_within(i, stay++);
        } else {
            auto& records = leaving[static_cast<size_t>(owner)];
            records.resize(records.size() + record_bytes);
            particles.pack(i, records.data() + records.size() - record_bytes);
        }
    }

    std::vector<int> send_bytes, receive_bytes(leaving.size());
    std::vector<std::byte> outgoing;
    for (const auto& records : leaving) {
        send_bytes.push_back(static_cast<int>(records.size()));
        outgoing.insert(outgoing.end(), records.begin(), records.end());
    }
    MPI_Alltoall(send_bytes.data(), 1, MPI_INT, receive_bytes.data(), 1, MPI_INT, communicator_);
    const auto starts = [](const std::vector<int>& bytes) {
        std::vector<int> offsets(bytes.size());
        std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), 0);
        return offsets;
    };
    const std::vector<int> send_at = starts(send_bytes), receive_at = starts(receive_bytes);
    std::vector<std::byte> arrived(static_cast<size_t>(receive_at.back() + receive_bytes.back()));
    MPI_Alltoallv(outgoing.data(), send_bytes.data(), send_at.data(), MPI_BYTE, arrived.data(),
                  receive_bytes.data(), receive_at.data(), MPI_BYTE, communicator_);

    const size_t arrivals = arrived.size() / record_bytes;
    particles.resize(stay + arrivals);
    for (size_t i = 0; i < arrivals; ++i) particles.unpack(stay + i, arrived.data() + i * record_bytes);
}

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

// The newest epoch, or nothing on a first run. The number of ranks may differ from the one that saved it:
// each rank takes over some of the saved ranks' particles and sends them home; of the grid it reads the box
// that it owns now.
std::optional<uint64_t> restore(tailrace::Session& session, Simulation& simulation, const Ranks& ranks) {
    std::optional<tailrace::Reader> reader;
    try {
        reader.emplace(session.open_epoch());
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
            arguments.particles = std::strtoull(value.c_str(), nullptr, 10);
        } else if (option == "--steps") {
            arguments.steps = std::strtoull(value.c_str(), nullptr, 10);
        } else if (option == "--every") {
            arguments.every = std::strtoull(value.c_str(), nullptr, 10);
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
