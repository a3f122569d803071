// Arrays whose memory has ghost cells around the rank's own: what is saved and restored is the rank's own, on
// any number of ranks, and ghost cells stay as they are. Ranks are threads, storages are in memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "session/cluster.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

constexpr uint64_t rows = 60, columns = 44, ghosts = 2;

// Rank `rank` of `count` has some rows, or some columns, and two ghost cells on every side.
struct Grid {
    ArrayPiece piece;
    MemoryLayout layout;
    std::vector<double> memory;

    Grid(int rank, int count, bool by_rows, double ghost) {
        const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(count);
        const uint64_t whole = by_rows ? rows : columns;
        const uint64_t from = whole * r / n, own = whole * (r + 1) / n - from;
        piece.type = ElementType::float64;
        piece.global_shape = {rows, columns};
        piece.offset = by_rows ? std::vector<uint64_t>{from, 0} : std::vector<uint64_t>{0, from};
        piece.local_shape = by_rows ? std::vector<uint64_t>{own, columns} : std::vector<uint64_t>{rows, own};
        layout.shape = {piece.local_shape[0] + 2 * ghosts, piece.local_shape[1] + 2 * ghosts};
        layout.offset = {ghosts, ghosts};
        memory.assign(layout.shape[0] * layout.shape[1], ghost);
        layout.bytes = memory.size() * sizeof(double);
    }
    // visit(cell, row and column in the whole array); only the rank's own.
    template <class Visit>
    void each_own(const Visit& visit) {
        for (uint64_t i = 0; i < piece.local_shape[0]; ++i)
            for (uint64_t j = 0; j < piece.local_shape[1]; ++j)
                visit(memory[(i + ghosts) * layout.shape[1] + j + ghosts], piece.offset[0] + i,
                      piece.offset[1] + j);
    }
};

double value(uint64_t row, uint64_t column) {
    return static_cast<double>(row * columns + column) + 0.5;
}

// The ghost cells of a program between two exchanges hold what its neighbours had a step ago. Saved as a part
// of overlapping pieces, they would be what another number of ranks gets.
TEST(GhostCellsTest, StaleOnesAreNeitherSavedNorRestored) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    const auto body = [](auto&& check) {
        return [check](int, Checkpointer* session, const Status& opened) {
            ASSERT_TRUE(opened.ok()) << opened.to_string();
            check(*session);
        };
    };
    run_job(job, body([](Checkpointer& session) {
                Grid grid(session.rank(), 4, true, -1e9);
                grid.each_own([](double& cell, uint64_t i, uint64_t j) { cell = value(i, j); });
                const Status added =
                    session.register_array("density", grid.memory.data(), grid.piece, grid.layout);
                ASSERT_TRUE(added.ok()) << added.to_string();
                ASSERT_TRUE(session.save(1).ok());
                ASSERT_TRUE(session.close().ok());
            }));
    struct Later {
        int nodes, per_node;
        bool by_rows;
    };
    for (const Later& later :
         {Later{2, 2, true}, {4, 1, true}, {3, 1, true}, {1, 1, true}, {5, 1, false}, {2, 3, false}}) {
        const int count = later.nodes * later.per_node;
        SCOPED_TRACE(std::to_string(count) + " ranks");
        run_job(job_on(machines, hosts_of(later.nodes, later.per_node)), body([&](Checkpointer& session) {
                    Grid grid(session.rank(), count, later.by_rows, 7.25);
                    ASSERT_TRUE(
                        session.register_array("density", grid.memory.data(), grid.piece, grid.layout).ok());
                    const auto restored = session.restore(std::nullopt, {});
                    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
                    uint64_t wrong = 0;
                    grid.each_own([&](double& cell, uint64_t i, uint64_t j) {
                        if (cell != value(i, j)) ++wrong;
                        cell = 7.25;
                    });
                    EXPECT_EQ(wrong, 0u);
                    EXPECT_EQ(std::count(grid.memory.begin(), grid.memory.end(), 7.25),
                              static_cast<std::ptrdiff_t>(grid.memory.size()))
                        << "ghost cells are the program's";
                    EXPECT_TRUE(session.close().ok());
                }));
    }
}

}  // namespace
}  // namespace tailrace::internal
