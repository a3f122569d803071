// A transport that fails in the background, at any node: nobody waits for what cannot come, and what was
// captured is there for the next session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/invariant.h"
#include "base/log.h"
#include "format/plan_record.h"
#include "ledger/agent_messages.h"
#include "session/sample_program.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

class BackgroundEndedTest : public testing::Test {
  protected:
    // What is logged on the way is meant.
    BackgroundEndedTest() { set_log_level(LogLevel::off); }
    ~BackgroundEndedTest() override { set_log_level(LogLevel::warning); }

    // Two ranks on each of three machines, all in one group, save three times and close. The number of ranks
    // that were told of a failure by wait_all.
    int save_three_times(const Job& job, Code code = Code::transport,
                         const std::string& sentence = "the network is gone") {
        std::atomic<int> failed{0};
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
                const auto saved = save(session, state, epoch);
                EXPECT_TRUE(saved.ok() || saved.code() == Code::failed_state) << saved.message();
            }
            const auto waited = session.wait_all(for_ever);
            if (!waited.ok()) {
                ++failed;
                EXPECT_EQ(waited.code(), code) << waited.message();
                EXPECT_THAT(waited.message(), HasSubstr(sentence));
                if (code == Code::transport) {
                    EXPECT_THAT(waited.message(), HasSubstr("intact"));
                }
            }
            const auto closed = session.close();
            EXPECT_EQ(closed.code(), code) << closed.message();
        });
        return failed;
    }

    void expect_everything_restored() {
        run(job_on(machines, hosts_of(3, 2)), [&](Checkpointer& session) {
            expect_restored(session, std::nullopt, 3);
            EXPECT_TRUE(session.close().ok());
        });
    }

    Job job() {
        auto job = job_on(machines, hosts_of(3, 2));
        job.config.files = 1;
        return job;
    }

    Machines machines;
};

constexpr int agents[] = {0, 2, 4};

TEST_F(BackgroundEndedTest, TransfersThatFailAreHeardOfByAllRanksAndTheNextSessionGoesOn) {
    for (const int broken : agents) {
        SCOPED_TRACE(broken);
        machines = Machines();
        auto breaking = job();
        breaking.breaks = [&](int rank, TransportCall kind, uint64_t) {
            return rank == broken && kind == TransportCall::transfer;
        };
        EXPECT_EQ(save_three_times(breaking), 6);
        expect_everything_restored();
    }
}

// As a defect of ours would: it is thrown in the thread of an agent, or of a rank that saves.
TEST_F(BackgroundEndedTest, ABrokenInvariantFailsTheSessionWithItsSentenceAndTheNextOneGoesOn) {
    on_broken_invariant(nullptr);  // as in a program
    for (const auto kind : {TransportCall::transfer, TransportCall::post})
        for (const int broken : agents) {
            SCOPED_TRACE(broken);
            machines = Machines();
            auto breaking = job();
            std::atomic<bool> holds{true};
            breaking.breaks = [&](int rank, TransportCall call, uint64_t) {
                INVARIANT(rank != broken || call != kind || !holds.exchange(false));
                return false;
            };
            EXPECT_EQ(save_three_times(breaking, Code::failed_state, "does not hold"), 6);
            expect_everything_restored();
        }
}

TEST_F(BackgroundEndedTest, OnePostThatFailsEndsItForAllRanks) {
    for (const int broken : agents)
        for (const uint64_t bad_call : {0u, 1u, 2u, 4u, 7u}) {
            SCOPED_TRACE(testing::Message() << "rank " << broken << ", call " << bad_call);
            machines = Machines();
            auto breaking = job();
            breaking.breaks = [&](int rank, TransportCall, uint64_t calls) {
                return rank == broken && calls == bad_call;
            };
            EXPECT_GT(save_three_times(breaking), 0);
            expect_everything_restored();
        }
}

TEST_F(BackgroundEndedTest, ARankWhosePostFailsHoldsNobodyUp) {
    for (const uint64_t bad_call : {0u, 1u, 2u}) {
        SCOPED_TRACE(bad_call);
        machines = Machines();
        auto breaking = job();
        breaking.breaks = [&](int rank, TransportCall, uint64_t calls) {
            return rank == 1 && calls == bad_call;
        };
        run(breaking, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) (void)save(session, state, epoch);
            EXPECT_EQ(session.wait_all(for_ever).code(), Code::transport);
            EXPECT_EQ(session.close().code(), Code::transport);
        });
        expect_everything_restored();
    }
}

// Nobody hears of it before close, where collectives still work.
TEST_F(BackgroundEndedTest, ANodeThatCanSendNothingHoldsNobodyUpInClose) {
    auto breaking = job();
    breaking.breaks = [](int rank, TransportCall, uint64_t calls) { return rank == 2 && calls >= 3; };
    run(breaking, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        if (session.rank() == 2) {
            EXPECT_EQ(session.wait_all(for_ever).code(), Code::transport);
        }
        EXPECT_EQ(session.close().code(), Code::transport);
    });
    run(job(), [&](Checkpointer& session) { expect_restored(session, std::nullopt, 2); });
}

// A transport in which one rank's posts are changed on the way.
class ChangingTransport : public BreakingTransport {
  public:
    using Change = std::function<void(AgentMessage& message)>;
    ChangingTransport(std::unique_ptr<Transport> inner, Change change)
        : BreakingTransport(*inner, [](auto, auto) { return false; }),
          inner_(std::move(inner)),
          change_(std::move(change)) {}
    Status post(int target, std::span<const std::byte> bytes) override {
        auto message = decode_agent_message(bytes);
        if (!message.ok()) return BreakingTransport::post(target, bytes);  // the aggregator's
        change_(*message);
        return BreakingTransport::post(target, encode(*message));
    }

  private:
    const std::unique_ptr<Transport> inner_;
    const Change change_;
};

TEST_F(BackgroundEndedTest, AMessageThatCannotBeIsRefusedWithASentence) {
    const auto save_changed = [&](int rank, const std::string& sentence,
                                  const ChangingTransport::Change& change) {
        SCOPED_TRACE(sentence);
        machines = Machines();
        auto changing = job();
        changing.connect = [&](const std::vector<std::string>& hosts, bool concurrent) {
            auto transports = make_in_process_transports(hosts, concurrent);
            auto& one = transports[static_cast<size_t>(rank)];
            one = std::make_unique<ChangingTransport>(std::move(one), change);
            return transports;
        };
        EXPECT_EQ(save_three_times(changing, Code::transport, sentence), 6);
        expect_everything_restored();
    };
    save_changed(2, "rank 2 of node 1 sent a message that is about node 77", [](AgentMessage& message) {
        if (auto* captured = std::get_if<NodeCaptured>(&message)) captured->node = 77;
    });
    save_changed(4, "rank 4 of node 2 sent a message that is about node 1", [](AgentMessage& message) {
        if (auto* flushed = std::get_if<NodeFlushed>(&message)) flushed->node.node = 1;
    });
    save_changed(3, "rank 3 of node 1 told node 1 of a capture of rank 5", [](AgentMessage& message) {
        if (auto* captured = std::get_if<Captured>(&message)) captured->stream.rank = 5;
    });
    save_changed(4, "rank 4 of node 2 sent an order that only rank 0 gives", [](AgentMessage& message) {
        if (auto* verified = std::get_if<NodePrepared>(&message)) message = MayCommit{verified->key};
    });
    // Twice the same: neither is taken for another's.
    save_changed(3, "rank 3 told node 1 of its save number 1 after its save number 1",
                 [](AgentMessage& message) {
                     if (auto* captured = std::get_if<Captured>(&message)) captured->sequence = 0;
                 });
    save_changed(4, "node 2 told of its capture of save number 1 after save number 1",
                 [](AgentMessage& message) {
                     if (auto* captured = std::get_if<NodeCaptured>(&message)) captured->sequence = 0;
                 });
    save_changed(4, "node 2 told node 0 of the arrays of", [](AgentMessage& message) {
        if (auto* fits = std::get_if<NodePrepared>(&message)) message = ArraysAnswered{fits->key, {}};
    });
}

// A shared storage that holds back the final names until it is told to give them.
class HeldNames : public MemoryStorage {
  public:
    Status rename(const std::string& from, const std::string& to) override {
        began = true;
        began.notify_all();
        given.wait(false);
        return MemoryStorage::rename(from, to);
    }
    std::atomic<bool> began{false}, given{false};
};

// Node 1 loses its transport while the root gives an epoch, which all groups have committed, its names.
TEST_F(BackgroundEndedTest, AnEpochThatIsBeingNamedIsCommittedForEverybody) {
    auto breaking = job_on(machines, hosts_of(2, 2));
    breaking.config.files = 1;
    auto names = std::make_shared<HeldNames>();
    breaking.shared = names;
    std::atomic<bool> broken{false};
    breaking.breaks = [&](int rank, TransportCall, uint64_t) { return rank == 2 && broken.exchange(false); };
    run(breaking, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        names->began.wait(false);
        if (session.rank() == 2) broken = true;
        ASSERT_TRUE(save(session, state, 2).ok());
        if (session.rank() == 2) {
            while (broken) std::this_thread::yield();
            names->given = true;
            names->given.notify_all();
        }
        EXPECT_EQ(session.wait_all(for_ever).code(), Code::transport);
        EXPECT_EQ(session.state(1)->state, EpochState::committed) << session.state(1)->why.to_string();
        EXPECT_EQ(session.state(2)->state, EpochState::failed);
        EXPECT_EQ(session.close().code(), Code::transport);
    });
}

TEST_F(BackgroundEndedTest, SavingGoesOnInTheNodeLocalTierAndKeepsNoMoreThanItShould) {
    auto breaking = job();
    breaking.config.keep_local = 2;
    breaking.breaks = [&](int rank, TransportCall, uint64_t calls) { return rank == 2 && calls == 3; };
    run(breaking, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 12; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        EXPECT_EQ(session.wait_all(for_ever).code(), Code::transport);
        for (uint64_t epoch = 13; epoch <= 20; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        EXPECT_EQ(session.state(20)->state, EpochState::failed);
        EXPECT_THAT(session.state(20)->why.message(), HasSubstr("the background has ended"));
    });
    for (const auto& [host, storage] : machines.local) {
        auto nodes = storage->list(breaking.config.local_dir);
        ASSERT_TRUE(nodes.ok());
        for (const auto& node : *nodes) {
            auto parts = storage->list(join_path(breaking.config.local_dir, node.name));
            ASSERT_TRUE(parts.ok());
            // There may be a plan record as well, if an epoch was captured on all nodes in time.
            const auto count = std::count_if(parts->begin(), parts->end(), [](const DirectoryEntry& entry) {
                return !parse_plan_file_name(entry.name);
            });
            // Two ranks: the newest epoch known to be whole, keep_local and one more of which it is not
            // known.
            EXPECT_LE(count, 2 * (1 + 2 + 1)) << host;
        }
    }
    run(job_on(machines, hosts_of(3, 2)),
        [&](Checkpointer& session) { expect_restored(session, std::nullopt, 20); });
}

}  // namespace
}  // namespace tailrace::internal
