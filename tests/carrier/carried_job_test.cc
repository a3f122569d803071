#include "carrier/carried_job.h"

#include <gtest/gtest.h>

#include "session/cluster.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using testing_support::small_config;

JobContext sample_context() {
    JobContext context;
    context.config = small_config();
    context.config.buffer_bytes = 256 << 10;
    context.config.local_dir = "/l";
    context.config.shared_dir = "/s";
    context.config.ranks_per_node = 2;
    context.config.redundancy = "xor";
    EXPECT_TRUE(complete_config(context.config, 5).ok());
    context.hosts = {"a", "a", "a", "b", "b"};
    context.transport = std::move(make_in_process_transports(context.hosts)[2]);
    context.topology = make_topology(context.hosts, 2);
    context.node = 1;
    context.domains = {"x", "y", "z"};
    context.sets = make_sets(context.domains, *parse_redundancy("xor"), context.config.redundancy_set);
    context.tier = local_tier("/l", "/s", context.config.name);
    context.run = 4;
    context.run_uid = 99;
    context.file_rights = 0640;
    return context;
}

TEST(CarriedJobTest, AnAgentKnowsOfTheSessionWhatItsRepresentativeKnows) {
    const auto context = sample_context();
    auto job = carried_job_of(context, {0, 1, 0});
    job.brings_local_lock = true;
    const auto again = decode_carried_job(encode(job), 2);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    const auto& decoded = again->context;
    EXPECT_EQ(again->rank, 2);
    EXPECT_EQ(again->agent_of_node, job.agent_of_node);
    EXPECT_TRUE(again->brings_local_lock);
    EXPECT_FALSE(again->brings_shared_lock);
    EXPECT_EQ(decoded.hosts, context.hosts);
    EXPECT_EQ(decoded.topology, context.topology);
    EXPECT_EQ(decoded.node, context.node);
    EXPECT_EQ(decoded.sets, context.sets);
    EXPECT_EQ(decoded.run, context.run);
    EXPECT_EQ(decoded.run_uid, context.run_uid);
    EXPECT_EQ(decoded.block_bytes, context.block_bytes);
    EXPECT_EQ(decoded.file_rights, context.file_rights);
    EXPECT_EQ(decoded.tier.directory(1), context.tier.directory(1));
    for (const auto& key : config_keys())
        EXPECT_EQ(*get_config(decoded.config, key.name), *get_config(context.config, key.name)) << key.name;
}

TEST(CarriedJobTest, WhatDoesNotFitTogetherIsRefused) {
    const auto whole = carried_job_of(sample_context(), {0, 1, 0});
    const auto refused = [&](const std::function<void(CarriedJob&)>& spoil) {
        auto spoiled = whole;
        spoil(spoiled);
        return !decode_carried_job(encode(spoiled), 2).ok();
    };
    EXPECT_FALSE(refused([](CarriedJob&) {}));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.node = 3; }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.rank = 3; }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.agent_of_node[1] = 2; }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.agent_of_node.pop_back(); }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.hosts.clear(); }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.domains.pop_back(); }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.file_rights = 01000; }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.block_bytes = 0; }));
    EXPECT_TRUE(refused([](CarriedJob& j) { j.context.block_bytes = 4096 * 4096; }));
}

TEST(CarriedJobTest, BytesThatAreCutShortAreRefused) {
    const auto whole = encode(carried_job_of(sample_context(), {0, 1, 0}));
    for (size_t length = 0; length < whole.size(); length += 3)
        EXPECT_FALSE(decode_carried_job(std::span(whole).first(length), 2).ok()) << length;
}

TEST(CarriedJobTest, RecoveredEpochsSurviveARoundTrip) {
    FlushJob job;
    job.job = "j";
    job.key = {7, 2};
    job.run_uid = 5;
    job.rank_count = 3;
    job.streams = {{{1, 100, 64, 9}, "/l/j.node0/part", 128}};
    const auto bytes = encode(std::vector<FlushJob>{job, job});
    const auto again = decode_flush_jobs(bytes);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->size(), 2u);
    EXPECT_EQ((*again)[1].streams[0].path, job.streams[0].path);
    EXPECT_TRUE(encode(*again) == bytes);
    for (size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode_flush_jobs(std::span(bytes).first(length)).ok());
}

TEST(CarriedJobTest, PartsAreTakenFromTheAgentsOwnTierOnly) {
    EXPECT_TRUE(check_part_path("/l/job.node0/part", "/l").ok());
    EXPECT_TRUE(check_part_path("/l/job.node0/part", "/l/").ok());
    EXPECT_FALSE(check_part_path("/l/part", "/l").ok()) << "in no node's directory";
    EXPECT_FALSE(check_part_path("/l/a/job.node0/part", "/l").ok());
    EXPECT_FALSE(check_part_path("/l/job.node0/..", "/l").ok());
    EXPECT_FALSE(check_part_path("/other/job.node0/part", "/l").ok());
    EXPECT_FALSE(check_part_path("/l/../etc/passwd", "/l").ok());
    EXPECT_FALSE(check_part_path("/l2/part", "/l").ok());
    EXPECT_FALSE(check_part_path("", "/l").ok());
}

}  // namespace
}  // namespace tailrace::internal
