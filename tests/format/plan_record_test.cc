#include "format/plan_record.h"

#include "format/hostile.h"

namespace tailrace::internal {
namespace {

Bytes sample() {
    return encode(golden_plan_record());
}

TEST(PlanRecordTest, EveryRecordComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 500; ++i) {
        auto record = random_plan_record(random);
        auto decoded = decode_plan_record(encode(record));
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, record);
    }
}

TEST(PlanRecordTest, TruncatedRecordIsCorrupt) {
    expect_truncations_corrupt(sample(), decode_plan_record);
}

TEST(PlanRecordTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(sample(), sample().size(), decode_plan_record);
}

TEST(PlanRecordTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(sample(), sample().size(), decode_plan_record);
}

TEST(PlanRecordTest, WrongFieldsAreCorrupt) {
    auto decode_with = [&](uint64_t offset, auto value) {
        return decode_plan_record(with(sample(), sample().size(), offset, value));
    };
    const uint64_t nodes_at = 236 + golden_plan_record().shared_dir.size();
    const uint64_t second_node_at = nodes_at + 8 + 4 + 4 + 5 + 8 + 2 * 24;
    expect_code(decode_with(44, uint32_t{2}), Code::corrupt, "its own node is 2");
    expect_code(decode_with(56, uint32_t{0}), Code::corrupt, "number of ranks");
    expect_code(decode_with(56, uint32_t{2}), Code::corrupt, "does not exist");  // rank 2 of 2
    expect_code(decode_with(60, uint32_t{1}), Code::corrupt, "nodes [0, 2) of 1");
    expect_code(decode_with(60, uint32_t{4}), Code::corrupt, "4 nodes for 3 ranks");
    expect_code(decode_with(64, uint32_t{0}), Code::corrupt, "number of files");
    expect_code(decode_with(72, UINT32_MAX), Code::corrupt, "nodes [4294967295");
    expect_code(decode_with(76, uint32_t{0}), Code::corrupt, "job name");
    expect_code(decode_with(120, uint64_t{01000}), Code::corrupt, "permission bits are 1000");
    expect_code(decode_with(236, uint8_t{'d'}), Code::corrupt, "absolute path");
    expect_code(decode_with(237, uint8_t{0}), Code::corrupt, "absolute path");
    expect_code(decode_with(nodes_at, uint64_t{3}), Code::corrupt, "too early or too late");
    expect_code(decode_with(nodes_at, UINT64_MAX), Code::corrupt, "too early or too late");
    expect_code(decode_with(nodes_at + 8, uint32_t{0}), Code::corrupt, "two nodes lead segment 0");
    expect_code(decode_with(nodes_at + 8, uint32_t{2}), Code::corrupt, "does not exist");
    expect_code(decode_with(nodes_at + 12, uint32_t{256}), Code::corrupt, "too early or too late");
    expect_code(decode_with(second_node_at + 22, uint32_t{1}), Code::corrupt, "twice");  // its rank
}

}  // namespace
}  // namespace tailrace::internal
