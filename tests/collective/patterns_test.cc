// What layer one makes of the patterns of BTIO and S3D-IO: the exact numbers of requests that follow from the
// patterns, with ranks in blocks and the larger groups first.
#include <gtest/gtest.h>

#include <functional>

#include "collective/plan.h"
#include "io_patterns.h"

namespace tailrace::internal::collective {

namespace {

using Pattern = std::function<std::vector<Request>(int rank)>;

uint64_t requests_after_layer_one(const Pattern& pattern, int ranks, int aggregators) {
    const Topology topology = make_topology(std::vector<std::string>(static_cast<size_t>(ranks), "node"), 0);
    const Groups groups = make_groups(topology, aggregators, {true});
    uint64_t requests = 0;
    for (const int aggregator : groups.aggregators) {
        std::vector<std::vector<Request>> lists;
        for (const int rank : groups.members(aggregator)) lists.push_back(pattern(rank));
        const std::vector<std::span<const Request>> spans(lists.begin(), lists.end());
        std::vector<Request> runs;
        merge(spans, runs);
        requests += runs.size();
    }
    return requests;
}

struct Case {
    const char* name;
    int ranks;
    Pattern pattern;
    int aggregators;
    uint64_t requests;
};

Pattern btio(int n, int ranks) {
    return [=](int rank) { return patterns::btio(n, ranks, rank); };
}
Pattern s3d(int px, int py, int pz) {
    return [=](int rank) { return patterns::s3d(40, px, py, pz, rank); };
}

}  // namespace

TEST(PatternsTest, LayerOneLeavesExactlyTheRequestsOfThePattern) {
    const Case cases[] = {
        {"BTIO 8^3", 4, btio(8, 4), 4, 127},       {"BTIO 8^3", 4, btio(8, 4), 2, 15},
        {"BTIO 8^3", 4, btio(8, 4), 1, 1},         {"BTIO 16^3", 4, btio(16, 4), 4, 511},
        {"BTIO 16^3", 4, btio(16, 4), 2, 31},      {"BTIO 16^3", 4, btio(16, 4), 1, 1},
        {"BTIO 16^3", 9, btio(16, 9), 9, 768},     {"BTIO 16^3", 9, btio(16, 9), 8, 687},
        {"BTIO 16^3", 9, btio(16, 9), 4, 360},     {"BTIO 16^3", 9, btio(16, 9), 2, 189},
        {"BTIO 16^3", 9, btio(16, 9), 1, 1},       {"BTIO 16^3", 16, btio(16, 16), 16, 1024},
        {"BTIO 16^3", 16, btio(16, 16), 8, 544},   {"BTIO 16^3", 16, btio(16, 16), 4, 64},
        {"BTIO 16^3", 16, btio(16, 16), 2, 34},    {"BTIO 16^3", 16, btio(16, 16), 1, 1},
        {"S3D 2x2x2", 8, s3d(2, 2, 2), 8, 51200},  {"S3D 2x2x2", 8, s3d(2, 2, 2), 4, 1280},
        {"S3D 2x2x2", 8, s3d(2, 2, 2), 2, 32},     {"S3D 2x2x2", 8, s3d(2, 2, 2), 1, 1},
        {"S3D 8x1x1", 8, s3d(8, 1, 1), 8, 204800}, {"S3D 8x1x1", 8, s3d(8, 1, 1), 4, 102400},
        {"S3D 8x1x1", 8, s3d(8, 1, 1), 2, 51200},  {"S3D 8x1x1", 8, s3d(8, 1, 1), 1, 1},
    };
    for (const Case& c : cases)
        EXPECT_EQ(requests_after_layer_one(c.pattern, c.ranks, c.aggregators), c.requests)
            << c.name << ", " << c.ranks << " ranks, " << c.aggregators << " local aggregators";
}

// Every byte of the file belongs to exactly one rank.
TEST(PatternsTest, RanksCoverTheFileOnce) {
    const patterns::Irregular irregular{7, 3, 500, 120, 9};
    const Case cases[] = {
        {"BTIO", 9, [](int rank) { return patterns::btio(10, 9, rank, 3); }, 1, patterns::btio_bytes(10, 3)},
        {"S3D", 8, s3d(2, 2, 2), 1, patterns::s3d_bytes(40)},
        {"irregular", 7, [&](int rank) { return patterns::irregular(irregular, rank); }, 1,
         patterns::irregular_bytes(irregular)},
    };
    for (const Case& c : cases) {
        std::vector<std::vector<Request>> lists;
        for (int rank = 0; rank < c.ranks; ++rank) {
            lists.push_back(c.pattern(rank));
            EXPECT_TRUE(summarise(lists.back(), true, c.name).ok());
        }
        const std::vector<std::span<const Request>> spans(lists.begin(), lists.end());
        std::vector<Request> runs;
        EXPECT_EQ(merge(spans, runs).overlapping_bytes, 0u) << c.name;
        ASSERT_EQ(runs.size(), 1u) << c.name;
        EXPECT_EQ(runs[0], (Request{0, c.requests})) << c.name;
    }
}

}  // namespace tailrace::internal::collective
