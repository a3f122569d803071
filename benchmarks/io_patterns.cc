#include "io_patterns.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "splitmix.h"

namespace tailrace::internal::patterns {

namespace {

constexpr uint64_t double_bytes = 8;

// [first, first + count) of an array's points in one direction.
struct Part {
    int first = 0, count = 0;
};
Part part_of(int points, int parts, int index) {
    const int small = points / parts, larger = points % parts;
    return {small * index + std::min(index, larger), small + (index < larger ? 1 : 0)};
}

// Adds the rows of a block in an array of n x n x n points of point_bytes each. The array begins at
// `base`.
void add_block(std::vector<Request>& requests, uint64_t base, int n, Part x, Part y, Part z,
               uint64_t point_bytes) {
    const auto side = static_cast<uint64_t>(n);
    for (int k = z.first; k < z.first + z.count; ++k)
        for (int j = y.first; j < y.first + y.count; ++j) {
            const uint64_t row = (static_cast<uint64_t>(k) * side + static_cast<uint64_t>(j)) * side;
            requests.push_back({base + (row + static_cast<uint64_t>(x.first)) * point_bytes,
                                static_cast<uint64_t>(x.count) * point_bytes});
        }
}

uint64_t cube(int n) {
    const auto side = static_cast<uint64_t>(n);
    return side * side * side;
}

// A random sequence that every rank draws in the same way.
class Draw {
  public:
    explicit Draw(uint64_t seed) : state_(seed) {}
    uint64_t below(uint64_t limit) { return splitmix(std::exchange(state_, state_ + SPLITMIX_STEP)) % limit; }

  private:
    uint64_t state_;
};

// Calls use(offset in the variable, bytes, owner) for every piece of a variable; returns its bytes.
template <class Use>
uint64_t walk(const Irregular& pattern, Use use) {
    constexpr uint64_t stay = 2, step = 4, jump = 64;  // one piece in this many does something else
    Draw draw(pattern.seed);
    const auto ranks = static_cast<uint64_t>(pattern.ranks);
    uint64_t owner = draw.below(ranks), offset = 0;
    for (uint64_t piece = 0; piece < pattern.pieces_per_variable; ++piece) {
        const uint64_t most = std::max<uint64_t>(1, 2 * pattern.mean_bytes / double_bytes);
        const uint64_t bytes = (1 + draw.below(most)) * double_bytes;
        use(offset, bytes, static_cast<int>(owner));
        offset += bytes;
        if (draw.below(stay) == 0) continue;
        if (draw.below(jump) == 0)
            owner = draw.below(ranks);
        else
            owner = (owner + ranks + (draw.below(step) < step / 2 ? 1 : ranks - 1)) % ranks;
    }
    return offset;
}

}  // namespace

std::vector<Request> btio(int n, int ranks, int rank, int dumps) {
    const int side = static_cast<int>(std::lround(std::sqrt(ranks)));
    assert(side * side == ranks && side <= n);
    constexpr uint64_t point_bytes = 5 * double_bytes;
    std::vector<Request> requests;
    for (int dump = 0; dump < dumps; ++dump) {
        int x = rank % side, y = rank / side;
        for (int z = 0; z < side; ++z) {
            add_block(requests, static_cast<uint64_t>(dump) * btio_bytes(n), n, part_of(n, side, x),
                      part_of(n, side, y), part_of(n, side, z), point_bytes);
            x = (x + 1) % side;
            y = (y + side - 1) % side;
        }
    }
    return requests;
}

uint64_t btio_bytes(int n, int dumps) {
    return cube(n) * 5 * double_bytes * static_cast<uint64_t>(dumps);
}

std::vector<Request> s3d(int n, int px, int py, int pz, int rank) {
    assert(n % px == 0 && n % py == 0 && n % pz == 0 && rank < px * py * pz);
    constexpr int components = 11 + 3 + 1 + 1;
    const Part x = part_of(n, px, rank % px), y = part_of(n, py, rank / px % py),
               z = part_of(n, pz, rank / px / py);
    std::vector<Request> requests;
    for (int component = 0; component < components; ++component)
        add_block(requests, static_cast<uint64_t>(component) * cube(n) * double_bytes, n, x, y, z,
                  double_bytes);
    return requests;
}

uint64_t s3d_bytes(int n) {
    return 16 * cube(n) * double_bytes;
}

std::vector<Request> irregular(const Irregular& pattern, int rank) {
    std::vector<Request> of_one_variable;
    const uint64_t variable_bytes = walk(pattern, [&](uint64_t offset, uint64_t bytes, int owner) {
        if (owner == rank) of_one_variable.push_back({offset, bytes});
    });
    std::vector<Request> requests;
    requests.reserve(of_one_variable.size() * pattern.variables);
    for (uint64_t variable = 0; variable < pattern.variables; ++variable)
        for (const Request& request : of_one_variable)
            requests.push_back({variable * variable_bytes + request.offset, request.bytes});
    return requests;
}

uint64_t irregular_bytes(const Irregular& pattern) {
    return pattern.variables * walk(pattern, [](uint64_t, uint64_t, int) {});
}

}  // namespace tailrace::internal::patterns
