// The checkpointer as a whole: life of an epoch, options, and what must be refused. Ranks are threads,
// storages are in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "catalog/catalog.h"
#include "session/sample_program.h"
#include "threads/no_threads.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SessionTest, OneRankSavesAndRestoresInALaterSession) {
    Machines machines;
    auto job = job_on(machines, {"m"});
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch : {3u, 4u, 9u}) ASSERT_TRUE(save(session, state, epoch).ok());
        EXPECT_TRUE(session.wait(9, for_ever).ok());
        auto info = session.state(9);
        ASSERT_TRUE(info.ok());
        EXPECT_EQ(info->state, EpochState::committed);
        EXPECT_EQ(info->run, 1u);
        EXPECT_EQ(info->captured_bytes, newest_bytes + second_bytes(9, 0));
        EXPECT_EQ(session.state(8)->state, EpochState::unknown);
        EXPECT_EQ(session.wait(8, for_ever).code(), Code::not_found);
        EXPECT_TRUE(session.close().ok());
        EXPECT_TRUE(session.close().ok());
        EXPECT_EQ(session.save(10).code(), Code::failed_state);
    });
    EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(3 * job.config.files));
    run(job, [&](Checkpointer& session) {
        expect_restored(session, std::nullopt, 9);
        expect_restored(session, 4, 4);
        auto list = session.list();
        ASSERT_TRUE(list.ok());
        ASSERT_EQ(list->size(), 3u);
        EXPECT_EQ((*list)[0].epoch, 9u);
        EXPECT_TRUE((*list)[0].in_shared);
        EXPECT_TRUE((*list)[0].in_local);
        EXPECT_FALSE((*list)[2].in_local);
    });
}

TEST(SessionTest, EveryLayoutRoundTripsFromEitherTier) {
    for (const bool concurrent : {true, false})
        for (const auto& [nodes, per_node, files, leaders] :
             {std::tuple{1, 4, 1, 1}, {4, 2, 2, 1}, {4, 2, 1, 2}, {3, 1, 2, 1}, {2, 3, 5, 1}, {8, 1, 3, 2}}) {
            SCOPED_TRACE(testing::Message() << nodes << " nodes of " << per_node << ", K = " << files
                                            << ", leaders " << leaders << ", concurrent " << concurrent);
            Machines machines;
            auto job = job_on(machines, hosts_of(nodes, per_node));
            job.concurrent = concurrent;
            job.config.files = static_cast<uint32_t>(files);
            job.config.leaders_per_file = static_cast<uint32_t>(leaders);
            run(job, [&](Checkpointer& session) {
                State state;
                for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
                    const auto saved = save(session, state, epoch);
                    ASSERT_TRUE(saved.ok()) << saved.to_string();
                }
                const auto waited = session.wait_all(for_ever);
                ASSERT_TRUE(waited.ok()) << waited.to_string();
                for (uint64_t epoch = 1; epoch <= 3; ++epoch)
                    EXPECT_EQ(session.state(epoch)->state, EpochState::committed);
                expect_restored(session, std::nullopt, 3);
                EXPECT_TRUE(session.close().ok());
            });
            EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(3 * job.config.files));
            run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 3); });
            machines.local.clear();  // every node is lost
            for (const auto& host : job.hosts) machines.local_of(host);
            run(job, [&](Checkpointer& session) {
                expect_restored(session, std::nullopt, 3);
                expect_restored(session, 1, 1);
            });
        }
}

// ---- restore ---------------------------------------------------------------------------------------------

TEST(SessionTest, NothingToRestoreIsNotFound) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    run(job, [&](Checkpointer& session) {
        EXPECT_EQ(session.restore(std::nullopt, {}).status().code(), Code::not_found);
        EXPECT_EQ(session.open_epoch(std::nullopt, std::nullopt, true).status().code(), Code::not_found);
        EXPECT_EQ(session.restore(7, {}).status().code(), Code::not_found);
        EXPECT_TRUE(session.list()->empty());
    });
}

// Else a program would begin anew because of a mistyped number.
TEST(SessionTest, AnEpochThatIsNotThereIsNoFirstRunWhereOthersAre) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 5; epoch <= 6; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        const auto restored = session.restore(7, {}).status();
        EXPECT_EQ(restored.code(), Code::invalid_argument);
        EXPECT_THAT(restored.message(), HasSubstr("there is no complete epoch 7 of job job"));
        EXPECT_THAT(restored.message(), HasSubstr("there are 5, 6"));
        EXPECT_EQ(session.open_epoch(7, std::nullopt, false).status().code(), Code::invalid_argument);
        EXPECT_EQ(session.open_epoch(std::nullopt, 5, false).status().code(), Code::not_found);
    });
}

// not_found means a first run to a program; it must not begin anew because a name is misspelt.
TEST(SessionTest, ARegionOrRankThatTheEpochDoesNotHaveIsNotAFirstRun) {
    Machines machines;
    run(job_on(machines, hosts_of(2, 1)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(session.close().ok());
    });
    for (const bool nodes_lost : {false, true}) {
        if (nodes_lost) machines.local.clear();
        run(job_on(machines, hosts_of(2, 1)), [&](Checkpointer& session) {
            std::vector<std::byte> memory(newest_bytes);
            ASSERT_TRUE(session.register_region("frist", memory.data(), memory.size()).ok());
            const auto restored = session.restore(std::nullopt, {});
            EXPECT_EQ(restored.status().code(), Code::invalid_argument);
            EXPECT_THAT(restored.status().message(), HasSubstr("'first'"));
        });
        run(job_on(machines, hosts_of(3, 1)), [&](Checkpointer& session) {
            State state;
            fill(state, 1, session.rank());
            put(session, state);
            const auto restored = session.restore(std::nullopt, {});
            EXPECT_EQ(restored.status().code(), Code::invalid_argument);
            EXPECT_THAT(restored.status().message(), HasSubstr("rank 2 did not exist"));
        });
    }
}

TEST(SessionTest, ASharedDirectoryThatCannotBeListedIsNotAFirstRun) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    const auto faulty = std::make_shared<FaultyStorage>(machines.shared, 1);
    job.shared = faulty;
    run_job(job, [&](int, Checkpointer* session, const Status& opened) {
        ASSERT_TRUE(opened.ok()) << opened.to_string();
        FaultPlan plan;
        plan.list_error = 1;
        faulty->set_plan(plan);
        const auto restored = session->restore(std::nullopt, {});
        EXPECT_EQ(restored.status().code(), Code::io_error) << restored.status().to_string();
        EXPECT_THAT(restored.status().message(), HasSubstr(job.config.shared_dir));
    });
}

void damage(Storage& storage, const std::string& path, uint64_t from_end) {
    auto file = storage.open(path, {Access::write, DirectIo::off});
    ASSERT_TRUE(file.ok());
    const uint64_t at = (*file)->size().value() - from_end;
    std::vector<std::byte> bytes(16);
    ASSERT_TRUE((*file)->read_at(bytes, at).ok());
    for (auto& byte : bytes) byte ^= std::byte{0x55};
    ASSERT_TRUE((*file)->write_at(bytes, at).ok() && (*file)->sync().ok());
}

TEST(SessionTest, DamageInOneTierIsServedByTheOtherAndInBothByAnOlderEpoch) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.files = 1;
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    auto& local = *machines.local.at("m1");
    const auto node = "/local/" + local.list("/local").value()[0].name;
    damage(local, join_path(node, to_string(PartFileName{"job", {2, 1}, 1, false})), 5000);
    run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 2); });
    // Both ranks' streams are hit, whichever came first into the file.
    const auto path = join_path(job.config.shared_dir, to_string(SharedFileName{"job", {2, 1}, 0, 1, false}));
    const uint64_t data = data_offset(read_shared_head(*machines.shared, path)->header);
    auto shared_file = machines.shared->open(path, {Access::read, DirectIo::off});
    const uint64_t data_bytes = (*shared_file)->size().value() - data;
    for (uint64_t at = 5000; at < data_bytes; at += 5000) damage(*machines.shared, path, at);
    run(job, [&](Checkpointer& session) {
        // The region whose size stays: another size would be the caller's mistake.
        State state;
        fill(state, 2, session.rank());
        put(session, state);
        const std::vector<std::string> first{"first"};
        const auto older = session.restore(std::nullopt, first);
        ASSERT_TRUE(older.ok()) << older.status().to_string();
        EXPECT_EQ(*older, 1u);
        EXPECT_TRUE(state.first == content(1, session.rank(), 1, newest_bytes));
        const auto asked = session.restore(2, {});
        EXPECT_EQ(asked.status().code(), Code::corrupt) << asked.status().to_string();
        auto verified = session.open_epoch(std::nullopt, std::nullopt, true);
        ASSERT_TRUE(verified.ok());
        EXPECT_EQ((*verified)->key().epoch, 1u);
    });
}

TEST(SessionTest, AMissingFileIsNamed) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
    });
    const auto lost = to_string(SharedFileName{"job", {1, 1}, 1, 2, false});
    ASSERT_TRUE(machines.shared->remove(join_path(job.config.shared_dir, lost)).ok());
    machines.local.clear();
    for (const auto& host : job.hosts) machines.local_of(host);
    run(job, [&](Checkpointer& session) {
        State state;
        fill(state, 1, session.rank());
        put(session, state);
        const auto restored = session.restore(std::nullopt, {});
        EXPECT_EQ(restored.status().code(), Code::corrupt) << restored.status().to_string();
        EXPECT_THAT(restored.status().message(), HasSubstr("2of2"));
    });
    EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(1));  // what is left is left as it is
}

TEST(SessionTest, AnArrayRestoresInAnyDecompositionOnAnyNumberOfRanks) {
    constexpr uint64_t rows = 40, columns = 30;
    auto piece_of = [](int rank, int count, bool by_rows) {
        ArrayPiece piece;
        piece.type = ElementType::uint32;
        piece.global_shape = {rows, columns};
        const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(count);
        const uint64_t whole = by_rows ? rows : columns;
        const uint64_t from = whole * r / n, to = whole * (r + 1) / n;
        piece.offset = by_rows ? std::vector<uint64_t>{from, 0} : std::vector<uint64_t>{0, from};
        piece.local_shape =
            by_rows ? std::vector<uint64_t>{to - from, columns} : std::vector<uint64_t>{rows, to - from};
        return piece;
    };
    auto values_of = [](const ArrayPiece& piece) {
        std::vector<uint32_t> values;
        for (uint64_t i = 0; i < piece.local_shape[0]; ++i)
            for (uint64_t j = 0; j < piece.local_shape[1]; ++j)
                values.push_back(
                    static_cast<uint32_t>((piece.offset[0] + i) * columns + piece.offset[1] + j));
        return values;
    };
    Machines machines;
    auto job = job_on(machines, hosts_of(4, 2));
    run(job, [&](Checkpointer& session) {
        const auto piece = piece_of(session.rank(), 8, true);
        auto values = values_of(piece);
        ASSERT_TRUE(session.register_array("grid", values.data(), piece).ok());
        ASSERT_TRUE(session.save(1).ok());
        ASSERT_TRUE(session.close().ok());
    });
    for (const auto& [nodes, per_node, by_rows] :
         {std::tuple{4, 2, true}, {4, 2, false}, {5, 1, true}, {1, 3, false}, {2, 6, false}}) {
        auto later = job_on(machines, hosts_of(nodes, per_node));
        const int count = nodes * per_node;
        run(later, [&, by_columns = !by_rows](Checkpointer& session) {
            const auto piece = piece_of(session.rank(), count, !by_columns);
            const auto wanted = values_of(piece);
            std::vector<uint32_t> values(wanted.size());
            ASSERT_TRUE(session.register_array("grid", values.data(), piece).ok());
            const auto restored = session.restore(std::nullopt, {});
            ASSERT_TRUE(restored.ok()) << restored.status().to_string();
            EXPECT_EQ(values, wanted);
        });
    }
}

TEST(SessionTest, AReaderReadsOtherRanksRegionsAndOlderEpochs) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    auto smaller = job_on(machines, hosts_of(3, 1));
    run(smaller, [&](Checkpointer& session) {
        for (const bool verify : {false, true}) {
            auto reader =
                session.open_epoch(std::nullopt, verify ? std::optional<uint64_t>(2) : std::nullopt, verify);
            ASSERT_TRUE(reader.ok()) << reader.status().to_string();
            const uint64_t epoch = verify ? 1 : 2;
            EXPECT_EQ((*reader)->key().epoch, epoch);
            EXPECT_EQ((*reader)->rank_count(), 4u);
            for (int rank = 0; rank < 4; ++rank) {
                const auto wanted = content(epoch, rank, 2, second_bytes(epoch, rank));
                auto bytes = (*reader)->region_bytes(static_cast<uint32_t>(rank), "second");
                ASSERT_TRUE(bytes.ok());
                ASSERT_EQ(*bytes, wanted.size());
                std::vector<std::byte> got(*bytes);
                const RegionTarget target{"second", got};
                ASSERT_TRUE((*reader)->read_regions(static_cast<uint32_t>(rank), {&target, 1}).ok());
                EXPECT_TRUE(got == wanted);
            }
        }
        // Plain regions belong to their rank; another size is refused without a fall-back.
        std::vector<std::byte> wrong(10);
        ASSERT_TRUE(session.register_region("first", wrong.data(), wrong.size()).ok());
        EXPECT_EQ(session.restore(std::nullopt, {}).status().code(), Code::invalid_argument);
    });
}

// ---- what is refused
// ---------------------------------------------------------------------------------------

TEST(SessionTest, BadRegionsAreRefusedWithASentence) {
    Machines machines;
    run(job_on(machines, {"m"}), [&](Checkpointer& session) {
        std::vector<std::byte> memory(100);
        EXPECT_TRUE(session.register_region("a", memory.data(), memory.size()).ok());
        const auto twice = session.register_region("a", memory.data(), memory.size());
        EXPECT_EQ(twice.code(), Code::already_exists);
        EXPECT_THAT(twice.message(), HasSubstr("\"a\""));
        EXPECT_EQ(session.register_region("b", nullptr, 5).code(), Code::invalid_argument);
        EXPECT_TRUE(session.register_region("empty", nullptr, 0).ok());
        EXPECT_EQ(session.register_region("", memory.data(), 5).code(), Code::invalid_argument);
        EXPECT_EQ(session.register_region(std::string(5000, 'x'), memory.data(), 5).code(),
                  Code::invalid_argument);
        EXPECT_EQ(session.update_region("c", memory.data(), 5).code(), Code::not_found);
        EXPECT_EQ(session.unregister("c").code(), Code::not_found);
        ArrayPiece piece{ElementType::float64, {10}, {5}, {6}};
        EXPECT_EQ(session.register_array("array", memory.data(), piece).code(), Code::invalid_argument);
        EXPECT_TRUE(session.save(1).ok());
        EXPECT_TRUE(session.unregister("a").ok());
        EXPECT_TRUE(session.save(2).ok());
        const std::vector<std::string> unknown{"a"};
        EXPECT_EQ(session.restore(std::nullopt, unknown).status().code(), Code::invalid_argument);
    });
}

TEST(SessionTest, EpochsMustAscend) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 1));
        job.concurrent = concurrent;
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 5).ok());
            EXPECT_EQ(save(session, state, 5).code(), Code::already_exists);
            EXPECT_EQ(save(session, state, 4).code(), Code::failed_state);
            EXPECT_EQ(save(session, state, UINT64_MAX).code(), Code::invalid_argument);
            ASSERT_TRUE(save(session, state, 6).ok());
            EXPECT_TRUE(session.wait_all(for_ever).ok());
            EXPECT_EQ(session.state(5)->state, EpochState::committed);
            EXPECT_EQ(session.state(6)->state, EpochState::committed);
            EXPECT_TRUE(session.close().ok());
        });
    }
}

TEST(SessionTest, RanksThatSaveDifferentEpochsFailAndGoOn) {
    for (const bool same_node : {true, false})
        for (const bool concurrent : {true, false})
            for (const uint32_t files : {1u, 2u}) {
                SCOPED_TRACE(testing::Message() << same_node << concurrent << files);
                Machines machines;
                auto job = job_on(machines, same_node ? hosts_of(1, 2) : hosts_of(2, 1));
                job.concurrent = concurrent;
                job.config.files = files;
                run(job, [&](Checkpointer& session) {
                    State state;
                    ASSERT_TRUE(save(session, state, 1).ok());
                    const uint64_t mine = session.rank() == 0 ? 2 : 3;
                    ASSERT_TRUE(save(session, state, mine).ok());
                    const auto failed = session.wait(mine, for_ever);
                    EXPECT_EQ(failed.code(), Code::invalid_argument) << failed.to_string();
                    EXPECT_THAT(failed.message(),
                                AllOf(HasSubstr("2"), HasSubstr("3"), HasSubstr("same epoch")));
                    ASSERT_TRUE(save(session, state, 4).ok());
                    EXPECT_TRUE(session.wait(4, for_ever).ok());
                    expect_restored(session, std::nullopt, 4);
                    EXPECT_EQ(session.close().code(), Code::invalid_argument);
                });
                EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * files));
            }
}

TEST(SessionTest, ARankThatSavedLessOftenDoesNotHoldUpTheOthersAtTheEnd) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        if (session.rank() == 3) {
            EXPECT_FALSE(session.close().ok());
            return;
        }
        ASSERT_TRUE(save(session, state, 2).ok());
        EXPECT_FALSE(session.close().ok());
        EXPECT_EQ(session.state(1)->state, EpochState::committed);
        EXPECT_EQ(session.state(2)->state, EpochState::failed);
    });
}

TEST(SessionTest, RanksThatAskForDifferentEpochsAreRefusedAndStayInStep) {
    Machines machines;
    run(job_on(machines, hosts_of(2, 1)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(save(session, state, 2).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        for (const auto& other : {std::optional<uint64_t>(1), std::optional<uint64_t>(99)}) {
            const auto mine = session.rank() == 0 ? other : std::nullopt;
            const auto refused = session.restore(mine, {});
            EXPECT_EQ(refused.status().code(), Code::invalid_argument);
            EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
            const auto before = session.rank() == 0 ? std::optional<uint64_t>(2) : std::nullopt;
            EXPECT_EQ(session.open_epoch(std::nullopt, before, false).status().code(),
                      Code::invalid_argument);
        }
        expect_restored(session, std::nullopt, 2);
    });
}

// More often than the queue has room, so that they wait in save; and whole nodes, so that what they captured
// is whole there, and a flush of it has begun.
TEST(SessionTest, ANodeThatSavedLessOftenDoesNotHoldUpTheOthersInSave) {
    for (const auto policy : {QueuePolicy::wait, QueuePolicy::skip, QueuePolicy::drop_oldest})
        for (const int last_to_save : {0, 1}) {
            SCOPED_TRACE(testing::Message() << static_cast<int>(policy) << last_to_save);
            Machines machines;
            auto job = job_on(machines, hosts_of(2, 1));
            job.config.queue_policy = policy;
            run(job, [&](Checkpointer& session) {
                State state;
                ASSERT_TRUE(save(session, state, 1).ok());
                ASSERT_TRUE(session.wait(1, for_ever).ok());
                const uint64_t last = session.rank() == last_to_save ? 6 : 1;
                for (uint64_t epoch = 2; epoch <= last; ++epoch)
                    EXPECT_TRUE(save(session, state, epoch).ok());
                EXPECT_EQ(session.close().code(), Code::failed_state);
                EXPECT_EQ(session.state(1)->state, EpochState::committed);
                if (session.rank() == last_to_save) {
                    EXPECT_EQ(session.state(2)->state, EpochState::failed);
                    EXPECT_EQ(session.state(6)->state, EpochState::failed);
                }
            });
            EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(job.config.files));
        }
}

TEST(SessionTest, DifferentSettingsAreRefusedByName) {
    Machines machines;
    auto job = job_on(machines, hosts_of(3, 1));
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"files", "3"},
                                     {"queue_policy", "skip"},
                                     {"shared_dir", "/another place"}}) {
        job.change_config = [&, name = key, text = value](int rank, Config& config) {
            if (rank != 2) return;
            ASSERT_TRUE(set_config(config, name, text).ok());
        };
        run_job(job, [&, name = key](int, Checkpointer* session, const Status& opened) {
            EXPECT_EQ(session, nullptr);
            EXPECT_EQ(opened.code(), Code::invalid_argument);
            EXPECT_THAT(opened.message(), AllOf(HasSubstr("setting " + name + " "), HasSubstr("0 and 2")));
        });
    }
}

TEST(SessionTest, ASecondSessionOnADirectoryIsBusy) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    std::atomic<bool> tried{false};
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        if (session.rank() == 0) {
            Machines other;
            auto second = job_on(other, {"elsewhere"});
            second.shared = machines.shared;
            run_job(second, [&](int, Checkpointer* opened, const Status& status) {
                EXPECT_EQ(opened, nullptr);
                EXPECT_EQ(status.code(), Code::busy);
                EXPECT_THAT(status.message(), HasSubstr("one session at a time"));
            });
            tried = true;
        }
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_TRUE(tried);
    run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 1); });
}

TEST(SessionTest, AFileInTheWayOfADirectoryIsAnErrorOnEveryRank) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    ASSERT_TRUE(machines.shared->open("/file", {Access::write, DirectIo::off}).ok());
    job.config.shared_dir = "/file/below";
    run_job(job, [&](int, Checkpointer* session, const Status& opened) {
        EXPECT_EQ(session, nullptr);
        EXPECT_THAT(opened.message(), HasSubstr("/file"));
    });
}

TEST(SessionTest, AFullLocalTierFailsTheEpochOnEveryRankAndNothingElse) {
    for (const bool offer_map : {false, true})
        for (const bool concurrent : {true, false}) {
            SCOPED_TRACE(testing::Message() << "map " << offer_map << ", concurrent " << concurrent);
            Machines machines;
            machines.local_options.offer_map = offer_map;
            auto job = job_on(machines, hosts_of(2, 1));
            job.concurrent = concurrent;
            run(job, [&](Checkpointer& session) {
                State state;
                ASSERT_TRUE(save(session, state, 1).ok());
                ASSERT_TRUE(session.wait_all(for_ever).ok());
                auto& local = *machines.local.at("m1");
                if (session.rank() == 1) local.set_capacity(local.used_bytes() + 20000);
                const auto saved = save(session, state, 2);
                if (session.rank() == 1) {
                    EXPECT_EQ(saved.code(), Code::no_space) << saved.to_string();
                    EXPECT_THAT(saved.message(),
                                AllOf(HasSubstr("needs"), HasSubstr("free"), HasSubstr("intact")));
                    local.set_capacity(UINT64_MAX);
                } else {
                    EXPECT_TRUE(saved.ok());
                }
                const auto failed = session.wait(2, for_ever);
                EXPECT_EQ(failed.code(), Code::no_space) << failed.to_string();
                EXPECT_EQ(session.state(1)->state, EpochState::committed);
                expect_restored(session, std::nullopt, 1);
                ASSERT_TRUE(save(session, state, 3).ok());
                EXPECT_TRUE(session.wait(3, for_ever).ok());
                expect_restored(session, std::nullopt, 3);
                EXPECT_FALSE(session.close().ok());
            });
        }
}

TEST(SessionTest, AnEpochThatOneRankGivesUpFailsOnEveryRankAndNothingElse) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            const Status odd(Code::invalid_argument, "an odd object");
            if (session.rank() == 3)
                EXPECT_EQ(session.give_up(2, odd).code(), odd.code());
            else
                EXPECT_TRUE(save(session, state, 2).ok());
            const auto failed = session.wait(2, for_ever);
            EXPECT_EQ(failed.code(), odd.code());
            EXPECT_THAT(failed.message(), HasSubstr(odd.message()));
            ASSERT_TRUE(save(session, state, 3).ok());
            EXPECT_TRUE(session.wait(3, for_ever).ok());
            expect_restored(session, std::nullopt, 3);
            EXPECT_FALSE(session.close().ok());
        });
    }
}

TEST(SessionTest, AgentsStayWithinTheirBuffers) {
    Machines machines;
    auto job = job_on(machines, hosts_of(4, 1));
    job.config.files = 1;
    run(job, [&](Checkpointer& session) {
        std::vector<std::byte> large(2 * MiB);
        ASSERT_TRUE(session.register_region("large", large.data(), large.size()).ok());
        for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(session.save(epoch).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        EXPECT_GT(session.agent_bytes(), 0u);
        EXPECT_LE(session.agent_bytes(), job.config.buffers * job.config.buffer_bytes);
    });
}

TEST(SessionTest, WithoutThreadsOpenFailsWithASentence) {
    NoThreads none;
    Machines machines;
    auto opened =
        Checkpointer::open(small_config(), make_single_transport(), machines.local_of("m0"), machines.shared);
    ASSERT_FALSE(opened.ok());
    EXPECT_THAT(opened.status().message(), HasSubstr("starting the threads of the background"));
}

TEST(SessionTest, RanksThatWantDifferentThingsOfAnEpochAreToldSo) {
    Machines machines;
    run(job_on(machines, hosts_of(2, 1)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        const auto reader = session.restore_and_use(std::nullopt, session.rank() == 0, {});
        EXPECT_EQ(reader.status().code(), Code::invalid_argument);
        EXPECT_THAT(reader.status().message(), HasSubstr("what any rank saved of the newest epoch"));
    });
}

}  // namespace
}  // namespace tailrace::internal
