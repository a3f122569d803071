// FailingAllocator: operator new of a test program that links it, which fails once, at a chosen allocation of
// the simulated program. What the simulation allocates itself (VirtualExecutor::OwnWork) does not count.
#pragma once

#include <cstdint>

namespace tailrace::internal::testing_support {

class FailingAllocator {
  public:
    // Counts from 0 again. The n-th allocation will fail; 0: none.
    static void begin(uint64_t n);
    // Whether allocations are counted from now on.
    static void count(bool on);
    static uint64_t allocations();
};

}  // namespace tailrace::internal::testing_support
