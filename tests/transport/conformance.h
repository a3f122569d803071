// What every transport must do, as claims that all ranks of one check together. Independent of how ranks run:
// in_process_test.cc runs a claim with a thread per rank, tests/mpi/transport_conformance_mpi.cc with a
// process per rank.
//
// A claim is a function that every rank calls with its transport. It says what it found wrong through
// Witness; it never waits longer than `patience` for something that does not come, and leaves nothing on its
// way, so that the next claim can follow on the same transport.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tailrace::internal::conformance {

inline constexpr std::chrono::seconds patience(60);

// Collects what one rank finds wrong.
class Witness {
  public:
    // Records "claim (line): what" unless `holds`. Returns `holds`.
    bool expect(bool holds, int line, const std::string& what);
    const std::vector<std::string>& failures() const { return failures_; }

  private:
    std::vector<std::string> failures_;
};

struct Claim {
    std::string name;
    std::function<void(Transport&, Witness&)> check;
};

// In the order in which they should run on one transport.
const std::vector<Claim>& claims();

// Every claim on 1, 2, 3 and 8 ranks, for transports whose ranks are threads.
struct Case {
    const Claim* claim;
    size_t ranks;
};
std::vector<Case> cases();
std::string name_of(const Case& tried);

// Calls test(), poll() and wait() in turn until the transfer is complete; messages that arrive are kept in
// `messages`. A failure of its own kind when it never comes.
Result<uint64_t> finish(Transport& transport, Transfer& transfer, std::vector<Message>& messages);

}  // namespace tailrace::internal::conformance
