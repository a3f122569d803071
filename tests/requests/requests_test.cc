// Merging and coalescing, against a plain set of bytes.
#include "requests/requests.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "aggregate/seeds.h"

namespace tailrace::internal::collective {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Request> merged(const std::vector<std::vector<Request>>& lists,
                            FileWindow window = {0, 1 << 30}) {
    std::vector<std::span<const Request>> spans(lists.begin(), lists.end());
    std::vector<Request> runs;
    merge(spans, window, runs);
    return runs;
}

// A sorted list without overlaps, or with them.
std::vector<Request> random_list(Random& random, uint64_t range, bool overlapping) {
    std::vector<Request> list;
    uint64_t at = below(random, 20);
    while (at < range) {
        const uint64_t bytes = 1 + below(random, 12);
        list.push_back({at, bytes});
        at += overlapping ? below(random, 8) : bytes + (below(random, 3) == 0 ? below(random, 9) : 0);
    }
    return list;
}

std::set<uint64_t> bytes_of(const std::vector<std::vector<Request>>& lists, FileWindow window) {
    std::set<uint64_t> bytes;
    for (const auto& list : lists)
        for (const Request& request : list)
            for (uint64_t at = request.offset; at < request.end(); ++at)
                if (at >= window.begin && at < window.end) bytes.insert(at);
    return bytes;
}

}  // namespace

TEST(MergeTest, NeighboursBecomeOneRun) {
    EXPECT_THAT(merged({{{0, 10}, {20, 10}}, {{10, 10}}}), ElementsAre(Request{0, 30}));
    EXPECT_THAT(merged({{{0, 10}, {21, 10}}, {{10, 10}}}), ElementsAre(Request{0, 20}, Request{21, 10}));
}

TEST(MergeTest, OverlapsBecomeOneRunAndAreCounted) {
    const std::vector<Request> a = {{0, 10}}, b = {{5, 3}, {8, 7}};
    const std::vector<std::span<const Request>> lists = {a, b};
    std::vector<Request> runs;
    const MergeCounts counts = merge(lists, runs);
    EXPECT_THAT(runs, ElementsAre(Request{0, 15}));
    EXPECT_EQ(counts.overlapping_bytes, 5u);
    EXPECT_EQ(counts.requests, 3u);
}

TEST(MergeTest, AWindowCutsWhatReachesBeyondIt) {
    EXPECT_THAT(merged({{{0, 10}, {30, 10}}, {{12, 4}}}, {5, 35}),
                ElementsAre(Request{5, 5}, Request{12, 4}, Request{30, 5}));
    EXPECT_THAT(merged({{{0, 10}}}, {10, 20}), ElementsAre());
    EXPECT_THAT(merged({}), ElementsAre());
}

TEST(MergeTest, AnyListsGiveTheRunsOfTheirBytes) {
    for (const uint64_t seed : seeds(1, 300)) {
        Random random(seed);
        std::vector<std::vector<Request>> lists(below(random, 20));
        for (auto& list : lists)
            if (below(random, 5) > 0) list = random_list(random, 300, below(random, 2) == 0);
        const FileWindow window{below(random, 100), 150 + below(random, 200)};
        const std::vector<Request> runs = merged(lists, window);
        const std::set<uint64_t> expected = bytes_of(lists, window);
        EXPECT_EQ(bytes_of({runs}, {0, 1000}), expected) << "seed " << seed;
        EXPECT_EQ(total_bytes(runs), expected.size()) << "seed " << seed;
        for (size_t i = 1; i < runs.size(); ++i)
            EXPECT_GT(runs[i].offset, runs[i - 1].end()) << "not coalesced, seed " << seed;
    }
}

TEST(RequestListTest, FindsWhatLiesInAWindow) {
    for (const uint64_t seed : seeds(1, 300)) {
        Random random(seed);
        const bool overlapping = below(random, 2) == 0;
        const std::vector<Request> all = random_list(random, 200, overlapping);
        const RequestList list(all, overlapping);
        const uint64_t begin = below(random, 250);
        const FileWindow window{begin, begin + 1 + below(random, 60)};
        const RequestList::Range range = list.within(window);
        for (size_t i = 0; i < all.size(); ++i) {
            const bool inside = clip(all[i], window).bytes > 0;
            const bool in_range = range.first <= i && i < range.last;
            EXPECT_TRUE(in_range == inside || (overlapping && !inside))
                << "request " << i << ", seed " << seed;
        }
    }
}

TEST(SummariseTest, TellsWhatAListTouches) {
    const std::vector<Request> list = {{100, 10}, {110, 5}, {200, 1}};
    const auto summary = summarise(list, true, "file");
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(summary->requests, 3u);
    EXPECT_EQ(summary->bytes, 16u);
    EXPECT_EQ(summary->begin, 100u);
    EXPECT_EQ(summary->end, 201u);
    EXPECT_FALSE(summary->overlapping);
}

TEST(SummariseTest, RefusesWhatCannotBeWritten) {
    const std::vector<Request> unordered = {{100, 10}, {50, 10}};
    EXPECT_THAT(summarise(unordered, false, "f").status().message(), HasSubstr("non-decreasing order"));
    const std::vector<Request> overlapping = {{100, 10}, {105, 10}};
    EXPECT_THAT(summarise(overlapping, true, "f").status().message(), HasSubstr("overlaps an earlier one"));
    EXPECT_TRUE(summarise(overlapping, false, "f")->overlapping);
    const std::vector<Request> beyond = {{INT64_MAX, 1}};
    EXPECT_THAT(summarise(beyond, false, "f").status().message(),
                HasSubstr("beyond the greatest size of a file"));
}

TEST(RunWalkTest, SaysWhereARequestIsAmongThePackedBytes) {
    const std::vector<Request> runs = {{10, 5}, {20, 5}, {40, 10}};
    RunWalk walk(runs);
    EXPECT_EQ(walk.place({12, 2}), 2u);
    EXPECT_EQ(walk.place({20, 1}), 5u);
    EXPECT_EQ(walk.place({24, 1}), 9u);
    EXPECT_EQ(walk.place({45, 5}), 15u);
}

}  // namespace tailrace::internal::collective
