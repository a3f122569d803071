#include "agent_process/agent_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;

// Whoever waits for a message that could not be sent must not wait for ever.
TEST(AgentSocketTest, BothEndsLearnThatAMessageIsMissing) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    AgentConnection ours{Descriptor(ends[0])}, theirs{Descriptor(ends[1])};
    EXPECT_FALSE(ours.try_send(LineBytes{std::vector<std::byte>(64 << 20)}).ok()) << "no socket takes that";
    const auto heard = theirs.receive(60s);
    EXPECT_EQ(heard.status().code(), Code::transport) << heard.status().to_string();
    EXPECT_FALSE(ours.receive(60s).ok());
}

TEST(AgentSocketTest, WhatADeadProcessHadSentIsHeardThoughItHadNotReadEverything) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    AgentConnection agent{Descriptor(ends[0])};
    {
        AgentConnection program{Descriptor(ends[1])};
        ASSERT_TRUE(agent.send(LineBytes{std::vector<std::byte>(1)}).ok());
        for (size_t bytes = 2; bytes < 5; ++bytes)
            ASSERT_TRUE(program.send(LineBytes{std::vector<std::byte>(bytes)}).ok());
    }
    for (size_t bytes = 2; bytes < 5; ++bytes) {
        const auto heard = agent.receive(60s);
        ASSERT_TRUE(heard.ok() && *heard) << heard.status().to_string();
        EXPECT_EQ(std::get<LineBytes>(**heard).bytes.size(), bytes);
    }
    EXPECT_EQ(agent.receive(60s).status().code(), Code::transport);
}

TEST(AgentSocketTest, AChildOfTheProgramKeepsNoConnection) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    AgentConnection theirs{Descriptor(ends[1])};
    pid_t child = -1;
    {
        const AgentConnection ours{Descriptor(ends[0])};
        child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
    }
    const auto heard = theirs.receive(5s);
    EXPECT_EQ(heard.status().code(), Code::transport) << "the program is gone, and its child lives";
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace tailrace::internal
