// Lists: each rank has items of its own, and any number of ranks restores all of them, in the order of ranks.
// Ranks are threads, storages are in memory. The seed is printed; TAILRACE_SEED replays it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "aggregate/seeds.h"
#include "session/cluster.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

// An item: its number in the whole list, three times over, as a program's struct would be.
using Item = std::array<uint64_t, 3>;

ResizableMemory memory_of(std::vector<Item>& items) {
    ResizableMemory memory;
    memory.find = [&items] { return std::as_writable_bytes(std::span(items)); };
    memory.resize = [&items](uint64_t bytes) {
        items.assign(bytes / sizeof(Item), Item{});
        return true;
    };
    return memory;
}

constexpr ListItem item_type{ElementType::uint64, 3};

RankBody body_of(const std::function<void(Checkpointer& session, std::vector<Item>& items)>& check,
                 const ListItem& item = item_type) {
    return [check, item](int, Checkpointer* session, const Status& opened) {
        ASSERT_TRUE(opened.ok()) << opened.to_string();
        std::vector<Item> items;
        const Status added = session->register_list("particles", item, memory_of(items));
        ASSERT_TRUE(added.ok()) << added.to_string();
        check(*session, items);
        EXPECT_TRUE(session->close().ok());
    };
}

std::vector<Item> numbered(uint64_t first, uint64_t count) {
    std::vector<Item> items;
    for (uint64_t i = first; i < first + count; ++i) items.push_back({i, i * 7 + 1, ~i});
    return items;
}

TEST(ListTest, AnyNumberOfRanksRestoresEveryItemInOrder) {
    for (const uint64_t seed : seeds(1, 12)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        const auto nodes = 1 + static_cast<int>(below(random, 4)),
                   each = 1 + static_cast<int>(below(random, 3));
        const int ranks = nodes * each;
        std::vector<uint64_t> counts, first;
        uint64_t total = 0;
        for (int r = 0; r < ranks; ++r) {
            first.push_back(total);
            counts.push_back(below(random, 3) == 0 ? 0 : below(random, 4000));  // some ranks have nothing
            total += counts.back();
        }
        Machines machines;
        run_job(job_on(machines, hosts_of(nodes, each)), body_of([&](Checkpointer& session, auto& items) {
                    const auto r = static_cast<size_t>(session.rank());
                    items = numbered(first[r], counts[r]);
                    ASSERT_TRUE(session.save(1).ok());
                }));
        for (const int later : {ranks, 1, 2, 3, 5, 2 * ranks + 1}) {
            SCOPED_TRACE(std::to_string(ranks) + " ranks, restored by " + std::to_string(later));
            const auto n = static_cast<uint64_t>(later);
            run_job(job_on(machines, hosts_of(later, 1)), body_of([&](Checkpointer& session, auto& items) {
                        items = numbered(1, 5);
                        const auto restored = session.restore(std::nullopt, {});
                        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
                        const auto r = static_cast<uint64_t>(session.rank());
                        uint64_t from = r * (total / n) + std::min(r, total % n);
                        uint64_t share = total / n + (r < total % n ? 1 : 0);
                        if (later == ranks) std::tie(from, share) = std::pair(first[r], counts[r]);
                        EXPECT_EQ(items, numbered(from, share)) << "rank " << r;
                    }));
        }
    }
}

TEST(ListTest, TheProgramMaySayWhichRankGetsWhichItem) {
    Machines machines;
    run_job(job_on(machines, hosts_of(2, 2)), body_of([](Checkpointer& session, auto& items) {
                const auto r = static_cast<uint64_t>(session.rank());
                items = numbered(r * 25, 25);
                ASSERT_TRUE(session.save(1).ok());
            }));
    const auto restore = [&](int ranks, const ListOwner& owner, const auto& check) {
        run_job(job_on(machines, hosts_of(ranks, 1)), body_of([&](Checkpointer& session, auto& items) {
                    const Status set = session.set_list_owner("particles", owner);
                    ASSERT_TRUE(set.ok()) << set.to_string();
                    check(session, session.restore(std::nullopt, {}), items);
                }));
    };
    const ListOwner cyclic = [](uint64_t index, uint64_t items, int ranks) {
        EXPECT_EQ(items, 100u);
        return static_cast<int>(index / 3) % ranks;
    };
    for (const int ranks : {1, 3, 5})
        restore(ranks, cyclic, [&](Checkpointer& session, const auto& restored, const auto& items) {
            ASSERT_TRUE(restored.ok()) << restored.status().to_string();
            std::vector<Item> expected;
            for (uint64_t i = 0; i < 100; ++i)
                if (cyclic(i, 100, ranks) == session.rank()) expected.push_back(numbered(i, 1).front());
            EXPECT_EQ(items, expected) << "rank " << session.rank() << " of " << ranks;
        });
    const ListOwner last = [](uint64_t, uint64_t, int ranks) { return ranks - 1; };
    restore(3, last, [](Checkpointer& session, const auto& restored, const auto& items) {
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(items, numbered(0, session.rank() == 2 ? 100 : 0));
    });
    restore(4, last, [](Checkpointer& session, const auto& restored, const auto& items) {
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(items, numbered(static_cast<uint64_t>(session.rank()) * 25, 25)) << "as it was saved";
    });
    for (const int nobody : {-1, 3})
        restore(
            3, [nobody](uint64_t index, uint64_t, int) { return index == 60 ? nobody : 1; },
            [](Checkpointer&, const auto& restored, const auto&) {
                EXPECT_EQ(restored.status().code(), Code::invalid_argument);
                EXPECT_NE(restored.status().message().find("gives item 60 to rank"), std::string::npos);
            });
}

TEST(ListTest, OnlyAListHasAnOwner) {
    Machines machines;
    run_job(job_on(machines, hosts_of(1, 1)), [](int, Checkpointer* session, const Status& opened) {
        ASSERT_TRUE(opened.ok()) << opened.to_string();
        uint64_t plain = 0;
        ASSERT_TRUE(session->register_region("plain", &plain, sizeof plain).ok());
        const ListOwner first = [](uint64_t, uint64_t, int) { return 0; };
        EXPECT_EQ(session->set_list_owner("plain", first).code(), Code::invalid_argument);
        EXPECT_EQ(session->set_list_owner("nothing", first).code(), Code::not_found);
    });
}

TEST(ListTest, AReaderSeesOneArray) {
    Machines machines;
    run_job(job_on(machines, hosts_of(3, 1)), body_of([](Checkpointer& session, auto& items) {
                const auto r = static_cast<uint64_t>(session.rank());
                items = numbered(r * 10, 10);
                ASSERT_TRUE(session.save(1).ok());
                const auto waited = session.wait(1, std::chrono::minutes(1));
                ASSERT_TRUE(waited.ok()) << waited.to_string();
                const auto reader = session.open_epoch(std::nullopt, std::nullopt, false);
                ASSERT_TRUE(reader.ok()) << reader.status().to_string();
                const auto whole = (*reader)->array("particles");
                ASSERT_TRUE(whole.ok()) << whole.status().to_string();
                EXPECT_TRUE(whole->is_list);
                EXPECT_TRUE(whole->complete);
                EXPECT_EQ(whole->shape, (std::vector<uint64_t>{30, 3}));
                std::vector<Item> some(15);
                const Status read = (*reader)->read_box("particles", std::vector<uint64_t>{8, 0},
                                                        std::vector<uint64_t>{15, 3},
                                                        std::as_writable_bytes(std::span(some)));
                ASSERT_TRUE(read.ok()) << read.to_string();
                EXPECT_EQ(some, numbered(8, 15));
            }));
}

TEST(ListTest, ItemsOfAnotherKindAreRefusedWhileSavingAndRestoring) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    run_job(job, [](int rank, Checkpointer* session, const Status& opened) {
        ASSERT_TRUE(opened.ok()) << opened.to_string();
        auto items = numbered(0, 4);
        const ListItem item = rank == 0 ? item_type : ListItem{ElementType::uint64, 1};
        ASSERT_TRUE(session->register_list("particles", item, memory_of(items)).ok());
        ASSERT_TRUE(session->save(1).ok());
        const auto waited = session->wait(1, std::chrono::minutes(1));
        EXPECT_EQ(waited.code(), Code::invalid_argument) << waited.to_string();
        EXPECT_NE(waited.message().find("a list of uint64 [3]"), std::string::npos) << waited.message();
        (void)session->close();
    });
    run_job(job, body_of([](Checkpointer& session, auto& items) {
                items = numbered(0, 4);
                ASSERT_TRUE(session.save(2).ok());
            }));
    const auto refused = [](Checkpointer& session, auto&) {
        const auto restored = session.restore(std::nullopt, {});
        EXPECT_EQ(restored.status().code(), Code::invalid_argument);
        const auto wanted = "items of 3 x uint64, but is registered with items of 24 x bytes";
        EXPECT_NE(restored.status().message().find(wanted), std::string::npos) << restored.status().message();
    };
    for (const int ranks : {2, 3})
        run_job(job_on(machines, hosts_of(ranks, 1)), body_of(refused, {ElementType::bytes, sizeof(Item)}));
}

// The items of the ranks that are gone would be lost, or others' taken for a rank's own.
TEST(ListTest, AListIsRestoredAsAListOnly) {
    Machines machines;
    run_job(job_on(machines, hosts_of(4, 1)), body_of([](Checkpointer& session, auto& items) {
                items = numbered(0, 4);
                ASSERT_TRUE(session.save(1).ok());
            }));
    for (const int ranks : {2, 4})
        for (const bool as_array : {false, true})
            run_job(
                job_on(machines, hosts_of(ranks, 1)), [&](int, Checkpointer* session, const Status& opened) {
                    ASSERT_TRUE(opened.ok()) << opened.to_string();
                    auto items = numbered(0, 4);
                    const ArrayPiece piece{ElementType::uint64, {4, 3}, {0, 0}, {4, 3}, false, true};
                    const Status added = as_array ? session->register_array("particles", items.data(), piece)
                                                  : session->register_region("particles", items.data(),
                                                                             items.size() * sizeof(Item));
                    ASSERT_TRUE(added.ok()) << added.to_string();
                    const auto restored = session->restore(std::nullopt, {});
                    EXPECT_EQ(restored.status().code(), Code::invalid_argument);
                    EXPECT_NE(restored.status().message().find("was saved as a list"), std::string::npos);
                });
}

TEST(ListTest, HalfAnItemIsNotSaved) {
    Machines machines;
    run_job(job_on(machines, hosts_of(1, 1)), [](int, Checkpointer* session, const Status& opened) {
        ASSERT_TRUE(opened.ok()) << opened.to_string();
        std::vector<Item> items = numbered(0, 1);
        ASSERT_TRUE(session->register_list("x", {ElementType::uint64, 2}, memory_of(items)).ok());
        const Status saved = session->save(1);
        EXPECT_EQ(saved.code(), Code::invalid_argument);
        EXPECT_NE(saved.message().find("24 bytes, which are not a whole number of items of 16"),
                  std::string::npos)
            << saved.message();
    });
}

}  // namespace
}  // namespace tailrace::internal
