// The simulation that `particles` runs, without a word about checkpoints.
//
// A periodic box holds particles (position, velocity, potential, id, mask: 38 bytes each) and a density grid.
// The box is cut into slabs of grid planes, one per rank and of uneven width; a particle lives on the rank
// whose slab it is in, and moves there when it crosses over. The grid counts particles per cell.
//
// The end state does not depend on the number of ranks, bit for bit: the grid holds whole numbers, which add
// up to the same in any order, and a particle's path depends on the grid and on its own state only.
//
// One step:  grid edges from the neighbours -> forces -> move -> particles to their new ranks -> count.
// So positions and grid agree at the end of a step.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace simulation {

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

inline uint64_t scrambled(uint64_t value) {  // the mixing steps of splitmix64
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// A number in [0, 1) that depends on the particle and the axis only.
inline float uniform(uint64_t id, uint64_t axis) {
    return static_cast<float>(scrambled(id * 8 + axis) >> 40) * 0x1p-24f;
}

inline uint32_t cell_of(float position) {
    return static_cast<uint32_t>(position * static_cast<float>(planes));
}

inline float wrapped(float position) {  // into [0, 1)
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
inline Ranks make_ranks(MPI_Comm communicator) {
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

inline void Simulation::send_home() {
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

}  // namespace simulation
