// Hyperslabs against the simplest thing that can be right: element by element, with indices counted out.
#include "array/hyperslab.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

namespace tailrace::internal {
namespace {

using Index = std::vector<uint64_t>;

uint64_t seed_of_this_run() {
    const char* given = std::getenv("TAILRACE_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    testing::Test::RecordProperty("seed", std::to_string(seed));
    return seed;
}

// All indices of a box in row-major order.
std::vector<Index> all_indices(const Box& box) {
    std::vector<Index> indices;
    const uint64_t count = box.elements();
    for (uint64_t n = 0; n < count; ++n) {
        Index index(box.shape.size());
        uint64_t rest = n;
        for (size_t d = box.shape.size(); d-- > 0;) {
            index[d] = box.offset[d] + rest % box.shape[d];
            rest /= box.shape[d];
        }
        indices.push_back(index);
    }
    return indices;
}

bool inside(const Index& index, const Box& box) {
    for (size_t d = 0; d < index.size(); ++d)
        if (index[d] < box.offset[d] || index[d] >= box.offset[d] + box.shape[d]) return false;
    return true;
}

uint64_t linear(const Index& index, const Box& box) {
    uint64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at = at * box.shape[d] + (index[d] - box.offset[d]);
    return at;
}

Box random_box(std::mt19937_64& random, size_t dimensions, uint64_t smallest_extent) {
    Box box;
    for (size_t d = 0; d < dimensions; ++d) {
        box.offset.push_back(random() % 4);
        box.shape.push_back(smallest_extent + random() % 5);
    }
    return box;
}

// A box inside `whole`; often full in some dimensions, so that rows merge.
Box random_part(std::mt19937_64& random, const Box& whole) {
    Box part = whole;
    for (size_t d = 0; d < whole.shape.size(); ++d) {
        if (random() % 2 == 0 || whole.shape[d] == 0) continue;
        const uint64_t from = random() % whole.shape[d];
        part.offset[d] += from;
        part.shape[d] = random() % (whole.shape[d] - from + 1);
    }
    return part;
}

// A box that contains `part`.
Box random_whole(std::mt19937_64& random, const Box& part) {
    Box whole = part;
    for (size_t d = 0; d < part.shape.size(); ++d) {
        if (random() % 2 == 0) continue;
        const uint64_t before = std::min<uint64_t>(part.offset[d], random() % 3);
        whole.offset[d] -= before;
        whole.shape[d] += before + random() % 3;
    }
    return whole;
}

class HyperslabTest : public testing::Test {
  protected:
    HyperslabTest() : seed_(seed_of_this_run()), random_(seed_) {}
    ~HyperslabTest() override {
        if (HasFailure())
            std::printf("replay with TAILRACE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    }
    size_t dimensions() { return 1 + random_() % 5; }

    const uint64_t seed_;
    std::mt19937_64 random_;
};

TEST_F(HyperslabTest, IntersectionHoldsExactlyTheElementsOfBoth) {
    for (int round = 0; round < 500; ++round) {
        const size_t dims = dimensions();
        const Box a = random_box(random_, dims, 0), b = random_box(random_, dims, 0);
        std::vector<Index> expected;
        for (const Index& index : all_indices(a))
            if (inside(index, b)) expected.push_back(index);
        const auto common = intersect(a, b);
        ASSERT_EQ(common.has_value(), !expected.empty());
        if (common) {
            ASSERT_EQ(all_indices(*common), expected);
        }
    }
}

TEST_F(HyperslabTest, SubtractionLeavesEveryOtherElementOnce) {
    for (int round = 0; round < 500; ++round) {
        const size_t dims = dimensions();
        const Box from = random_box(random_, dims, 0), taken = random_box(random_, dims, 0);
        std::multiset<Index> expected, left;
        for (const Index& index : all_indices(from))
            if (!inside(index, taken)) expected.insert(index);
        const auto boxes = subtract(from, taken);
        ASSERT_LE(boxes.size(), 2 * dims);
        for (const Box& box : boxes)
            for (const Index& index : all_indices(box)) left.insert(index);
        ASSERT_EQ(left, expected);
    }
}

TEST_F(HyperslabTest, RunsAreThePartInOrderAndNoTwoTouch) {
    for (int round = 0; round < 500; ++round) {
        const Box whole = random_box(random_, dimensions(), 0);
        const Box part = random_part(random_, whole);
        std::vector<uint64_t> expected, elements;
        for (const Index& index : all_indices(part)) expected.push_back(linear(index, whole));
        uint64_t last_end = UINT64_MAX;
        for_each_run(whole, part, [&](uint64_t start, uint64_t count) {
            ASSERT_GT(count, 0u);
            ASSERT_NE(start, last_end) << "two runs that are one";
            last_end = start + count;
            for (uint64_t i = 0; i < count; ++i) elements.push_back(start + i);
        });
        ASSERT_EQ(elements, expected);
    }
}

TEST_F(HyperslabTest, CopyMovesExactlyThePart) {
    for (int round = 0; round < 500; ++round) {
        const Box part = random_box(random_, dimensions(), random_() % 4 == 0 ? 0 : 1);
        const Box source_box = random_whole(random_, part), target_box = random_whole(random_, part);
        const uint64_t width = uint64_t{1} << (random_() % 5);
        std::vector<std::byte> source(source_box.elements() * width), target(target_box.elements() * width);
        for (auto& byte : source) byte = static_cast<std::byte>(random_());
        for (auto& byte : target) byte = static_cast<std::byte>(random_());
        auto expected = target;
        for (const Index& index : all_indices(part))
            std::memcpy(expected.data() + linear(index, target_box) * width,
                        source.data() + linear(index, source_box) * width, width);
        copy_box(part, source_box, source, target_box, target, width);
        ASSERT_EQ(target, expected);
    }
}

TEST_F(HyperslabTest, CommonRunsAreContiguousInBothAndEquallyLong) {
    for (int round = 0; round < 500; ++round) {
        const Box part = random_box(random_, dimensions(), 1);
        const Box a = random_whole(random_, part), b = random_whole(random_, part);
        std::vector<std::pair<uint64_t, uint64_t>> expected, elements;
        for (const Index& index : all_indices(part))
            expected.emplace_back(linear(index, a), linear(index, b));
        std::set<uint64_t> counts;
        std::pair<uint64_t, uint64_t> last_end{UINT64_MAX, UINT64_MAX};
        for_each_common_run(part, a, b, [&](uint64_t in_a, uint64_t in_b, uint64_t count) {
            ASSERT_NE(last_end, std::make_pair(in_a, in_b)) << "two runs that are one";
            last_end = {in_a + count, in_b + count};
            counts.insert(count);
            for (uint64_t i = 0; i < count; ++i) elements.emplace_back(in_a + i, in_b + i);
        });
        ASSERT_EQ(elements, expected);
        ASSERT_EQ(counts, std::set<uint64_t>{common_run_elements(part, a, b)});
    }
}

TEST_F(HyperslabTest, WholeRowsMergeIntoOneRun) {
    size_t runs = 0;
    const Box whole{{0, 0, 0}, {10, 20, 30}};
    for_each_run(whole, Box{{2, 0, 0}, {5, 20, 30}}, [&](uint64_t start, uint64_t count) {
        ++runs;
        EXPECT_EQ(start, 2u * 600u);
        EXPECT_EQ(count, 5u * 600u);
    });
    EXPECT_EQ(runs, 1u);
}

TEST_F(HyperslabTest, NeighboursThatOnlyTouchDoNotOverlap) {
    EXPECT_EQ(intersect(Box{{0}, {5}}, Box{{5}, {5}}), std::nullopt);
    EXPECT_EQ(intersect(Box{{0, 0}, {5, 0}}, Box{{0, 0}, {5, 5}}), std::nullopt);
}

TEST_F(HyperslabTest, NothingIsLeftOfABoxWithoutItself) {
    const Box box{{3, 4}, {5, 6}};
    EXPECT_TRUE(subtract(box, box).empty());
    EXPECT_TRUE(subtract(Box{{0}, {0}}, Box{{7}, {1}}).empty());
}

}  // namespace
}  // namespace tailrace::internal
