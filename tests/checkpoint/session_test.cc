// The checkpointer as a whole: life of an epoch, options, and what must be refused. Ranks are threads, storages
// are in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "checkpoint/cluster.h"
#include "format/catalog.h"

namespace tailrace {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds for_ever{0};
constexpr uint64_t newest_bytes = 50000;

// A rank's two regions, of which the second changes its size from epoch to epoch.
struct State {
    std::vector<std::byte> first, second;
};
uint64_t second_bytes(uint64_t epoch, int rank) { return (epoch * 7919 + static_cast<uint64_t>(rank) * 104729) % 40000; }

void fill(State& state, uint64_t epoch, int rank) {
    state.first = content(epoch, rank, 1, newest_bytes);
    state.second = content(epoch, rank, 2, second_bytes(epoch, rank));
}

void put(Checkpointer& session, State& state) {
    if (!session.update_region("first", state.first.data(), state.first.size()).ok()) {
        ASSERT_TRUE(session.register_region("first", state.first.data(), state.first.size()).ok());
        ASSERT_TRUE(session.register_region("second", state.second.data(), state.second.size()).ok());
        return;
    }
    ASSERT_TRUE(session.update_region("second", state.second.data(), state.second.size()).ok());
}

Status save(Checkpointer& session, State& state, uint64_t epoch) {
    fill(state, epoch, session.rank());
    put(session, state);
    return session.save(epoch);
}

// Restores `epoch` (or the newest, which must be `expected`) and compares every byte.
void expect_restored(Checkpointer& session, std::optional<uint64_t> epoch, uint64_t expected) {
    State wanted, state;
    fill(wanted, expected, session.rank());
    state.first.resize(wanted.first.size());
    state.second.resize(wanted.second.size());
    put(session, state);
    auto restored = session.restore(epoch, {});
    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
    EXPECT_EQ(*restored, expected);
    EXPECT_TRUE(state.first == wanted.first && state.second == wanted.second);
}

std::vector<std::string> shared_names(Machines& machines, const Config& config) {
    std::vector<std::string> names;
    auto entries = machines.shared->list(config.shared_dir);
    if (entries.ok())
        for (const auto& entry : *entries) names.push_back(entry.name);
    return names;
}

// One job whose ranks all do the same and must have opened.
void run(const Job& job, const std::function<void(Checkpointer&)>& body) {
    run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
        ASSERT_NE(session, nullptr) << "rank " << rank << ": " << opened.to_string();
        body(*session);
    });
}

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

}  // namespace
}  // namespace tailrace
