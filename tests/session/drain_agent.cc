#include "session/drain_agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace tailrace::internal::testing_support {

using namespace std::chrono_literals;

namespace {

constexpr auto longest_wait = 30s;  // as in agent_process/agent_door.cc

// A message to another process of the same machine.
void take_a_moment() {
    sleep_for(std::chrono::nanoseconds(random_number() % 300'000));
}

}  // namespace

class DrainAgent::Link final : public AgentLink {
  public:
    Link(std::shared_ptr<Desk> desk, int client, std::optional<CarrierPlace> place)
        : desk_(std::move(desk)), client_(client), place_(place) {}
    ~Link() override {
        MutexLock lock(desk_->mutex);
        desk_->let_in.erase(client_);
        desk_->book.client_gone(client_, SteadyClock::now());
        desk_->changed.notify_all();
    }
    void opened() override {
        MutexLock lock(desk_->mutex);
        desk_->book.session_opened(client_);
        desk_->changed.notify_all();
    }
    bool alive() override {
        MutexLock lock(desk_->mutex);
        return !desk_->dead;
    }
    std::optional<CarrierPlace> carries() const override { return place_; }

  private:
    const std::shared_ptr<Desk> desk_;
    const int client_;
    const std::optional<CarrierPlace> place_;
};

DrainAgent::DrainAgent(Config config, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared,
                       Heard heard, Carrying carrying)
    : config_(std::move(config)),
      local_(std::move(local)),
      shared_(std::move(shared)),
      heard_(std::move(heard)),
      carrying_(std::move(carrying)),
      desk_(std::make_shared<Desk>(SteadyClock::now(), carrying_.transport == nullptr)),
      lines_([desk = desk_] {
          MutexLock lock(desk->mutex);
          desk->work = true;
          desk->changed.notify_all();
      }),
      serving_("agent", {}, [this](const std::stop_token&) { serve(); }) {}

DrainAgent::~DrainAgent() {
    die();
    serving_.join();
}

void DrainAgent::die() {
    if (carrying_.transport) lines_.end();
    MutexLock lock(desk_->mutex);
    desk_->dead = true;
    desk_->give_up = true;
    desk_->changed.notify_all();
}

Result<std::unique_ptr<AgentLink>> DrainAgent::ask() {
    take_a_moment();
    MutexLock lock(desk_->mutex);
    if (desk_->dead || !desk_->listens) return Status(Code::not_found, "no agent listens");
    const int client = desk_->next_client++;
    auto now = SteadyClock::now();
    desk_->let_in[client] = false;
    desk_->book.session_opens(client, now);
    desk_->changed.notify_all();
    const auto until = now + longest_wait;
    while (!desk_->dead && !desk_->let_in[client] && SteadyClock::now() < until)
        desk_->changed.wait_until(lock, until);
    auto link = std::make_unique<Link>(desk_, client, desk_->place);  // the session is over when it goes
    const bool dead = desk_->dead, let_in = desk_->let_in[client];
    lock.unlock();
    if (dead) return Status(Code::transport, "the agent has ended");
    if (!let_in) return Status(Code::busy, "the agent has not let go of its locks in time");
    take_a_moment();
    return std::unique_ptr<AgentLink>(std::move(link));
}

Result<std::unique_ptr<AgentLine>> DrainAgent::line(AgentLines::DuplicateLock duplicate) {
    if (!carrying_.transport) return Status(Code::unsupported, "this agent has no lines");
    take_a_moment();
    return lines_.connect(std::move(duplicate));
}

bool DrainAgent::wait_until_it_listens() {
    MutexLock lock(desk_->mutex);
    while (!desk_->dead && !desk_->listens) desk_->changed.wait(lock);
    return !desk_->dead;
}

std::string DrainAgent::last_pass() const {
    MutexLock lock(desk_->mutex);
    return desk_->last_in_words;
}

// As AgentProcess::step() does.
void DrainAgent::serve() {
    auto carrier = carrying_.transport ? make_carrier() : nullptr;
    Worker passing;
    MutexLock lock(desk_->mutex);
    desk_->listens = true;
    if (carrier) desk_->place = carrier->place();
    if (carrying_.transport) desk_->changed.notify_all();
    while (!desk_->dead) {
        const auto now = SteadyClock::now();
        if (desk_->book.pass_is_due(now)) {
            desk_->book.pass_begun();
            desk_->pass_has_ended = false;
            lock.unlock();
            passing = Worker("drain", {}, [this](const std::stop_token&) { make_pass(); });
            lock.lock();
        }
        desk_->give_up = desk_->dead || desk_->book.pass_must_stop(now);
        if (!desk_->dead && !desk_->pass_has_ended && !std::exchange(desk_->work, false))
            desk_->changed.wait_until(lock, desk_->book.next_look(now));
        if (std::exchange(desk_->pass_has_ended, false))
            desk_->book.pass_ended(desk_->last, SteadyClock::now());
        bool may_let_in = true;
        if (carrier) {
            lock.unlock();
            may_let_in = serve_lines(*carrier);
            lock.lock();
        }
        for (const int client : may_let_in ? desk_->book.take_to_let_in() : std::vector<int>())
            if (const auto found = desk_->let_in.find(client); found != desk_->let_in.end())
                found->second = true;
        desk_->changed.notify_all();
    }
    lock.unlock();
    passing.join();
}

// All agents come together in it, or the process is ended with the others.
std::unique_ptr<Carrier> DrainAgent::make_carrier() {
    auto world = AgentWorld::create(carrying_.transport);
    if (!world.ok()) {
        die();
        return nullptr;
    }
    Carrier::Options options;
    options.local_dir = config_.local_dir;
    options.local = [this](const Config&) { return carrying_.local; };
    options.shared = [this](const Config&) { return carrying_.shared; };
    options.changed = [desk = desk_] {
        MutexLock lock(desk->mutex);
        desk->work = true;
        desk->changed.notify_all();
    };
    return std::make_unique<Carrier>(std::move(*world), std::move(options));
}

// As AgentProcess::step() does. Returns whether sessions that open may be told so.
bool DrainAgent::serve_lines(Carrier& carrier) {
    while (auto come = lines_.next()) {
        const Status heard =
            carrier.hear(come->client, lines_.sender(come->client), come->bytes, std::move(come->locks));
        if (heard.ok()) continue;
        carrier.client_gone(come->client);
        lines_.drop(come->client);
    }
    for (const int client : lines_.take_gone()) carrier.client_gone(client);
    const size_t before = carrier.node_count();
    for (const int client : carrier.step()) lines_.drop(client);
    const size_t ending = carrier.ending_count();
    bool opening = false;
    {
        MutexLock lock(desk_->mutex);
        if (carrier.node_count() < before) desk_->book.pass_asked(SteadyClock::now());
        desk_->book.set_carried({carrier.node_count() - ending, ending}, SteadyClock::now());
        for (const auto& [client, let_in] : desk_->let_in) opening |= !let_in;
    }
    return !opening || carrier.make_way(config_.shared_dir);
}

void DrainAgent::make_pass() {
    PassSummary summary;
    std::string directory, words;
    NodeDrain drain(config_, local_, shared_);
    drain.watch([&](const DrainedEpoch& epoch, uint64_t, uint64_t bytes) {
        auto& most = known_[{directory, epoch.key}].most_bytes;
        if (bytes > most) ++progress_;
        most = std::max(most, bytes);
    });
    const auto stop = [this] { return desk_->give_up.load(); };
    // The newest goes first where an agent is to end soon.
    const auto order =
        random_number() % 4 == 0 ? NodeDrain::Order::newest_first : NodeDrain::Order::oldest_first;
    std::vector<std::string> skipped;
    const auto directories = directories_to_drain(*local_, config_.local_dir, skipped);
    for (const auto& next : directories.ok() ? *directories : std::vector<std::string>()) {
        directory = next;
        const auto pass = drain.pass(directory, stop, order);
        if (!pass.ok()) continue;
        for (const auto& epoch : pass->epochs) {
            auto& state = known_[{directory, epoch.key}].state;
            if (std::exchange(state, epoch.state) != epoch.state) ++progress_;
            summary.waiting += epoch.state == DrainedEpoch::State::waiting;
            summary.failed += epoch.state == DrainedEpoch::State::failed;
            summary.stopped += epoch.state == DrainedEpoch::State::stopped;
            heard_(epoch);
            words +=
                fmt::format("{} in {}: state {}{}; ", to_string(epoch.key), directory,
                            static_cast<int>(epoch.state), epoch.why.ok() ? "" : ", " + epoch.why.message());
            if (!epoch.waiting_for.empty()) words += "waits for " + to_string(epoch.waiting_for) + "; ";
        }
        if (!pass->busy.ok()) words += directory + ": " + pass->busy.message() + "; ";
        summary.busy += pass->busy.ok() ? 0 : 1;
    }
    MutexLock lock(desk_->mutex);
    desk_->last = summary;
    desk_->last_in_words = std::move(words);
    desk_->pass_has_ended = true;
    desk_->changed.notify_all();
}

}  // namespace tailrace::internal::testing_support
