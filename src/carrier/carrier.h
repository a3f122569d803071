// Carrier: everything that an agent process carries: the nodes of sessions, and the lines of their ranks.
//
// The serving thread calls the members. It gives each client a number.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "carrier/carried_node.h"
#include "storage/storage.h"

namespace tailrace::internal {

class Carrier {
  public:
    // Makes the storages for a session with these settings.
    using MakeStorage = std::function<Result<std::shared_ptr<Storage>>(const Config&)>;
    struct Options {
        std::string local_dir;  // sessions with another one are refused
        MakeStorage local, shared;
        std::function<void()> changed;  // called in other threads: step() has something to do
    };
    Carrier(std::shared_ptr<AgentWorld> world, Options options)
        : world_(std::move(world)), options_(std::move(options)) {}

    const CarrierPlace& place() const { return world_->place(); }

    // Takes over a lock that has come with a message, of that directory. Called once at most.
    using TakeLock = std::function<Result<std::shared_ptr<DirectoryLock>>(const std::string& directory)>;
    // A client has sent a line message, perhaps with locks. Fails if the client must be dropped.
    Status hear(int client, LineSender::Send send, std::span<const std::byte> message,
                std::vector<TakeLock> locks);
    void client_gone(int client);

    // Drops nodes that have ended. Returns the clients whose lines end with that.
    std::vector<int> step();
    // A session wants to open on this shared directory. If sessions whose programs have died are carried
    // there, they give up. Returns whether none is left.
    bool make_way(const std::string& shared_dir);
    void give_up(const Status& why);

    size_t node_count() const { return nodes_.size(); }
    // Of sessions that have ended, but not all of their epochs, or whose locks are still held.
    size_t ending_count() const;
    std::vector<CarriedStatus> status() const;

  private:
    struct Line {
        std::shared_ptr<LineSender> sender;
        CarriedNode* node = nullptr;  // once it has joined
        int rank = 0;
        bool goodbye = false;
        std::vector<std::byte> pieces;  // of the session's description, and then of its recovered epochs
        std::vector<std::byte> mail;    // of a message of which more follows
        std::vector<TakeLock> locks;
    };
    Status hear(Line& line, const ::tailrace::internal::line::Message& message);
    static Status take_piece(std::vector<std::byte>& pieces, std::span<const std::byte> piece);
    Status begin_node(Line& line);
    Result<CarriedNode::Locks> take_locks(Line& line, const CarriedJob& job) const;

    const std::shared_ptr<AgentWorld> world_;
    const Options options_;
    std::vector<std::unique_ptr<CarriedNode>> nodes_;
    std::map<int, Line> lines_;
};

}  // namespace tailrace::internal
