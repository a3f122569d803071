// FailingAllocator: operator new of a test program that links it, which fails at a chosen allocation of the
// simulated program, and at as many after it as are asked for. What the simulation allocates itself
// (VirtualExecutor::OwnWork) does not count.
#pragma once

#include <cstdint>

namespace tailrace::internal::testing_support {

class FailingAllocator {
  public:
    // Counts from 0 again. The n-th allocation will fail, and so will the next ones, `failures` in all. n =
    // 0: none fails.
    static void begin(uint64_t n, uint64_t failures);
    // Whether allocations are counted from now on.
    static void count(bool on);
    static uint64_t allocations();
};

}  // namespace tailrace::internal::testing_support
