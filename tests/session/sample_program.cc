#include "session/sample_program.h"

#include <gtest/gtest.h>

namespace tailrace::internal::testing_support {

uint64_t second_bytes(uint64_t epoch, int rank) {
    return (epoch * 7919 + static_cast<uint64_t>(rank) * 104729) % 40000;
}

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

void run(const Job& job, const std::function<void(Checkpointer&)>& body) {
    run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
        ASSERT_NE(session, nullptr) << "rank " << rank << ": " << opened.to_string();
        body(*session);
    });
}

}  // namespace tailrace::internal::testing_support
