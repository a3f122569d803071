#include "drain/tier_pass.h"

#include <gmock/gmock.h>

#include "drain/node_drain_fixture.h"

namespace tailrace::internal {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class TierPassTest : public testing_support::NodeDrainFixture {
  protected:
    std::vector<DirectoryPass> pass(int node, const std::string& job = "") {
        const auto local = machines_.local_of(host_of(node));
        NodeDrain drain(config_, local, machines_.shared);
        std::vector<DirectoryPass> heard;
        const auto skipped = pass_over_tier(
            *local, config_.local_dir, job,
            [&](const std::string& directory) { return drain.pass(directory, testing_support::never); },
            [&](const DirectoryPass& passed) { heard.push_back(passed); });
        EXPECT_TRUE(skipped.ok() && skipped->empty());
        return heard;
    }
};

TEST_F(TierPassTest, EveryRecordIsToldOfOrNamedWithAReason) {
    run_and_die_planned(2);
    const auto local = machines_.local_of("m1");
    const auto damaged = join_path(directory_of(1), records_of(1).front());
    OpenOptions write;
    write.access = Access::write;
    ASSERT_TRUE((*local->open(damaged, write))->truncate(20).ok());
    {
        const auto lock = local->lock_directory(directory_of(1));
        const auto heard = pass(1);
        ASSERT_THAT(heard, SizeIs(1));
        EXPECT_EQ(heard[0].pass.busy.code(), Code::busy);
        ASSERT_THAT(heard[0].untold, SizeIs(2));
        EXPECT_EQ(heard[0].untold[0].why.code(), Code::corrupt);
        EXPECT_EQ(heard[0].untold[1].why.code(), Code::busy);
        EXPECT_FALSE(heard[0].untold[1].shared_dir.empty());
    }
    const auto heard = pass(1);
    ASSERT_THAT(heard, SizeIs(1));
    EXPECT_EQ(heard[0].directory, directory_of(1));
    EXPECT_THAT(heard[0].pass.epochs, SizeIs(1));
    ASSERT_THAT(heard[0].untold, SizeIs(1));
    EXPECT_EQ(heard[0].untold[0].path, damaged);
    EXPECT_EQ(heard[0].untold[0].name.key.epoch, 1u);
    EXPECT_EQ(heard[0].untold[0].why.code(), Code::corrupt);
}

TEST_F(TierPassTest, OnlyDirectoriesOfTheJobAreVisited) {
    run_and_die_planned(1);
    EXPECT_THAT(pass(0, "other"), IsEmpty());
    EXPECT_THAT(pass(0, config_.name), SizeIs(1));
    EXPECT_EQ(job_of_directory("/local/a-b-0123.node0001"), "a-b");
    EXPECT_EQ(job_of_directory("/local/agent"), "");
}

}  // namespace
}  // namespace tailrace::internal
