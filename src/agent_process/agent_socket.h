// The agent's socket: a SOCK_SEQPACKET socket in a directory of the node-local tier that belongs to
// this user alone (<local_dir>/agent, mode 0700).
//
// Both ends check that the other one is a process of the same user (SO_PEERCRED). The directory is
// reached without following a link (storage/own_directories.h), so another user can neither plant a
// socket nor listen at ours.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent_process/agent_messages.h"
#include "base/status.h"
#include "storage/parents_descriptor.h"

namespace tailrace::internal {

// The directory of the agent's lease and socket.
std::string agent_directory(const std::string& local_dir);

// One end of a connection. One thread at a time sends, and one at a time receives. Children that the program
// forks close it.
class AgentConnection {
  public:
    explicit AgentConnection(Descriptor socket) : socket_(std::move(socket)) {}

    // The other end gets copies of the descriptors.
    Status send(const AgentProcessMessage& message, std::span<const int> descriptors = {});
    // Like send, but returns false in place of waiting for room.
    Result<bool> try_send(const AgentProcessMessage& message, std::span<const int> descriptors = {});
    // Waits at most that long. Empty if nothing came. transport if the other end is gone.
    Result<std::optional<AgentProcessMessage>> receive(std::chrono::milliseconds longest);
    // What came beside the last message.
    std::vector<Descriptor> take_descriptors() { return std::exchange(descriptors_, {}); }
    int descriptor() const { return socket_.get(); }
    // The process at the other end: of a connection that this process has made, the one that listens.
    int process() const;

  private:
    Result<bool> send(std::span<const std::byte> bytes, std::span<const int> descriptors, int flags);
    Result<size_t> receive_packet(std::span<std::byte> bytes);

    std::vector<Descriptor> descriptors_;
    ParentsDescriptor socket_;
};

// Listens; replaces a socket that an agent has left which is dead. Call it only with the agent's lease
// (agent_process.h). The directory is made if it is missing.
Result<Descriptor> listen_for_clients(const std::string& local_dir);
// The next client. Empty if it was gone again, or was not of this user. busy if this process or the
// system has no descriptor left for it; the client goes on waiting.
Result<std::optional<AgentConnection>> accept_client(const Descriptor& listening);
// not_found if no agent listens there.
Result<AgentConnection> connect_to_agent(const std::string& local_dir);

}  // namespace tailrace::internal
