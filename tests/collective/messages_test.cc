// What a call costs in messages: how many there are, and how many have to follow one another. Small calls
// only: there no slot is used twice, and the counts do not depend on who comes first.
#include <gtest/gtest.h>

#include "base/units.h"
#include "collective/team.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal::collective {

namespace {

struct Counts {
    uint64_t messages = 0, steps = 0;
    bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
    return out << counts.messages << " messages, " << counts.steps << " one after the other";
}

using Lists = std::vector<std::vector<Request>>;

// Of a write of the lists and of a read, by ranks in blocks on `nodes` nodes. Each is two collective steps.
// `of_one`: the most messages of the write that one rank sent.
std::pair<Counts, Counts> counts_of(size_t nodes, const Lists& lists, const Settings& plan = {},
                                    uint64_t* of_one = nullptr) {
    std::vector<std::string> hosts;
    for (size_t rank = 0; rank < lists.size(); ++rank)
        hosts.push_back("node" + std::to_string(rank * nodes / lists.size()));
    Options options;
    options.mode = Mode::write;
    options.plan = plan;
    const auto storage = std::make_shared<MemoryStorage>();
    std::pair<Counts, Counts> counts;
    uint64_t most = 0;
    const auto outcomes = run_team(hosts, storage, options, [&](int rank, CollectiveFile& file) {
        const auto& list = lists[static_cast<size_t>(rank)];
        Data data = data_for(list), back = empty_data_for(list);
        if (const auto done = file.write({list, data.memory()}); !done.ok()) return done.status();
        const auto first = file.statistics();
        if (const auto done = file.read({list, back.memory()}); !done.ok()) return done.status();
        const auto both = file.statistics();
        if (!first.ok() || !both.ok()) return both.status();
        EXPECT_EQ(back.stream, data.stream);
        EXPECT_EQ(first->collectives, 2u);
        EXPECT_EQ(both->collectives, 4u);
        EXPECT_LE(first->messages_of_one, first->messages);
        if (rank == 0) most = first->messages_of_one;
        if (rank == 0)
            counts = {{first->messages, first->steps},
                      {both->messages - first->messages, both->steps - first->steps}};
        return Status();
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    if (of_one != nullptr) *of_one = most;
    return counts;
}

Lists contiguous(size_t ranks, uint64_t bytes) {
    Lists lists;
    for (uint64_t rank = 0; rank < ranks; ++rank) lists.push_back({{rank * bytes, bytes}});
    return lists;
}
Lists interleaved(size_t ranks, uint64_t bytes, uint64_t count) {
    Lists lists(ranks);
    for (uint64_t i = 0; i < count * ranks; ++i) lists[i % ranks].push_back({i * bytes, bytes});
    return lists;
}

// As on a file system behind a network, where few small requests go through the layers too.
Settings remote() {
    Settings plan;
    plan.exchange = Exchange::always;
    return plan;
}
Settings every_rank_its_own() {
    Settings plan;
    plan.local_aggregators_per_node = -1;
    return plan;
}

}  // namespace

TEST(MessagesTest, RanksInPartsOfTheirOwnSayNothing) {
    for (const uint64_t bytes : {uint64_t{64}, 4 * KiB, 128 * KiB, 512 * KiB}) {
        const auto [write, read] = counts_of(4, contiguous(8, bytes));
        EXPECT_EQ(write, (Counts{0, 0})) << bytes;
        EXPECT_EQ(read, (Counts{0, 0})) << bytes;
    }
}

TEST(MessagesTest, ASmallContiguousWriteNeedsNone) {
    for (const size_t ranks : {8, 16})
        for (const uint64_t bytes : {4 * KiB, 128 * KiB}) {
            EXPECT_EQ(counts_of(4, contiguous(ranks, bytes), remote()).first, (Counts{0, 0}));
        }
}

TEST(MessagesTest, ASmallContiguousReadTellsEveryMemberOnce) {
    EXPECT_EQ(counts_of(4, contiguous(8, 4 * KiB), remote()).second, (Counts{4, 1}));
    EXPECT_EQ(counts_of(4, contiguous(16, 4 * KiB), remote()).second, (Counts{12, 1}));
}

// The nodes' parts are unequal: even parts of the file would not be theirs.
TEST(MessagesTest, UnequalPartsOfNodesStayOnTheirNodes) {
    Lists lists;
    uint64_t at = 0;
    for (const uint64_t bytes : {9000, 9000, 5000, 6000, 7000, 8000, 9000, 12000}) {
        lists.push_back({{at, bytes / 4096 * 4096}});
        at += bytes / 4096 * 4096;
    }
    EXPECT_EQ(counts_of(4, lists, remote()).first, (Counts{0, 0}));
}

// Four nodes, each with something for all four aggregators: an offer and its data to each of the three
// others, whatever the number of ranks; and on the way back one message for every member and window.
TEST(MessagesTest, ASmallInterleavedCallIsOneMessageFromNodeToNode) {
    for (const size_t ranks : {8, 16}) {
        uint64_t of_one = 0;
        const auto [write, read] = counts_of(4, interleaved(ranks, 400, 100), {}, &of_one);
        EXPECT_EQ(write, (Counts{4 * 3 * 2, 1}));
        EXPECT_EQ(of_one, 3u * 2);  // of each local aggregator
        EXPECT_EQ(read, (Counts{4 * 3 * 2 + (ranks - 4) * 4, 3}));
    }
}

TEST(MessagesTest, InTwoPhasesEveryRankSpeaksForItself) {
    for (const size_t ranks : {8, 16}) {
        const auto [write, read] = counts_of(4, interleaved(ranks, 400, 100), every_rank_its_own());
        EXPECT_EQ(write, (Counts{(ranks * 4 - 4) * 2, 1}));
        EXPECT_EQ(read, (Counts{(ranks * 4 - 4) * 2, 2}));
    }
}

// More than small_write_bytes of a rank: members are told where their bytes go, and say when they are there.
TEST(MessagesTest, ALargerWriteAsksItsMembers) {
    const auto [write, read] = counts_of(2, interleaved(4, 512, small_write_bytes / 512 + 1));
    EXPECT_EQ(write, (Counts{2 * 2 + 4 * 2, 3}));
    EXPECT_EQ(read, (Counts{2 * 2 + 4, 3}));
}

}  // namespace tailrace::internal::collective
