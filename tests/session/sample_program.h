// A program with little state, as tests of the checkpointer run it: two regions per rank, of which the second
// changes its size from epoch to epoch; every byte follows from epoch, rank and region.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/cluster.h"

namespace tailrace::internal::testing_support {

constexpr std::chrono::milliseconds for_ever{0};
constexpr uint64_t newest_bytes = 50000;  // of the first region

struct State {
    std::vector<std::byte> first, second;
};
uint64_t second_bytes(uint64_t epoch, int rank);

void fill(State& state, uint64_t epoch, int rank);
// Registers the regions, or tells the session where they are now.
void put(Checkpointer& session, State& state);
Status save(Checkpointer& session, State& state, uint64_t epoch);

// Restores `epoch` (or the newest, which must be `expected`) and compares every byte.
void expect_restored(Checkpointer& session, std::optional<uint64_t> epoch, uint64_t expected);

// What lies in the shared directory.
std::vector<std::string> shared_names(Machines& machines, const Config& config);

// One job whose ranks all do the same and must have opened.
void run(const Job& job, const std::function<void(Checkpointer&)>& body);

}  // namespace tailrace::internal::testing_support
