// The seed of a random test: printed, and taken from TAILRACE_SEED to replay a failure.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

namespace tailrace::internal {

using Random = std::mt19937_64;

// 0 to limit - 1
inline uint64_t below(Random& random, uint64_t limit) {
    return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random);
}

// `count` seeds from `first` upward; only the one of the environment, if it is set there.
inline std::vector<uint64_t> seeds(uint64_t first, uint64_t count) {
    if (const char* text = std::getenv("TAILRACE_SEED")) return {std::strtoull(text, nullptr, 10)};
    std::cout << "seeds " << first << " to " << first + count - 1 << " (TAILRACE_SEED=n replays one)\n";
    std::vector<uint64_t> all;
    for (uint64_t seed = first; seed < first + count; ++seed) all.push_back(seed);
    return all;
}

}  // namespace tailrace::internal
