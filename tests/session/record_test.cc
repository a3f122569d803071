// Sessions keep a record of their epochs, with messages in the background and without; and a trace when
// asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "agent/recorder.h"
#include "base/log.h"
#include "doubles/memory_storage.h"
#include "record/record_file.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::SizeIs;

std::string text_of(Storage& storage, const std::string& path) {
    auto file = storage.open(path, {Access::read, DirectIo::off});
    if (!file.ok()) return "";
    std::string text((*file)->size().value(), ' ');
    EXPECT_TRUE((*file)->read_at(std::as_writable_bytes(std::span(text)), 0).ok());
    return text;
}

std::vector<json> lines_of(const std::string& text) {
    std::vector<json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
}

void save_epochs(const Job& job, uint64_t first, uint64_t last) {
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = first; epoch <= last; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        ASSERT_TRUE(session.close().ok());
    });
}

uint64_t sum(const json& nodes, const char* field) {
    uint64_t bytes = 0;
    for (const json& node : nodes) bytes += node.value(field, uint64_t{0});
    return bytes;
}

TEST(RecordTest, EveryEpochHasOneLineWithTheNumbersOfEveryNode) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(3, 2));
        job.concurrent = concurrent;
        job.config.files = 1;
        job.config.record_dir = "/records";
        job.config.shared_every = 2;
        save_epochs(job, 1, 3);
        const auto path = record_path("/records", job.config.name, job.config.shared_dir);
        const auto lines = lines_of(text_of(*machines.local_of("m0"), path));
        ASSERT_THAT(lines, SizeIs(5));
        EXPECT_EQ(lines[0]["record"], "session");
        EXPECT_EQ(lines[0]["ranks"], 6);
        EXPECT_EQ(lines[0]["nodes"], 3);
        EXPECT_EQ(lines[0]["settings"]["files"], "1");
        EXPECT_EQ(lines[4]["record"], "end");
        EXPECT_EQ(lines[4]["epochs"], 3);
        for (const json& line : lines) EXPECT_EQ(line["run_uid"], lines[0]["run_uid"]);
        int committed = 0;
        for (size_t i = 1; i < 4; ++i) {
            const json& epoch = lines[i];
            ASSERT_EQ(epoch["record"], "epoch");
            EXPECT_EQ(epoch["capture"]["ranks"], 6) << epoch;
            if (epoch["epoch"] == 2) {
                EXPECT_EQ(epoch["state"], "kept_local");
                EXPECT_THAT(epoch["nodes"], SizeIs(0));
                continue;
            }
            EXPECT_EQ(epoch["state"], "committed");
            ++committed;
            ASSERT_THAT(epoch["nodes"], SizeIs(3)) << epoch;
            const uint64_t written =
                sum(epoch["nodes"], "local_bytes") + sum(epoch["nodes"], "received_bytes");
            EXPECT_EQ(written, epoch["capture"]["bytes"].get<uint64_t>());
            EXPECT_EQ(sum(epoch["nodes"], "sent_bytes"), sum(epoch["nodes"], "received_bytes"));
            EXPECT_EQ(sum(epoch["nodes"], "received_bytes") > 0, concurrent);
            for (const json& node : epoch["nodes"]) {
                if (node["role"] != "leader") continue;
                uint64_t bytes = 0;
                for (const json& thread : node["threads"])
                    bytes += thread["local_bytes"].get<uint64_t>() + thread["received_bytes"].get<uint64_t>();
                EXPECT_EQ(bytes,
                          node["local_bytes"].get<uint64_t>() + node["received_bytes"].get<uint64_t>());
                const double phases =
                    node["plan_seconds"].get<double>() + node["prepare_seconds"].get<double>() +
                    node["move_seconds"].get<double>() + node["commit_seconds"].get<double>();
                EXPECT_GT(phases, 0);
                EXPECT_LE(phases, node["seconds"].get<double>());
            }
        }
        EXPECT_EQ(committed, 2);
    }
}

TEST(RecordTest, SaysHowEachNodeProtectedAnEpoch) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        Machines machines;
        auto job = job_on(machines, hosts_of(4, 2));
        job.concurrent = concurrent;
        job.config.record_dir = "/records";
        job.config.shared_every = 2;
        job.config.redundancy = "partner";
        job.config.redundancy_every = 2;
        save_epochs(job, 1, 4);
        const auto path = record_path("/records", job.config.name, job.config.shared_dir);
        int with = 0;
        for (const json& line : lines_of(text_of(*machines.local_of("m0"), path))) {
            if (line["record"] != "epoch") continue;
            const bool to_protect = line["epoch"].get<uint64_t>() % 2 == 1;
            ASSERT_EQ(line.contains("protected"), to_protect) << line;
            if (!to_protect) continue;
            ++with;
            EXPECT_EQ(line["protected"], true);
            ASSERT_THAT(line["protection"], SizeIs(4)) << line;
            for (const json& node : line["protection"]) {
                EXPECT_EQ(node["protected"], true);
                EXPECT_GT(node["seconds"].get<double>(), 0);
            }
            // Parts have headers besides their regions, and objects have heads.
            EXPECT_GT(sum(line["protection"], "sent_bytes"), line["capture"]["bytes"].get<uint64_t>());
            EXPECT_GT(sum(line["protection"], "kept_bytes"), sum(line["protection"], "sent_bytes"));
        }
        EXPECT_EQ(with, 2);
    }
}

TEST(RecordTest, LaterRunsAreAppendedAndNothingLiesInTheSharedDirectory) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.record_dir = "/records";
    save_epochs(job, 1, 1);
    save_epochs(job, 2, 2);
    const auto path = record_path("/records", job.config.name, job.config.shared_dir);
    const auto lines = lines_of(text_of(*machines.local_of("m0"), path));
    ASSERT_THAT(lines, SizeIs(6));
    EXPECT_NE(lines[0]["run_uid"], lines[3]["run_uid"]);
    EXPECT_THAT(shared_names(machines, job.config), SizeIs(2 * job.config.files));
    EXPECT_EQ(text_of(*machines.local_of("m1"), path), "") << "one node keeps the record";
}

TEST(RecordTest, BlockedIsWhatOneRankWaitedAndCaptured) {
    MemoryStorage storage;
    Config config;
    config.record_dir = "/records";
    SessionRecord session;
    session.nodes = 1;
    Recorder recorder(config, session, 0, true, storage);
    recorder.begin({});
    for (const uint64_t epoch : {1, 2}) {
        NodeCaptured captured{0, epoch, {{epoch, 1}}, true, {}};
        captured.capture = capture_numbers(10, 4, 0);       // a rank with much data
        captured.capture.add(capture_numbers(10, 0.5, 3));  // one that came first and waited
        recorder.hear(AgentMessage(captured));
        recorder.hear(AgentMessage(EpochEnded{{epoch, 1}, EpochState::kept_local, {}, 0, true}));
    }
    recorder.finish();
    const auto lines = lines_of(text_of(storage, record_path("/records", config.name, config.shared_dir)));
    ASSERT_THAT(lines, SizeIs(4));
    EXPECT_EQ(lines[1]["capture"]["most_blocked_seconds"], 4);
    EXPECT_EQ(lines[3]["blocked_seconds"], 8);
}

TEST(RecordTest, CanBeSwitchedOffAndAFailureIsNoneOfTheEpochs) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.record_dir = "/records";
    job.config.record = false;
    save_epochs(job, 1, 1);
    EXPECT_FALSE(machines.local_of("m0")->list("/records").ok());
    // A file is where the directory should be.
    ASSERT_TRUE(machines.local_of("m0")->open("/records", {Access::create_new, DirectIo::off}).ok());
    job.config.record = true;
    save_epochs(job, 2, 2);
}

TEST(RecordTest, WhatFillsUpUnderwayIsToldOnce) {
    MemoryStorage storage;
    Config config;
    config.record_dir = "/records";
    SessionRecord session;
    session.nodes = 1;
    std::mutex mutex;
    std::vector<std::string> told;
    set_log_level(LogLevel::info);
    set_log_callback([&](LogLevel, std::string_view message) {
        std::lock_guard lock(mutex);
        told.emplace_back(message);
    });
    {
        Recorder recorder(config, session, 0, true, storage);
        recorder.begin({});
        storage.set_capacity(0);
        for (uint64_t epoch = 1; epoch <= 3; ++epoch)
            recorder.hear(AgentMessage(EpochEnded{
                {epoch, 1}, EpochState::failed, Status(Code::io_error, std::string(5000, 'x')), 0, true}));
        recorder.finish();
    }
    set_log_callback({});
    set_log_level(LogLevel::warning);
    ASSERT_THAT(told, SizeIs(1));
    EXPECT_THAT(told.front(),
                testing::HasSubstr("the record of this session's epochs ends; checkpoints go on"));
}

TEST(RecordTest, EveryNodeWritesATraceWithEveryChunk) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.files = 1;
    job.config.trace_dir = "/traces";
    save_epochs(job, 1, 2);
    uint64_t sent = 0, received = 0, written = 0;
    for (const int node : {0, 1}) {
        const std::string name = "job.r0001.node" + std::to_string(node) + ".trace.json";
        const json trace =
            json::parse(text_of(*machines.local_of("m" + std::to_string(node)), join_path("/traces", name)));
        for (const json& event : trace) {
            if (event["ph"] != "X") continue;
            EXPECT_EQ(event["pid"], node);
            EXPECT_GE(event["dur"].get<int64_t>(), 0);
            const uint64_t bytes = event["args"]["bytes"];
            if (event["name"] == "send") sent += bytes;
            if (event["name"] == "receive") received += bytes;
            if (event["name"] == "write local" || event["name"] == "write received") written += bytes;
        }
    }
    EXPECT_GT(sent, 0u);
    EXPECT_EQ(sent, received);
    EXPECT_GT(written, received);
}

}  // namespace
}  // namespace tailrace::internal
