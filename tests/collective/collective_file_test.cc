// Whole collective calls: ranks are threads, the file is in memory, and what comes out is compared, byte by
// byte, with what one writer after the other would have left.
#include "collective/collective_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "aggregate/seeds.h"
#include "collective/team.h"
#include "doubles/memory_storage.h"
#include "io_patterns.h"

namespace tailrace::internal::collective {

namespace {

using testing::Each;
using testing::HasSubstr;

const auto is_ok = testing::Truly([](const Status& status) { return status.ok(); });

std::vector<std::string> hosts_of(size_t ranks, size_t nodes, bool in_turn) {
    std::vector<std::string> hosts;
    for (size_t rank = 0; rank < ranks; ++rank)
        hosts.push_back(fmt::format("node{}", in_turn ? rank % nodes : rank * nodes / ranks));
    return hosts;
}

// How a case is run, drawn from its seed.
struct Draw {
    size_t ranks = 1;
    std::vector<std::string> hosts;
    Options options;
    std::vector<std::vector<Request>> lists;
    uint64_t file_bytes = 0;

    std::string describe(uint64_t seed) const {
        return fmt::format("seed {}, {} ranks, c {}, p_g {}, window {}", seed, ranks,
                           options.plan.local_aggregators_per_node, options.plan.global_aggregators,
                           options.plan.domains.window_bytes);
    }
};

Draw draw_setting(Random& random) {
    Draw draw;
    draw.ranks = 1 + below(random, 9);
    draw.hosts =
        hosts_of(draw.ranks, 1 + below(random, std::min<uint64_t>(4, draw.ranks)), below(random, 2) == 0);
    Settings& plan = draw.options.plan;
    plan.local_aggregators_per_node = static_cast<int>(below(random, 5)) - 1;
    plan.global_aggregators = static_cast<int>(below(random, draw.ranks + 1));
    plan.exchange = below(random, 8) == 0 ? Exchange::never : Exchange::automatic;
    const Layout layouts[] = {Layout::contiguous, Layout::cyclic, Layout::group_cyclic};
    plan.domains.layout = layouts[below(random, 3)];
    plan.domains.stripes = static_cast<int>(below(random, 4));
    plan.domains.window_bytes = 4096 * (1 + below(random, 3));
    draw.options.sieve_writes = below(random, 3) == 0 ? Sieve::always : Sieve::automatic;
    draw.options.sieve_reads = below(random, 3) == 0 ? Sieve::never : Sieve::automatic;
    draw.options.mode = Mode::write;
    return draw;
}

// Every byte of a range is given to one rank, or to none, in pieces.
Draw draw_write(uint64_t seed) {
    Random random(seed);
    Draw draw = draw_setting(random);
    draw.lists.resize(draw.ranks);
    const uint64_t longest = below(random, 3) == 0 ? 3000 : 40;
    const uint64_t holes = below(random, 4);
    uint64_t at = below(random, 3) == 0 ? below(random, 50000) : 0;
    const uint64_t end = at + below(random, 60000);
    while (at < end) {
        const uint64_t bytes = 1 + below(random, longest);
        if (holes == 0 || below(random, 2 + holes) > 0)
            draw.lists[below(random, below(random, 3) == 0 ? (draw.ranks + 1) / 2 : draw.ranks)].push_back(
                {at, bytes});
        at += bytes;
    }
    draw.file_bytes = at;
    return draw;
}

}  // namespace

TEST(CollectiveFileTest, AnyWriteLeavesWhatASerialWriterWouldLeave) {
    for (const uint64_t seed : seeds(1, 150)) {
        const Draw draw = draw_write(seed);
        const auto storage = std::make_shared<MemoryStorage>();
        std::vector<std::byte> expected(seed % 2 == 0 ? 20000 : 0, std::byte{'o'});
        {
            auto file = storage->open(team_path, {Access::write, DirectIo::off});
            ASSERT_TRUE((*file)->write_at(expected, 0).ok());
        }
        for (const auto& list : draw.lists)
            for (const Request& request : list) {
                expected.resize(std::max<size_t>(expected.size(), request.end()));
                for (uint64_t at = request.offset; at < request.end(); ++at) expected[at] = byte_at(at);
            }
        const auto outcomes =
            run_team(draw.hosts, storage, draw.options, [&](int rank, CollectiveFile& file) {
                const auto& list = draw.lists[static_cast<size_t>(rank)];
                Data data = data_for(list);
                const auto written = file.write({list, data.memory(1 + seed % 4)});
                EXPECT_TRUE(!written.ok() || *written == data.stream.size());
                return written.status();
            });
        for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.message();
        ASSERT_EQ(whole_file(*storage, team_path), expected) << draw.describe(seed);
    }
}

TEST(CollectiveFileTest, AnyReadReturnsWhatTheFileHolds) {
    for (const uint64_t seed : seeds(1, 150)) {
        Random random(seed);
        Draw draw = draw_setting(random);
        draw.options.mode = Mode::read;
        const uint64_t file_bytes = 1 + below(random, 60000);
        const auto storage = std::make_shared<MemoryStorage>();
        {
            auto file = storage->open(team_path, {Access::write, DirectIo::off});
            ASSERT_TRUE((*file)->write_at(data_for({{0, file_bytes}}).stream, 0).ok());
        }
        // Overlapping requests, within a rank and between ranks, now and then beyond the file's end.
        draw.lists.resize(draw.ranks);
        for (auto& list : draw.lists) {
            if (below(random, 6) == 0) continue;
            const uint64_t longest = below(random, 3) == 0 ? 5000 : 60;
            const uint64_t end = below(random, 4) == 0 ? file_bytes + 5000 : file_bytes;
            for (uint64_t at = below(random, file_bytes); at < end;) {
                const uint64_t bytes = std::min(end - at, 1 + below(random, longest));
                list.push_back({at, bytes});
                at += below(random, 2) == 0 ? below(random, 30) : bytes + below(random, longest);
            }
        }
        const auto outcomes =
            run_team(draw.hosts, storage, draw.options, [&](int rank, CollectiveFile& file) {
                const auto& list = draw.lists[static_cast<size_t>(rank)];
                Data data = empty_data_for(list);
                const auto got = file.read({list, data.memory(1 + seed % 4)});
                if (!got.ok()) return got.status();
                uint64_t expected_bytes = 0;
                size_t i = 0;
                for (const Request& request : list) {
                    expected_bytes += clip(request, {0, file_bytes}).bytes;
                    for (uint64_t at = request.offset; at < request.end(); ++at, ++i)
                        if (data.stream[i] != (at < file_bytes ? byte_at(at) : std::byte{0}))
                            return Status(Code::corrupt, fmt::format("rank {}, offset {}", rank, at));
                }
                EXPECT_EQ(*got, expected_bytes) << draw.describe(seed);
                return Status();
            });
        for (const Status& outcome : outcomes)
            ASSERT_TRUE(outcome.ok()) << outcome.message() << ", " << draw.describe(seed);
    }
}

TEST(CollectiveFileTest, BackgroundCallsRunInOrder) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    const auto outcomes =
        run_team(hosts_of(4, 2, false), storage, options, [&](int rank, CollectiveFile& file) {
            std::vector<Data> data;
            std::vector<std::shared_ptr<Pending>> pending;
            std::vector<Request> list;
            for (uint64_t i = 0; i < 100; ++i)
                list.push_back({(i * 4 + static_cast<uint64_t>(rank)) * 10, 10});
            for (uint64_t call = 0; call < 5; ++call) data.push_back(data_for(list, call));
            for (Data& one : data) pending.push_back(file.start_write({list, one.memory()}));
            Data read = empty_data_for(list);
            pending.push_back(file.start_read({list, read.memory()}));
            Status worst;
            for (const auto& call : pending)
                if (const auto done = call->wait(); !done.ok()) worst = done.status();
            EXPECT_TRUE(pending.front()->test());
            EXPECT_EQ(read.stream, data.back().stream);
            return worst;
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, 4000}}, 4).stream);
}

TEST(CollectiveFileTest, HolesOfANewFileStayHoles) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::create_new;
    options.sieve_writes = Sieve::always;
    options.plan.exchange = Exchange::always;
    // The end first, so that all before it lies within the file; then a page of every eight.
    constexpr uint64_t page = 4096, pages = 32, stride = 8 * page;
    const auto outcomes =
        run_team(hosts_of(4, 2, false), storage, options, [&](int rank, CollectiveFile& file) {
            std::vector<Request> end, list;
            if (rank == 3) end = {{pages * stride, page}};
            for (uint64_t i = static_cast<uint64_t>(rank); i < pages; i += 4)
                list.push_back({i * stride, page});
            Data end_data = data_for(end), data = data_for(list);
            TAILRACE_TRY(file.write({end, end_data.memory()}).status());
            return file.write({list, data.memory()}).status();
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(storage->used_bytes(), (pages + 1) * page);
    EXPECT_EQ(whole_file(*storage, team_path).size(), pages * stride + page);
}

TEST(CollectiveFileTest, StatisticsAreThoseOfThePattern) {
    struct Case {
        int per_node;
        uint64_t after_local, receives;
    };
    // BTIO 16^3 on 16 ranks of one node: the table; every rank has something everywhere.
    for (const Case& c :
         {Case{-1, 1024, 16}, Case{8, 544, 8}, Case{4, 64, 4}, Case{2, 34, 2}, Case{1, 1, 1}}) {
        const auto storage = std::make_shared<MemoryStorage>();
        Options options;
        options.mode = Mode::write;
        options.plan.local_aggregators_per_node = c.per_node;
        Statistics statistics;
        std::string reason;
        const auto outcomes =
            run_team(hosts_of(16, 1, false), storage, options, [&](int rank, CollectiveFile& file) {
                const std::vector<Request> list = patterns::btio(16, 16, rank);
                Data data = data_for(list);
                if (const auto written = file.write({list, data.memory()}); !written.ok())
                    return written.status();
                const auto sum = file.statistics();
                if (rank == 0 && sum.ok()) {
                    statistics = *sum;
                    reason = file.last_reason();
                }
                return sum.status();
            });
        for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.message();
        EXPECT_EQ(statistics.requests, 1024u);
        EXPECT_EQ(statistics.requests_after_local, c.after_local) << "c = " << c.per_node;
        EXPECT_EQ(statistics.requests_after_global, 1u);
        EXPECT_EQ(statistics.file_operations, 1u);
        EXPECT_EQ(statistics.receives, c.receives);
        EXPECT_EQ(statistics.rounds, 1u);
        EXPECT_EQ(statistics.bytes, patterns::btio_bytes(16));
        EXPECT_FALSE(reason.empty());
        EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, patterns::btio_bytes(16)}}).stream);
    }
}

TEST(CollectiveFileTest, LocalCoalescingIsKeptInManyRounds) {
    // 1024 requests, of which four local aggregators make 64 in one round: a round cuts one of each at most.
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    options.plan.local_aggregators_per_node = 4;
    options.plan.domains.window_bytes = 8192;
    const auto outcomes =
        run_team(hosts_of(16, 1, false), storage, options, [&](int rank, CollectiveFile& file) {
            const std::vector<Request> list = patterns::btio(16, 16, rank);
            Data data = data_for(list);
            TAILRACE_TRY(file.write({list, data.memory()}).status());
            const auto sum = file.statistics();
            if (!sum.ok()) return sum.status();
            EXPECT_EQ(sum->rounds, patterns::btio_bytes(16) / 8192);
            EXPECT_LE(sum->requests_after_local, 64 + 4 * sum->rounds);
            EXPECT_EQ(sum->requests_after_global, sum->rounds);
            EXPECT_EQ(sum->requests_after_local - sum->cuts_after_local, 64u);
            EXPECT_EQ(sum->requests_after_global - sum->cuts_after_global, 1u);
            return Status();
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, patterns::btio_bytes(16)}}).stream);
}

TEST(CollectiveFileTest, MemoryIsBoundedWhateverTheSize) {
    constexpr uint64_t window = 4096 * 4;
    for (const int per_node : {-1, 1}) {
        const auto storage = std::make_shared<MemoryStorage>();
        Options options;
        options.mode = Mode::write;
        options.plan.local_aggregators_per_node = per_node;
        options.plan.global_aggregators = 2;
        options.plan.domains.window_bytes = window;
        std::atomic<uint64_t> most = 0;
        const auto outcomes =
            run_team(hosts_of(4, 2, false), storage, options, [&](int rank, CollectiveFile& file) {
                std::vector<Request> list;
                for (uint64_t i = 0; i < 10000; ++i)
                    list.push_back({(i * 4 + static_cast<uint64_t>(rank)) * 50, 50});
                Data data = data_for(list);
                const auto written = file.write({list, data.memory()});
                most = std::max<uint64_t>(most, file.own_statistics().memory_bytes);
                EXPECT_TRUE(file.own_statistics().receives == 0 || file.own_statistics().rounds > 50);
                return written.status();
            });
        for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
        // Two slots of a local and three buffers (with a page for alignment) of a global aggregator.
        EXPECT_LE(most, 2 * window + 3 * (window + 4096));
        EXPECT_GT(most, 0u);
        EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, 4 * 10000 * 50}}).stream);
    }
}

TEST(CollectiveFileTest, FillingHolesTakesNoMoreThanAFourthBuffer) {
    constexpr uint64_t window = 4096 * 4;
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    options.sieve_writes = Sieve::always;
    options.plan.local_aggregators_per_node = 1;
    options.plan.global_aggregators = 1;
    options.plan.domains.window_bytes = window;
    std::atomic<uint64_t> most = 0;
    const auto outcomes =
        run_team(hosts_of(4, 2, false), storage, options, [&](int rank, CollectiveFile& file) {
            // The file's last window has the narrowest span of holes: what was held for others still counts.
            std::vector<Request> list;
            for (uint64_t i = 0; i < 3000; ++i)
                if (i < 2990 || rank == 0) list.push_back({(i * 4 + static_cast<uint64_t>(rank)) * 50, 40});
            const std::vector<Request> all = {{0, 3000 * 4 * 50}};
            Data before = data_for(rank == 0 ? all : std::vector<Request>(), 1);
            TAILRACE_TRY(file.write({rank == 0 ? all : std::vector<Request>(), before.memory()}).status());
            Data data = data_for(list);
            TAILRACE_TRY(file.write({list, data.memory()}).status());
            most = std::max<uint64_t>(most, file.own_statistics().memory_bytes);
            return Status();
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_LE(most, 2 * window + 3 * (window + 4096) + window);
    EXPECT_GT(most, 2 * window + 2 * (window + 4096) + window / 2);  // it is among what is counted
}

TEST(CollectiveFileTest, ScatteredMemoryOfALargeRequestIsGatheredWhereNothingIsExchanged) {
    constexpr uint64_t bytes = uint64_t{3} << 20;
    for (const size_t pieces : {size_t{1}, size_t{3}, size_t{100000}}) {
        const auto storage = std::make_shared<MemoryStorage>();
        Options options;
        options.mode = Mode::write;
        options.plan.exchange = Exchange::never;
        const auto outcomes =
            run_team(hosts_of(2, 1, false), storage, options, [&](int rank, CollectiveFile& file) {
                const std::vector<Request> list = {{static_cast<uint64_t>(rank) * bytes, bytes}};
                Data data = data_for(list), again = empty_data_for(list);
                TAILRACE_TRY(file.write({list, data.memory(pieces)}).status());
                EXPECT_EQ(file.own_statistics().file_operations, pieces == 1 ? 1u : 3u) << pieces;
                TAILRACE_TRY(file.read({list, again.memory(pieces)}).status());
                EXPECT_EQ(again.stream, data.stream) << pieces << " pieces";
                EXPECT_EQ(file.own_statistics().file_operations, pieces == 1 ? 2u : 6u) << pieces;
                return Status();
            });
        EXPECT_THAT(outcomes, Each(is_ok));
        EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, 2 * bytes}}).stream) << pieces << " pieces";
    }
}

TEST(CollectiveFileTest, WhatMakesNoSenseOnOneRankIsRefusedOnAll) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    const auto outcomes =
        run_team(hosts_of(3, 1, false), storage, options, [&](int rank, CollectiveFile& file) {
            std::vector<Request> list = {{100, 10}, {50, 10}};
            if (rank != 1) list = {};
            Data data = empty_data_for(list);
            const Status first = file.write({list, data.memory()}).status();
            EXPECT_EQ(first.code(), Code::invalid_argument);
            EXPECT_THAT(first.message(), HasSubstr("rank 1"));
            const Status second = file.write({{{0, 10}}, {}}).status();
            EXPECT_THAT(second.message(), HasSubstr("ask for 10 bytes, but the memory has 0"));
            return file.write({}).status();  // and the next call is as if nothing had been
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CollectiveFileTest, OverlappingWritesOfDifferentRanksAreCounted) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    options.plan.local_aggregators_per_node = 1;
    const auto outcomes =
        run_team(hosts_of(4, 2, false), storage, options, [&](int rank, CollectiveFile& file) {
            const std::vector<Request> list = {{static_cast<uint64_t>(rank) * 80, 100}};
            Data data = data_for(list);
            if (const auto written = file.write({list, data.memory()}); !written.ok())
                return written.status();
            const auto sum = file.statistics();
            EXPECT_TRUE(!sum.ok() || sum->overlapping_bytes == 60);
            return sum.status();
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, 340}}).stream);
}

TEST(CollectiveFileTest, ModesAreKept) {
    const auto storage = std::make_shared<MemoryStorage>();
    const auto nothing = [](int, CollectiveFile&) { return Status(); };
    Options options;
    options.mode = Mode::read;
    EXPECT_EQ(run_team(hosts_of(2, 1, false), storage, options, nothing)[1].code(), Code::not_found);
    options.mode = Mode::create_new;
    EXPECT_THAT(run_team(hosts_of(2, 1, false), storage, options, nothing), Each(is_ok));
    EXPECT_EQ(run_team(hosts_of(2, 1, false), storage, options, nothing)[1].code(), Code::already_exists);
    options.mode = Mode::read;
    const auto outcomes = run_team(hosts_of(2, 1, false), storage, options, [](int, CollectiveFile& file) {
        EXPECT_EQ(file.write({}).status().code(), Code::failed_state);
        EXPECT_TRUE(file.close().ok());
        EXPECT_TRUE(file.close().ok());
        EXPECT_EQ(file.read({}).status().code(), Code::failed_state);
        return Status();
    });
    EXPECT_THAT(outcomes, Each(is_ok));
}

}  // namespace tailrace::internal::collective
