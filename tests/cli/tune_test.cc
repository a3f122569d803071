// The search of `tailrace tune` on file systems that are formulas: what it finds, when it stops, what it
// says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/units.h"
#include "bench/bench_options.h"
#include "bench/tune_search.h"
#include "config/config.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal::tool {
namespace {

using testing::HasSubstr;
using Rate = std::function<double(const BenchCase&)>;  // MiB/s; 0: refused

BenchCase defaults() {
    BenchCase bench;
    bench.writers = 2;
    return bench;
}

// Runs a whole search, or as many runs as are allowed.
size_t search_on(TuneSearch& search, const Rate& rate, size_t most_runs = 1000) {
    size_t runs = 0;
    for (auto round = search.next_round(); !round.empty(); round = search.next_round())
        for (const BenchCase& bench : round) {
            if (runs++ == most_runs) return runs;
            EXPECT_LE(bench.buffers * bench.buffer_bytes, 512 * MiB) << text_of(bench);
            EXPECT_TRUE(check_case(bench).ok()) << text_of(bench);
            if (const double mib = rate(bench); mib > 0)
                search.take(bench, mib * static_cast<double>(MiB));
            else
                search.refuse(bench);
        }
    return runs;
}

void expect_within(const TuneSearch::Tried& tried, const TuneLimits& limits) {
    EXPECT_LE(tried.bench.writers, limits.most_writers);
    EXPECT_LE(tried.bench.buffers * tried.bench.buffer_bytes, limits.most_memory_bytes);
}

std::string all(const TuneSearch& search) {
    std::string text;
    for (const std::string& line : search.explanation()) text += line + "\n";
    return text;
}

// Best with plain calls through the cache, 8 writers and buffers of 64 MiB.
double with_peak(const BenchCase& bench) {
    double rate = 1000;
    if (bench.engine != IoEngine::posix) rate *= 0.7;
    if (bench.direct != DirectIo::off) rate *= 0.6;
    rate *= 1 - 0.2 * std::abs(std::log2(bench.writers) - 3);
    return rate * (1 - 0.1 * std::abs(std::log2(static_cast<double>(bench.buffer_bytes / MiB)) - 4));
}

TEST(TuneSearchTest, FindsThePeakBetweenTheCoarsePoints) {
    TuneSearch search(defaults(), {});
    const size_t runs = search_on(search, with_peak);
    EXPECT_TRUE(search.converged());
    EXPECT_LT(runs, 80u);
    const BenchCase& best = search.choice()->bench;
    EXPECT_EQ(best.engine, IoEngine::posix);
    EXPECT_EQ(best.direct, DirectIo::off);
    EXPECT_EQ(best.writers, 8u);
    EXPECT_EQ(best.buffer_bytes, 16 * MiB);
    EXPECT_THAT(all(search), HasSubstr("times as fast"));
    EXPECT_THAT(all(search), HasSubstr("io_uring around the page cache reaches"));
    EXPECT_THAT(all(search), HasSubstr("no neighbour"));
}

TEST(TuneSearchTest, WhereEverythingIsTheSameTheDefaultsStay) {
    const uint64_t seed = std::random_device()();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    TuneSearch search(defaults(), {});
    search_on(search, [&](const BenchCase&) { return 1000 + static_cast<double>(random() % 21); });
    EXPECT_TRUE(search.converged());
    EXPECT_EQ(search.choice()->bench, defaults());
    EXPECT_THAT(all(search), HasSubstr("These are the defaults"));
}

TEST(TuneSearchTest, WithinTheNoiseFewerWritersAreChosen) {
    TuneSearch search(defaults(), {});
    // The defaults are slow; from 4 writers on nothing is gained but a percent.
    search_on(search, [](const BenchCase& bench) {
        if (bench.writers < 4 || bench.engine == IoEngine::automatic) return 300.0;
        return bench.writers == 4 ? 1000.0 : 1010.0;
    });
    EXPECT_EQ(search.choice()->bench.writers, 4u);
    EXPECT_LE(search.choice()->bench.buffer_bytes, 16 * MiB);
    EXPECT_THAT(all(search), HasSubstr("within the noise, and it takes more threads or memory"));
}

TEST(TuneSearchTest, WhatTheSystemCannotDoIsPassedOver) {
    TuneSearch search(defaults(), {});
    search_on(search, [](const BenchCase& bench) {
        return bench.engine == IoEngine::io_uring ? 0 : with_peak(bench);
    });
    EXPECT_TRUE(search.converged());
    EXPECT_EQ(search.choice()->bench.engine, IoEngine::posix);
    EXPECT_THAT(all(search), HasSubstr("io_uring through the page cache: not possible here"));
    TuneSearch none(defaults(), {});
    search_on(none, [](const BenchCase&) { return 0.0; });
    EXPECT_EQ(none.choice(), nullptr);
    EXPECT_THAT(all(none), HasSubstr("Nothing could be measured"));
}

TEST(TuneSearchTest, TheDefaultsStayAlsoBesideSomethingCheaperThatIsAsFast) {
    TuneSearch search(defaults(), {});
    search_on(search, [](const BenchCase& bench) { return bench.writers == 1 ? 1010.0 : 1000.0; });
    EXPECT_EQ(search.choice()->bench, defaults());
}

TEST(TuneSearchTest, LimitsAreKept) {
    for (const TuneLimits& limits : {TuneLimits{4, GiB}, TuneLimits{64, 128 * MiB}}) {
        TuneSearch search(defaults(), limits);
        search_on(search, [](const BenchCase& bench) { return 100.0 * bench.writers; });
        EXPECT_GT(search.choice()->bench.writers, 2u);
        expect_within(*search.choice(), limits);
        for (const auto& tried : search.tried())
            if (tried.bench != defaults()) expect_within(tried, limits);
    }
}

TEST(TuneSearchTest, DefaultsBeyondTheLimitsAreComparedWithAndNeverChosen) {
    for (const TuneLimits& limits : {TuneLimits{16, 32 * MiB}, TuneLimits{1, 512 * MiB}, TuneLimits{64, MiB}})
        for (const size_t most_runs : {1u, 5u, 12u, 30u, 1000u}) {
            TuneSearch search(defaults(), limits);
            search_on(
                search, [](const BenchCase& bench) { return bench == defaults() ? 1000.0 : 500.0; },
                most_runs);
            SCOPED_TRACE(fmt::format("{} writers, {} bytes, {} runs", limits.most_writers,
                                     limits.most_memory_bytes, most_runs));
            ASSERT_NE(search.choice(), nullptr);
            expect_within(*search.choice(), limits);
            for (const auto& tried : search.tried())
                if (tried.bench != defaults()) expect_within(tried, limits);
            if (most_runs < 1000) continue;
            EXPECT_TRUE(search.converged());
            EXPECT_THAT(all(search), HasSubstr("the choice is 0.50 times as fast. They take more threads or "
                                               "memory than the limits allow."));
        }
}

TEST(TuneSearchTest, TheSearchStartsFromTheLargestThatTheLimitsAllow) {
    TuneSearch search(defaults(), {16, 32 * MiB});
    std::set<std::pair<uint32_t, uint64_t>> coarse;
    for (const BenchCase& bench : search.next_round())
        if (bench != defaults()) coarse.emplace(bench.writers, bench.buffers * bench.buffer_bytes);
    EXPECT_THAT(coarse, testing::ElementsAre(std::pair(1u, 32 * MiB), std::pair(4u, 32 * MiB),
                                             std::pair(16u, 32 * MiB)));
}

TEST(TuneSearchTest, WithoutSyncsNothingIsCalledDurable) {
    BenchCase bench = defaults();
    TuneSearch synced(bench, {});
    search_on(synced, with_peak);
    EXPECT_THAT(all(synced), HasSubstr("until durable"));
    bench.durable = false;
    TuneSearch unsynced(bench, {});
    search_on(unsynced, with_peak);
    EXPECT_THAT(all(unsynced), testing::Not(HasSubstr("durable")));
    EXPECT_THAT(tune_toml(*unsynced.choice(), unsynced.explanation(), {}),
                testing::Not(HasSubstr("durable")));
    EXPECT_THAT(all(unsynced), HasSubstr("without syncs"));
}

TEST(TuneSearchTest, CutShortItNamesTheBestSoFarAndSaysSo) {
    for (size_t runs = 1; runs < 40; ++runs) {
        TuneSearch search(defaults(), {});
        search_on(search, with_peak, runs);
        ASSERT_NE(search.choice(), nullptr) << runs;
        if (!search.converged()) {
            EXPECT_THAT(all(search), HasSubstr("ended before"));
        }
    }
}

TEST(TuneSearchTest, WhatWasNotComparedIsNotCalledSlower) {
    for (size_t runs = 1; runs < 40; ++runs) {
        TuneSearch search(defaults(), {});
        search_on(
            search, [](const BenchCase& bench) { return bench == defaults() ? 1000.0 : 500.0; }, runs);
        const bool compared =
            std::any_of(search.tried().begin(), search.tried().end(), [](const TuneSearch::Tried& tried) {
                return tried.bench != defaults() && tried.rates.size() >= 2;
            });
        EXPECT_THAT(all(search), HasSubstr(compared ? "run twice or more, none was faster"
                                                    : "to tell whether others are faster"))
            << runs;
    }
    TuneSearch coarse(defaults(), {});  // better settings were seen, but once
    search_on(coarse, with_peak, 5);
    EXPECT_EQ(coarse.choice()->bench, defaults());
    EXPECT_THAT(all(coarse), HasSubstr("to tell whether others are faster"));
    TuneSearch small(defaults(), {1, 512 * MiB});  // the defaults are not allowed
    search_on(small, with_peak, 2);
    EXPECT_NE(small.choice()->bench, defaults());
    EXPECT_THAT(all(small), HasSubstr("this says little"));
    TuneSearch once(defaults(), {});
    search_on(once, with_peak, 1);
    EXPECT_THAT(all(once), HasSubstr("2 % is assumed"));
    EXPECT_THAT(all(once), HasSubstr("1 setting was tried in 1 run;"));
}

TEST(TuneSearchTest, TheNoiseIsHowFarEqualRunsLieApart) {
    TuneSearch search(defaults(), {});
    std::map<std::string, int> runs;
    search_on(search,
              [&](const BenchCase& bench) { return ++runs[text_of(bench)] % 2 == 0 ? 1100.0 : 900.0; });
    EXPECT_GT(search.noise(), 0.05);
    EXPECT_LT(search.noise(), 0.15);
}

TEST(TextFileTest, WhatCannotBeWrittenIsNotLeftHalfWritten) {
    FaultPlan full;
    full.write_no_space = 1;
    FaultyStorage storage(std::make_shared<MemoryStorage>(), 1, full);
    ASSERT_TRUE(storage.make_directories("/d").ok());
    EXPECT_EQ(write_text_file(storage, "/d/found.toml", "text").code(), Code::no_space);
    EXPECT_TRUE(storage.list("/d").value().empty());
}

TEST(TuneTomlTest, TheLibraryReadsWhatIsWritten) {
    TuneSearch search(defaults(), {});
    search_on(search, with_peak);
    BenchMachine machine;
    machine.directory = "/a \"b\"";
    const std::string text = tune_toml(*search.choice(), search.explanation(), machine);
    const std::string path = testing::TempDir() + "tailrace tune test.toml";
    auto storage = make_system_storage({.engine = IoEngine::posix}).value();
    ASSERT_TRUE(write_text_file(*storage, path, text).ok());
    Config config;
    const Status status = load_config_file(config, path);
    std::remove(path.c_str());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(config.writers, 8u);
    EXPECT_EQ(config.buffer_bytes, 16 * MiB);
    EXPECT_EQ(config.buffers, 16u);
    EXPECT_EQ(config.io_engine, IoEngine::posix);
    EXPECT_EQ(config.direct_io, DirectIo::off);
    EXPECT_THAT(text, HasSubstr("# Chosen: "));
    EXPECT_THAT(text, HasSubstr("\nwriters = 8\n"));
    EXPECT_THAT(text, HasSubstr("\nbuffer_bytes = \"16MiB\"\n"));
}

}  // namespace
}  // namespace tailrace::internal::tool
