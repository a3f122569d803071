#include "agent_process/agent_door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>

#include "agent_process/agent_socket.h"

namespace tailrace::internal {

namespace {

// An agent lets go between two questions of a pass, which are a fraction of a second apart, unless its
// file system hangs.
constexpr std::chrono::seconds longest_wait(30);

class SocketLink final : public AgentLink {
  public:
    SocketLink(AgentConnection connection, std::optional<CarrierPlace> place)
        : connection_(std::move(connection)), place_(place) {}

    void opened() override { (void)connection_.send(SessionOpened{}); }

    // The agent says nothing by itself. So if there is something to read, it is the end.
    bool alive() override {
        pollfd waiting{connection_.descriptor(), POLLIN, 0};
        return ::poll(&waiting, 1, 0) == 0;
    }
    std::optional<CarrierPlace> carries() const override { return place_; }

  private:
    AgentConnection connection_;
    const std::optional<CarrierPlace> place_;
};

class SocketLine final : public AgentLine {
  public:
    SocketLine(AgentConnection connection, Descriptor wake)
        : connection_(std::move(connection)), wake_(std::move(wake)) {}

    Status post(std::span<const std::byte> message, std::span<const int> descriptors) override {
        LineBytes bytes{{message.begin(), message.end()}};
        // Descriptors go at once: this is the first message, so there is room for it.
        if (!descriptors.empty()) return connection_.send(bytes, descriptors);
        waiting_.push_back(std::move(bytes));
        return send_waiting();
    }

    Result<std::optional<std::vector<std::byte>>> poll() override {
        TAILRACE_TRY(send_waiting());
        TAILRACE_ASSIGN(auto message, connection_.receive(std::chrono::milliseconds(0)));
        if (!message) return std::optional<std::vector<std::byte>>();
        auto* bytes = std::get_if<LineBytes>(&*message);
        if (bytes == nullptr)
            return Status(Code::transport, "the agent has sent a message that does not belong on a line");
        return std::optional(std::move(bytes->bytes));
    }

    void wait(std::chrono::microseconds longest) override {
        std::array<pollfd, 2> waiting{{{connection_.descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
        if (!waiting_.empty()) waiting[0].events |= POLLOUT;
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(longest).count();
        (void)::poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<int64_t>(ms, 0, 1000)));
        uint64_t count = 0;
        if (waiting[1].revents != 0) (void)!read(wake_.get(), &count, sizeof count);
    }
    void wake() override {
        const uint64_t one = 1;
        (void)!write(wake_.get(), &one, sizeof one);
    }

    int process() const override { return connection_.process(); }

  private:
    Status send_waiting() {
        while (!waiting_.empty()) {
            TAILRACE_ASSIGN(const bool sent, connection_.try_send(waiting_.front()));
            if (!sent) return {};
            waiting_.pop_front();
        }
        return {};
    }

    AgentConnection connection_;
    const Descriptor wake_;  // an eventfd
    std::deque<LineBytes> waiting_;
};

class SocketDoor final : public AgentDoor {
  public:
    Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir,
                                           const std::string& shared_dir) override {
        TAILRACE_ASSIGN(auto connection, connect_to_agent(local_dir));
        TAILRACE_TRY(connection.send(SessionOpens{shared_dir}));
        TAILRACE_ASSIGN(const auto answer, connection.receive(longest_wait));
        if (!answer)
            return Status(Code::busy, fmt::format("the agent of {} has not let go of its locks within {} s",
                                                  local_dir, longest_wait.count()));
        const auto* may_open = std::get_if<MayOpen>(&*answer);
        if (may_open == nullptr)
            return Status(Code::transport, fmt::format("the agent of {} gave an invalid answer", local_dir));
        return std::unique_ptr<AgentLink>(
            std::make_unique<SocketLink>(std::move(connection), may_open->carries));
    }

    Result<std::unique_ptr<AgentLine>> line(const std::string& local_dir) override {
        TAILRACE_ASSIGN(auto connection, connect_to_agent(local_dir));
        Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!wake.valid()) return errno_status(errno, "making an eventfd");
        return std::unique_ptr<AgentLine>(
            std::make_unique<SocketLine>(std::move(connection), std::move(wake)));
    }
};

}  // namespace

AgentDoor& system_agent_door() {
    static SocketDoor door;
    return door;
}

}  // namespace tailrace::internal
