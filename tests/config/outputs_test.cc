// Outputs: where a session with purpose = outputs keeps its epochs, and how many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace tailrace::internal {
namespace {

TEST(OutputsTest, OutputsHaveTheirOwnDirectoryAndRetention) {
    Config config;
    config.name = "run";
    config.shared_dir = "/scratch";
    config.purpose = Purpose::outputs;
    config.keep_outputs = 3;
    for (int times = 0; times < 2; ++times) {
        ASSERT_TRUE(complete_config(config, 1).ok());
        EXPECT_EQ(config.shared_dir, "/scratch/run.outputs");
        EXPECT_EQ(config.keep_shared, 3u);
    }
    Config named;  // by its own directory
    named.name = "run";
    named.shared_dir = "/scratch/run.outputs";
    named.purpose = Purpose::outputs;
    named.keep_outputs = 3;
    ASSERT_TRUE(complete_config(named, 1).ok());
    EXPECT_EQ(named.shared_dir, "/scratch/run.outputs");
    EXPECT_EQ(named.keep_shared, 3u);
    named.keep_shared = 2;
    EXPECT_EQ(complete_config(named, 1).code(), Code::invalid_argument);
    Config both;
    both.shared_dir = "/scratch";
    both.purpose = Purpose::outputs;
    both.keep_shared = 2;
    const Status refused = complete_config(both, 1);
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_THAT(refused.message(), testing::HasSubstr("keep_outputs"));
}

}  // namespace
}  // namespace tailrace::internal
