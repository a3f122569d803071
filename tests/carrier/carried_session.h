// CarriedSessionTest: two agent processes (threads here) that carry the epochs of a session of four ranks on
// two nodes, over real sockets. The ranks may communicate in collective calls only.
#pragma once

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include "agent_process/agent_door.h"
#include "agent_process/agent_process.h"
#include "base/log.h"
#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "read/shared_epoch_codec.h"
#include "session/sample_program.h"
#include "storage/scratch.h"
#include "threads/executor.h"
#include "transport/in_process.h"

namespace tailrace::internal::testing_support {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

// A door whose lines can be cut, as by the death of the program (to the agents) and of the agents (to the
// program). And those to one agent can be as if that was stopped.
class CuttingDoor final : public AgentDoor {
  public:
    Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir,
                                           const std::string& shared_dir) override {
        if (asks_nobody) return Status(Code::failed_state, "this program is dead");
        auto link = system_agent_door().ask(local_dir, cut && !other_name.empty() ? other_name : shared_dir);
        if (cut) {
            asked_after_cut += 1;
            still_carried += carried_at(local_dir);
        }
        return link;
    }
    static size_t carried_at(const std::string& local_dir) {
        auto agent = connect_to_agent(local_dir);
        if (!agent.ok() || !agent->send(StatusAsked{}).ok()) return 0;
        const auto answer = agent->receive(60s);
        return answer.ok() && *answer ? std::get<AgentStatus>(**answer).carried.size() : 0;
    }
    Result<std::unique_ptr<AgentLine>> line(const std::string& local_dir) override {
        TAILRACE_ASSIGN(auto line, system_agent_door().line(local_dir));
        lines_made += 1;
        return std::unique_ptr<AgentLine>(std::make_unique<Line>(*this, std::move(line), local_dir));
    }
    std::atomic<bool> cut{false};
    std::string other_name;  // by which the shared directory is named after the cut, if not empty
    std::atomic<bool> asks_nobody{false};
    std::string silent_dir;  // whose agent says nothing any more
    std::atomic<bool> silent{false};
    // Asked of each message of a line, with the line's local_dir, before it is sent. The line may fail.
    std::function<Status(const std::string&, std::span<const std::byte>)> before_post;
    std::atomic<int> lines_made{0};
    std::atomic<int> asked_after_cut{0};
    std::atomic<size_t> still_carried{0};  // when agents had been asked to let go

  private:
    class Line final : public AgentLine {
      public:
        Line(const CuttingDoor& door, std::unique_ptr<AgentLine> inner, const std::string& local_dir)
            : door_(door),
              inner_(std::move(inner)),
              local_dir_(local_dir),
              may_be_silent_(local_dir == door.silent_dir) {}
        Status post(std::span<const std::byte> message, std::span<const int> descriptors) override {
            if (is_cut()) return gone();
            if (door_.before_post) {
                const Status spoilt = door_.before_post(local_dir_, message);
                if (!spoilt.ok() && door_.asks_nobody) inner_.reset();  // the dead leave no line
                TAILRACE_TRY(spoilt);
            }
            if (is_silent()) {
                held_.emplace_back(message.begin(), message.end());
                return {};
            }
            return inner_->post(message, descriptors);
        }
        Result<std::optional<std::vector<std::byte>>> poll() override {
            if (is_cut()) return gone();
            if (is_silent()) return std::optional<std::vector<std::byte>>();
            for (const auto& message : std::exchange(held_, {})) TAILRACE_TRY(inner_->post(message, {}));
            return inner_->poll();
        }
        Patience patience() const override { return {300ms, 900ms}; }
        void wait(std::chrono::microseconds longest) override {
            if (!is_cut()) inner_->wait(std::min<std::chrono::microseconds>(longest, 5ms));
        }
        void wake() override {}

      private:
        bool is_cut() {
            if (door_.cut) inner_.reset();
            return inner_ == nullptr;
        }
        bool is_silent() const { return may_be_silent_ && door_.silent; }
        static Status gone() { return Status(Code::transport, "the line was cut"); }
        const CuttingDoor& door_;
        std::unique_ptr<AgentLine> inner_;
        const std::string local_dir_;
        const bool may_be_silent_;
        std::vector<std::vector<std::byte>> held_;  // which an agent that goes on would read
    };
};

class CarriedSessionTest : public testing::Test {
  protected:
    static constexpr int ranks = 4;

    CarriedSessionTest() {
        config_ = small_config();
        config_.buffer_bytes = 256 << 10;  // settings are checked as those of a program
        config_.shared_dir = scratch_.path() + "/shared";
        config_.record = false;
        config_.checksum = true;
    }
    ~CarriedSessionTest() override { stop_agents(); }

    std::string local_dir(int node) const {
        return (memory_ ? memory_->path() : scratch_.path()) + "/local" + std::to_string(node);
    }
    static std::shared_ptr<Storage> local(const std::string& directory) {
        SystemStorageOptions options;
        options.engine = IoEngine::posix;
        options.rules.own_in = directory;
        return *make_system_storage(options);
    }
    static std::shared_ptr<Storage> shared() { return *make_system_storage({.engine = IoEngine::posix}); }

    void start_agents(bool with_world = true) {
        auto transports = make_in_process_transports({"m0", "m1"});
        std::latch begun(2);
        for (int node = 0; node < 2; ++node)
            agents_.emplace_back(
                [&, node, with_world, transport = std::shared_ptr<Transport>(std::move(transports[node]))] {
                    AgentProcess::Options options;
                    options.config = config_;
                    options.config.local_dir = local_dir(node);
                    options.grace = 10s;
                    if (with_world) options.world = *AgentWorld::create(transport);
                    auto agent = AgentProcess::create(options, local(local_dir(node)), shared());
                    EXPECT_TRUE(agent.ok()) << agent.status().to_string();
                    set_serving(node, agent.ok() ? agent->get() : nullptr);
                    begun.count_down();
                    if (!agent.ok()) return;
                    EXPECT_TRUE((*agent)->serve().ok());
                    set_serving(node, nullptr);  // it may have been told to end by a message
                    agent->reset();
                    if (options.world) options.world->wait_for_all_agents();
                });
        begun.wait();
    }
    void set_serving(int node, AgentProcess* agent) {
        const std::lock_guard lock(serving_mutex_);
        serving_[static_cast<size_t>(node)] = agent;
    }
    void stop_agents() {
        {
            const std::lock_guard lock(serving_mutex_);
            for (auto* agent : serving_)
                if (agent != nullptr) agent->stop();
        }
        for (auto& agent : agents_) agent.join();
        agents_.clear();
    }

    // At once, whatever they are doing.
    void end_agents() {
        for (size_t node = 0; node < serving_.size(); ++node) {
            auto agent = connect_to_agent(local_dir(static_cast<int>(node)));
            EXPECT_TRUE(agent.ok() && agent->send(EndAsked{0}).ok());
        }
        stop_agents();
    }

    using Body = std::function<void(Checkpointer&, int rank)>;
    void run(AgentDoor& door, const Body& body, bool concurrent = false, Config* changed = nullptr) {
        const Config& config = changed != nullptr ? *changed : config_;
        auto transports = make_in_process_transports({"m0", "m0", "m1", "m1"}, concurrent);
        std::vector<std::thread> program;
        for (int rank = 0; rank < ranks; ++rank)
            program.emplace_back(
                [&, rank, transport = std::shared_ptr<Transport>(std::move(transports[rank]))] {
                    Config own = config;
                    own.local_dir = local_dir(rank / 2);
                    auto session = Checkpointer::open(own, transport, local(own.local_dir), shared(), &door);
                    ASSERT_TRUE(session.ok()) << session.status().to_string();
                    body(**session, rank);
                });
        for (auto& rank : program) rank.join();
    }
    // A session that saves epochs 1 and 2, and is closed.
    void save_two_epochs() {
        run(door_, [](Checkpointer& session, int) {
            State state;
            EXPECT_TRUE(save(session, state, 1).ok() && save(session, state, 2).ok());
            EXPECT_TRUE(session.close().ok());
        });
    }
    // How many ranks have opened the session.
    int open(AgentDoor& door) const {
        std::atomic<int> opened{0};
        auto transports = make_in_process_transports({"m0", "m0", "m1", "m1"}, false);
        std::vector<std::thread> program;
        for (int rank = 0; rank < ranks; ++rank)
            program.emplace_back(
                [&, rank, transport = std::shared_ptr<Transport>(std::move(transports[rank]))] {
                    Config own = config_;
                    own.local_dir = local_dir(rank / 2);
                    opened += Checkpointer::open(own, transport, local(own.local_dir), shared(), &door).ok();
                });
        for (auto& rank : program) rank.join();
        return opened;
    }
    std::vector<uint64_t> committed(const Config& config) const {
        std::vector<uint64_t> epochs;
        const auto listed = list_shared(*shared(), config.shared_dir, config.name);
        if (!listed.ok()) return epochs;
        for (const auto& files : *listed)
            if (looks_complete(files) && load_shared_epoch(*shared(), files).ok())
                epochs.push_back(files.key.epoch);
        return epochs;
    }
    std::vector<uint64_t> committed() const { return committed(config_); }
    AgentStatus status(int node) const { return ask(node, StatusAsked{}); }
    AgentStatus ask(int node, const AgentProcessMessage& question) const {
        auto agent = connect_to_agent(local_dir(node));
        EXPECT_TRUE(agent.ok() && agent->send(question).ok());
        const auto answer = agent->receive(60s);
        EXPECT_TRUE(answer.ok() && *answer);
        return std::get<AgentStatus>(**answer);
    }
    void wait_until(const std::function<bool()>& done, std::chrono::seconds longest = 60s) const {
        const auto deadline = SteadyClock::now() + longest;
        while (!done() && SteadyClock::now() < deadline) sleep_for(5ms);
        EXPECT_TRUE(done());
    }
    void lose(int node) const { std::filesystem::remove_all(local_dir(node)); }
    void put_directory_in_place_of_part(int node, const PartFileName& name) const {
        const auto tier = local_tier(local_dir(node), config_.shared_dir, config_.name);
        const auto path = join_path(tier.directory(node), to_string(name));
        EXPECT_TRUE(std::filesystem::remove(path) && std::filesystem::create_directory(path));
    }
    // The flush of an epoch takes about a second.
    void slow() { config_.bandwidth_cap = 300000; }

    test::ScratchDirectory scratch_;
    std::optional<test::ScratchDirectory>
        memory_;  // of the tiers, if they are to lie in a file system in memory
    Config config_;
    std::vector<std::thread> agents_;
    std::mutex serving_mutex_;
    std::array<AgentProcess*, 2> serving_ = {};  // those that have not ended
    CuttingDoor door_;
};

}  // namespace tailrace::internal::testing_support
