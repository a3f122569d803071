// What the ranks of a history save, and its random numbers (history.h).
#pragma once

#include <algorithm>
#include <climits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "session/cluster.h"
#include "threads/mutex.h"

namespace tailrace::internal::testing_support {

constexpr std::chrono::milliseconds for_ever{0};

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    uint64_t below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(engine_); }
    int between(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
    bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
    std::mt19937_64& engine() { return engine_; }

  private:
    std::mt19937_64 engine_;
};

// Something that a storage does not do, and says so; or its process dies, at a sync or at any operation.
inline FaultPlan choose_errors(Random& random, uint64_t most_syncs, uint64_t most_operations) {
    FaultPlan plan;
    switch (random.between(0, 5)) {
        case 0:
            plan.write_error = 0.05;
            break;
        case 1:
            plan.write_no_space = 0.05;
            break;
        case 2:
            plan.sync_error = 0.05;
            break;
        case 3:
            plan.rename_error = 0.1;
            plan.open_error = 0.02;
            break;
        case 4:
            plan.read_error = 0.05;
            plan.short_read = 0.05;
            plan.list_error = 0.02;
            break;
        default:
            if (random.chance(0.5))
                plan.die_at_sync = 1 + random.below(most_syncs);
            else
                plan.die_at_operation = 1 + random.below(most_operations);
    }
    return plan;
}

// ---- what is saved -------------------------------------------------------------------------------------

// Which save it was: an epoch may be saved again by a later job.
struct Attempt {
    uint64_t epoch = 0;
    uint64_t job = 0;
    uint64_t number() const { return epoch * 64 + job; }
};

struct Sizes {
    uint64_t seed = 0, scale = 0, cells = 0;
    uint64_t fixed(int rank) const { return mix(1, static_cast<uint64_t>(rank)) % (scale + 1); }
    uint64_t variable(Attempt attempt, int rank) const {
        return mix(attempt.number(), static_cast<uint64_t>(rank)) % (scale + 1);
    }
    uint64_t mix(uint64_t a, uint64_t b) const {
        uint64_t x = seed + a * 0x9E3779B97F4A7C15u + b * 0xC2B2AE3D27D4EB4Fu;
        x ^= x >> 31;
        x *= 0xBF58476D1CE4E5B9u;
        return x ^ (x >> 29);
    }
};

inline uint32_t cell(Attempt attempt, uint64_t index) {
    return static_cast<uint32_t>(index * 2654435761u + attempt.number());
}

inline ArrayPiece piece_of(uint64_t cells, int rank, int count) {
    const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(count);
    const uint64_t from = cells * r / n, to = cells * (r + 1) / n;
    return {ElementType::uint32, {cells}, {from}, {to - from}};
}

// What a rank does wrong with its piece of the array, so that the pieces of all ranks do not fit together.
struct Misfit {
    enum class Kind { gap, overlap, other_shape, other_type };
    Kind kind = Kind::gap;
    int rank = 0;
};

inline ArrayPiece misfitting(ArrayPiece piece, Misfit::Kind kind) {
    switch (kind) {
        case Misfit::Kind::gap:
            --piece.local_shape[0];
            break;
        case Misfit::Kind::overlap:
            if (piece.offset[0] > 0) --piece.offset[0];
            ++piece.local_shape[0];
            break;
        case Misfit::Kind::other_shape:
            ++piece.global_shape[0];
            break;
        case Misfit::Kind::other_type:
            piece.type = ElementType::float32;
            break;
    }
    return piece;
}

// Some rank that has elements does something wrong that the others do not do as well.
inline Misfit choose_misfit(uint64_t number, uint64_t cells, int ranks) {
    Random random(number);
    Misfit misfit;
    misfit.rank = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    while (piece_of(cells, misfit.rank, ranks).local_shape[0] == 0) misfit.rank = (misfit.rank + 1) % ranks;
    const bool alone = piece_of(cells, misfit.rank, ranks).local_shape[0] == cells;
    misfit.kind = alone ? Misfit::Kind::gap : static_cast<Misfit::Kind>(random.between(0, 3));
    return misfit;
}

// What a rank has registered: a tag that says which attempt it belongs to, a region of the same size every
// time, one of another size every time, and a piece of a global array.
struct RankState {
    std::vector<std::byte> tag, fixed, variable;
    std::vector<uint32_t> cells;
    ArrayPiece piece;

    void shape(const Sizes& sizes, int rank, int count) {
        tag.assign(16, std::byte{0});
        fixed.assign(sizes.fixed(rank), std::byte{0});
        variable.clear();
        piece = piece_of(sizes.cells, rank, count);
        cells.assign(piece.local_shape[0], 0);
    }
    void fill(const Sizes& sizes, Attempt attempt, int rank) {
        ByteWriter writer;
        writer.put(attempt.epoch);
        writer.put(attempt.job);
        tag = writer.take();
        fixed = content(attempt.number(), rank, 1, sizes.fixed(rank));
        variable = content(attempt.number(), rank, 2, sizes.variable(attempt, rank));
        cells.resize(piece.local_shape[0]);
        for (uint64_t i = 0; i < cells.size(); ++i) cells[i] = cell(attempt, piece.offset[0] + i);
    }
    Status enlist(Checkpointer& session) {
        TAILRACE_TRY(session.register_region("tag", tag.data(), tag.size()));
        TAILRACE_TRY(session.register_region("fixed", fixed.data(), fixed.size()));
        TAILRACE_TRY(session.register_region("variable", variable.data(), variable.size()));
        return session.register_array("cells", cells.data(), piece);
    }
    // `misfit`, if it is this rank that does not fit.
    Status update(Checkpointer& session, std::optional<Misfit> misfit = {}) {
        TAILRACE_TRY(session.update_region("tag", tag.data(), tag.size()));
        TAILRACE_TRY(session.update_region("fixed", fixed.data(), fixed.size()));
        TAILRACE_TRY(session.update_region("variable", variable.data(), variable.size()));
        if (!misfit || misfit->rank != session.rank())
            return session.update_array("cells", cells.data(), piece);
        const auto other = misfitting(piece, misfit->kind);
        cells.resize(std::max(cells.size(), other.local_shape[0]));
        return session.update_array("cells", cells.data(), other);
    }
};

inline Attempt read_tag(std::span<const std::byte> tag) {
    ByteReader reader(tag);
    Attempt attempt;
    attempt.epoch = reader.get<uint64_t>();
    attempt.job = reader.get<uint64_t>();
    return attempt;
}

// A program whose ranks exchange data in each step: none begins a save before all have come to it. So ranks
// that do not hear of each other's captures are never further apart than what the node-local tier keeps.
class Pace {
  public:
    explicit Pace(int ranks) : at_(static_cast<size_t>(ranks), 0) {}
    void come_to(int rank, int save) {
        MutexLock lock(mutex_);
        at_[static_cast<size_t>(rank)] = save;
        moved_.notify_all();
        while (*std::min_element(at_.begin(), at_.end()) < save) moved_.wait(lock);
    }
    void leave(int rank) {
        MutexLock lock(mutex_);
        at_[static_cast<size_t>(rank)] = INT_MAX;
        moved_.notify_all();
    }

  private:
    Mutex mutex_;
    Condition moved_;
    std::vector<int> at_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal::testing_support
