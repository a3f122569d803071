// The rate at which parity is made, against ISA-L alone on the same memory, in turn; and ISA-L against
// memcpy.
//
//   protect_bench [--rounds N]    one JSON object per line: level, nodes, GiB/s of each, their ratio
//
// A round makes the parity of a block of a set as a node does it: the block's sources lie in memory and are
// no longer in the processor's cache. A rate counts the bytes of the sources.
#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "protect/coding.h"

namespace {

using namespace tailrace::internal;
using Clock = std::chrono::steady_clock;

constexpr size_t block_bytes = 512 << 10;
constexpr size_t pool_bytes = size_t{256} << 20;  // more than a cache

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;
Memory aligned_memory(size_t bytes) {
    Memory memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t value = i * 0x9E3779B97F4A7C15u;
        std::memcpy(memory.get() + i, &value, sizeof value);
    }
    return memory;
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
}

void measure(uint32_t nodes, uint32_t losses, int rounds) {
    const SetCoding coding(nodes, losses, block_bytes);
    const uint32_t columns = coding.columns();
    const Memory pool = aligned_memory(pool_bytes), target = aligned_memory(block_bytes);
    const size_t blocks = pool_bytes / (columns * block_bytes);
    std::vector<unsigned char> factors(columns), tables(32 * size_t{columns});
    for (uint32_t column = 0; column < columns; ++column) factors[column] = coding.factor(0, column);
    ec_init_tables(static_cast<int>(columns), 1, factors.data(), tables.data());
    const auto source = [&](size_t block, uint32_t column) {
        return pool.get() + (block * columns + column) * block_bytes;
    };
    const auto ours = [&](size_t block) {
        std::vector<Product> products;
        for (uint32_t column = 0; column < columns; ++column)
            products.push_back({factors[column], {source(block, column), block_bytes}});
        set_to_sum(products, {target.get(), block_bytes});
    };
    const auto alone = [&](size_t block) {
        std::vector<unsigned char*> sources;
        for (uint32_t column = 0; column < columns; ++column)
            sources.push_back(reinterpret_cast<unsigned char*>(source(block, column)));
        auto* sum = reinterpret_cast<unsigned char*>(target.get());
        if (losses > 1 || columns < 2) {
            ec_encode_data(static_cast<int>(block_bytes), static_cast<int>(columns), 1, tables.data(),
                           sources.data(), &sum);
            return;
        }
        std::vector<void*> vectors(sources.begin(), sources.end());
        vectors.push_back(sum);
        (void)xor_gen(static_cast<int>(vectors.size()), static_cast<int>(block_bytes), vectors.data());
    };
    const auto copy = [&](size_t block) {
        for (uint32_t column = 0; column < columns; ++column)
            std::memcpy(target.get(), source(block, column), block_bytes);
    };
    const auto time = [&](const auto& work) {
        const auto start = Clock::now();
        for (size_t block = 0; block < blocks; ++block) work(block);
        return static_cast<double>(blocks * columns * block_bytes) / seconds_since(start) / (1 << 30);
    };
    std::vector<double> ours_rates, alone_rates, copy_rates, ratios;
    (void)time(ours);
    for (int round = 0; round < rounds; ++round) {
        ours_rates.push_back(time(ours));
        alone_rates.push_back(time(alone));
        copy_rates.push_back(time(copy));
        ratios.push_back(ours_rates.back() / alone_rates.back());
    }
    std::printf(
        "{\"level\": \"%s\", \"losses\": %u, \"nodes\": %u, \"gib_per_s\": %.2f, \"isal_gib_per_s\": %.2f, "
        "\"memcpy_gib_per_s\": %.2f, \"ratio_to_isal\": %.3f, \"ratio_least\": %.3f, \"ratio_most\": %.3f}\n",
        losses == 1 ? "xor" : "rs", losses, nodes, median(ours_rates), median(alone_rates),
        median(copy_rates), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
        *std::max_element(ratios.begin(), ratios.end()));
}

}  // namespace

int main(int count, char** arguments) {
    int rounds = 9;
    for (int i = 1; i + 1 < count; ++i)
        if (std::string_view(arguments[i]) == "--rounds") rounds = std::max(1, std::atoi(arguments[i + 1]));
    for (const uint32_t nodes : {4u, 8u, 16u}) {
        measure(nodes, 1, rounds);
        measure(nodes, 2, rounds);
    }
    return 0;
}
