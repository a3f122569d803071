#include "agent_process/agent_messages.h"

#include <gtest/gtest.h>

#include "aggregate/seeds.h"

namespace tailrace::internal {
namespace {

AgentStatus sample_status() {
    AgentStatus status;
    status.process = 77;
    status.started_unix_ms = 1700000000000;
    status.sessions = 2;
    status.working = true;
    status.busy = "a session";
    DrainedEpoch epoch;
    epoch.job = "job";
    epoch.key = {12, 3};
    epoch.shared_dir = "/shared";
    epoch.state = DrainedEpoch::State::failed;
    epoch.why = Status(Code::corrupt, "damaged");
    epoch.waiting_for = {{1, 1, "b"}, {2, 3}};
    epoch.own_bytes = 99;
    epoch.wrote = true;
    status.epochs = {epoch, epoch};
    status.carries = true;
    CarriedStatus carried;
    carried.job = "job";
    carried.shared_dir = "/shared";
    carried.run = 3;
    carried.nodes = 2;
    carried.ranks = 8;
    carried.connected = 4;
    carried.epochs = 1;
    status.carried = {carried};
    return status;
}

std::vector<AgentProcessMessage> samples() {
    return {SessionOpens{"/shared"},
            SessionOpened{},
            StatusAsked{},
            DrainAsked{},
            EndAsked{1500},
            MayOpen{CarrierPlace{7, 1, 2}},
            MayOpen{},
            sample_status(),
            LineBytes{{std::byte{1}, std::byte{2}}}};
}

TEST(AgentProcessMessageTest, EveryKindSurvivesARoundTrip) {
    for (const auto& message : samples()) {
        const auto again = decode_agent_process_message(encode(message));
        ASSERT_TRUE(again.ok()) << again.status().to_string();
        EXPECT_EQ(again->index(), message.index());
        EXPECT_TRUE(encode(*again) == encode(message));
    }
    EXPECT_EQ(std::get<EndAsked>(*decode_agent_process_message(encode(EndAsked{1500}))).grace_ms, 1500u);
    const auto status = std::get<AgentStatus>(*decode_agent_process_message(encode(sample_status())));
    ASSERT_EQ(status.epochs.size(), 2u);
    EXPECT_EQ(status.epochs[1].waiting_for, sample_status().epochs[1].waiting_for);
    EXPECT_EQ(status.epochs[1].why.message(), "damaged");
}

TEST(AgentProcessMessageTest, AStatusOfAnyLengthFitsInAPacket) {
    auto status = sample_status();
    status.busy.assign(100000, 'b');
    status.epochs[0].shared_dir.assign(100000, 'd');
    status.epochs[0].waiting_for.assign(1000, {1, 1, std::string(1000, 'n')});
    status.epochs.assign(1000, status.epochs[0]);
    status.epochs.back().key.epoch = 13;
    const auto bytes = encode(status);
    EXPECT_LE(bytes.size(), max_agent_message_bytes);
    const auto again = decode_agent_process_message(bytes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(std::get<AgentStatus>(*again).epochs.back().key.epoch, 13u) << "the newest are told";
}

AgentStatus told(const AgentStatus& status) {
    const auto bytes = encode(status);
    EXPECT_LE(bytes.size(), max_agent_message_bytes);
    const auto message = decode_agent_process_message(bytes);
    EXPECT_TRUE(message.ok()) << message.status().to_string();
    return message.ok() ? std::get<AgentStatus>(*message) : AgentStatus();
}

TEST(AgentProcessMessageTest, LongTextsAreToldWhole) {
    const std::string path = "/" + std::string(4000, 'p');
    auto status = sample_status();
    status.busy = status.failed = path + " is busy";
    status.epochs[0].job.assign(250, 'j');
    status.epochs[0].shared_dir = path;
    status.epochs[0].why = Status(Code::corrupt, path + " and " + path);
    status.epochs[0].waiting_for = {{1, 1, std::string(250, 'h')}};
    status.carried[0].job.assign(250, 'j');
    status.carried[0].shared_dir = path;
    const auto heard = told(status);
    EXPECT_EQ(heard.busy, status.busy);
    EXPECT_EQ(heard.failed, status.failed);
    EXPECT_EQ(heard.epochs[0].job, status.epochs[0].job);
    EXPECT_EQ(heard.epochs[0].shared_dir, path);
    EXPECT_EQ(heard.epochs[0].why.message(), status.epochs[0].why.message());
    EXPECT_EQ(heard.epochs[0].waiting_for, status.epochs[0].waiting_for);
    EXPECT_EQ(heard.carried[0].job, status.carried[0].job);
    EXPECT_EQ(heard.carried[0].shared_dir, path);
}

TEST(AgentProcessMessageTest, TextsThatDoNotFitAreMarkedAsCutAndShortOnesAreWhole) {
    auto status = sample_status();
    status.epochs[0].shared_dir.assign(3000, 'd');
    status.epochs[0].why = Status(Code::corrupt, std::string(20000, 'w'));
    status.epochs.assign(max_status_epochs, status.epochs[0]);
    status.busy.assign(1000, 'b');
    const auto heard = told(status);
    EXPECT_TRUE(heard.epochs[0].why.message().ends_with("w..."));
    EXPECT_TRUE(heard.epochs[0].shared_dir.ends_with("d..."));
    EXPECT_EQ(heard.busy, status.busy);
}

TEST(AgentProcessMessageTest, NodesThatAreNotNamedLieInARange) {
    auto status = sample_status();
    auto& waiting = status.epochs[0].waiting_for;
    waiting.clear();
    for (uint32_t node = 1; node <= 5; ++node) waiting.push_back({node, node, "h"});
    EXPECT_EQ(to_string(told(status).epochs[0].waiting_for),
              "node 1 (h), node 2 (h), node 3 (h), node 4 (h), node 5 (h)");
    for (uint32_t node = 6; node <= 40; ++node) waiting.push_back({node, node, "h"});
    EXPECT_EQ(to_string(told(status).epochs[0].waiting_for),
              "node 1 (h), node 2 (h), node 3 (h), node 4 (h), some of nodes 5 to 40");
}

TEST(AgentProcessMessageTest, DamagedBytesAreRefused) {
    for (const auto& message : samples()) {
        const auto bytes = encode(message);
        for (size_t count = 0; count < bytes.size(); ++count)
            EXPECT_FALSE(decode_agent_process_message(std::span(bytes).first(count)).ok());
        auto longer = bytes;
        longer.push_back(std::byte{0});
        EXPECT_FALSE(decode_agent_process_message(longer).ok());
    }
    for (const uint64_t seed : seeds(1, 2000)) {
        Random random(seed);
        auto bytes = encode(sample_status());
        for (int i = 0; i < 3; ++i) bytes[below(random, bytes.size())] = static_cast<std::byte>(random());
        (void)decode_agent_process_message(bytes);  // any answer, but no crash
    }
}

TEST(AgentProcessMessageTest, AnotherVersionIsNamed) {
    auto bytes = encode(StatusAsked{});
    bytes[4] = std::byte{9};
    const auto decoded = decode_agent_process_message(bytes);
    EXPECT_EQ(decoded.status().code(), Code::unsupported);
    EXPECT_NE(decoded.status().message().find("versions 9 and 4"), std::string::npos)
        << decoded.status().message();
}

}  // namespace
}  // namespace tailrace::internal
