#include "session/history_agents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/units.h"
#include "catalog/catalog.h"
#include "drain/recorded_epochs.h"
#include "read/array_judge.h"

namespace tailrace::internal::testing_support {

using namespace std::chrono_literals;

namespace {

constexpr auto longest_without_progress = 60s;
constexpr auto between_looks = 250ms;

}  // namespace

class HistoryAgents::Door final : public AgentDoor {
  public:
    Door(HistoryAgents& agents, std::string host) : agents_(agents), host_(std::move(host)) {}
    Result<std::unique_ptr<AgentLink>> ask(const std::string& /*local_dir*/,
                                           const std::string& /*shared_dir*/) override {
        std::shared_ptr<DrainAgent> agent;
        {
            MutexLock lock(agents_.mutex_);
            const auto found = agents_.agents_.find(host_);
            if (found != agents_.agents_.end()) agent = found->second.agent;
        }
        if (!agent) return Status(Code::not_found, "no agent listens");
        return agent->ask();
    }
    // These agents carry no epochs of sessions that live.
    Result<std::unique_ptr<AgentLine>> line(const std::string& /*local_dir*/) override {
        return Status(Code::unsupported, "this agent has no lines");
    }

  private:
    HistoryAgents& agents_;
    const std::string host_;
};

HistoryAgents::HistoryAgents(uint64_t seed, const Config& config, Machines& machines, Stage& stage,
                             HistoryChecks& checks, const Promises& promises, std::ostream& story)
    : random_(seed * 7919 + 17),
      any_(stage.has_agents() && random_.chance(0.4)),
      config_(config),
      machines_(machines),
      stage_(stage),
      checks_(checks),
      promises_(promises),
      story_(story) {}

HistoryAgents::~HistoryAgents() {
    settle();
    all_die();
}

AgentDoor* HistoryAgents::door(const std::string& host) {
    if (!any_) return nullptr;
    MutexLock lock(mutex_);
    auto& door = doors_[host];
    if (!door) door = std::make_unique<Door>(*this, host);
    return door.get();
}

// ---- what is drawn
// -----------------------------------------------------------------------------------------

HistoryAgents::Luck HistoryAgents::choose_luck() {
    Luck luck;
    luck.seed = random_.engine()();
    if (random_.chance(0.1)) luck.local = choose_errors(random_, 20, 150);
    if (random_.chance(0.2)) luck.shared = choose_errors(random_, 20, 150);
    return luck;
}

// 1 us to 4 s.
SteadyClock::duration HistoryAgents::some_time() {
    return std::chrono::nanoseconds(random_.below(uint64_t{1} << (10 + random_.below(23))));
}

// ---- birth and death ------------------------------------------------------------------------------

void HistoryAgents::start(const std::string& host, const Luck& luck) {
    Agent agent;
    agent.local = std::make_shared<FaultyStorage>(machines_.local_of(host), luck.seed, luck.local);
    agent.shared = std::make_shared<FaultyStorage>(machines_.shared, luck.seed + 1, luck.shared);
    agent.agent =
        std::make_shared<DrainAgent>(config_, stage_.mount(agent.local, host, {}),
                                     stage_.mount(agent.shared, "", [this] { checks_.check_names(true); }),
                                     [this](const DrainedEpoch& epoch) { heard(epoch); });
    MutexLock lock(mutex_);
    agents_.insert_or_assign(host, std::move(agent));
    checks_.set_agents(++count_);
}

void HistoryAgents::start_some(const std::vector<std::string>& hosts) {
    if (!any_) return;
    const double share = random_.chance(0.6) ? 1 : 0.6;
    for (const auto& host : std::set<std::string>(hosts.begin(), hosts.end())) {
        if (lives(host) || !random_.chance(share)) continue;
        story_ << host << " gets an agent\n";
        start(host, choose_luck());
    }
    let_some_die_later();
}

// Nothing that it does has an effect any more. Its locks are free when its threads have ended, a moment
// later.
void HistoryAgents::die(const std::string& host) {
    MutexLock lock(mutex_);
    const auto found = agents_.find(host);
    if (found == agents_.end()) return;
    Agent agent = std::move(found->second);
    agents_.erase(found);
    agent.local->die();
    agent.shared->die();
    agent.agent->die();
    dead_.push_back(std::move(agent));
}

void HistoryAgents::bury() {
    std::vector<Agent> dead;
    {
        MutexLock lock(mutex_);
        dead.swap(dead_);
    }
    const size_t buried = dead.size();
    dead.clear();  // waits for their threads
    MutexLock lock(mutex_);
    checks_.set_agents(count_ -= buried);
}

void HistoryAgents::all_die() {
    for (const auto& host : hosts()) die(host);
    bury();
}

std::vector<std::string> HistoryAgents::hosts() {
    MutexLock lock(mutex_);
    std::vector<std::string> hosts;
    for (const auto& [host, agent] : agents_) hosts.push_back(host);
    return hosts;
}

bool HistoryAgents::lives(const std::string& host) {
    MutexLock lock(mutex_);
    return agents_.contains(host);
}

bool HistoryAgents::any_lives() {
    MutexLock lock(mutex_);
    return !agents_.empty();
}

void HistoryAgents::let_some_die_later() {
    for (const auto& host : hosts()) {
        if (!random_.chance(0.25)) continue;
        Death death{host, some_time(), std::nullopt, choose_luck()};
        if (random_.chance(0.5)) death.new_one_after = some_time();
        story_ << "the agent of " << host << " dies" << (death.new_one_after ? ", another one comes" : "")
               << "\n";
        fates_.emplace_back("fate of an agent", Priority{},
                            [this, death](const std::stop_token&) { meet(death); });
    }
}

bool HistoryAgents::pass(SteadyClock::duration time) {
    MutexLock lock(mutex_);
    const auto until = SteadyClock::now() + time;
    while (!settling_ && SteadyClock::now() < until) settled_.wait_until(lock, until);
    return !settling_;
}

void HistoryAgents::meet(const Death& death) {
    if (!pass(death.after)) return;
    die(death.host);
    if (death.new_one_after && pass(*death.new_one_after)) start(death.host, death.luck);
}

void HistoryAgents::settle() {
    {
        MutexLock lock(mutex_);
        settling_ = true;
        settled_.notify_all();
    }
    fates_.clear();
    bury();
    MutexLock lock(mutex_);
    settling_ = false;
}

// ---- work -----------------------------------------------------------------------------------------

void HistoryAgents::work() {
    if (!any_) return;
    const int how = random_.between(0, 9);
    if (how < 3) return;  // the next job begins at once
    let_some_die_later();
    sleep_for(some_time());
    settle();
    if (how >= 6) work_until_done();
}

// What was done on behalf of agents may have failed; from now on it does not.
void HistoryAgents::heal() {
    std::vector<std::string> dead;
    {
        MutexLock lock(mutex_);
        for (const auto& [host, agent] : agents_) {
            agent.local->set_plan({});
            agent.shared->set_plan({});
            if (agent.storage_is_dead()) dead.push_back(host);
        }
    }
    for (const auto& host : dead) die(host);
    bury();
    for (const auto& [host, storage] : machines_.local)
        if (!lives(host) && random_.chance(0.7)) start(host, {random_.engine()(), {}, {}});
}

void HistoryAgents::work_until_done() {
    heal();
    const auto all = promises_.damaged ? std::vector<Planned>() : find_planned();
    story_ << "agents finish " << all.size() << " epochs\n";
    auto since = SteadyClock::now();
    uint64_t before = progress();
    for (const auto& planned : all) {
        while (!is_finished(planned)) {
            if (const uint64_t now = progress(); now != before) {
                before = now;
                since = SteadyClock::now();
            }
            if (SteadyClock::now() - since > longest_without_progress) {
                ADD_FAILURE() << "agents that can finish " << to_string(planned.key)
                              << " do not go on: " << last_passes();
                return;
            }
            sleep_for(between_looks);
        }
    }
    checks_.check_promises();
}

// By the files that lie there now: all nodes have records and sound parts, and all their machines have
// agents.
std::vector<HistoryAgents::Planned> HistoryAgents::find_planned() {
    struct Found {
        Planned planned;
        std::set<uint32_t> nodes;
        uint32_t node_count = 0;
    };
    std::map<std::pair<EpochKey, uint64_t>, Found> found;
    for (const auto& [host, storage] : machines_.local) {
        if (!lives(host)) continue;
        std::vector<std::string> skipped;
        const auto directories = directories_to_drain(*storage, config_.local_dir, skipped);
        if (!directories.ok()) continue;
        for (const auto& directory : *directories) {
            const auto records = list_plan_records(*storage, directory);
            if (!records.ok()) continue;
            for (const auto& recorded : *records) {
                const auto& record = recorded.record;
                if (!is_sound(*storage, directory, record)) continue;
                auto& epoch = found[{record.key, record.run_uid}];
                epoch.planned.key = record.key;
                epoch.planned.keep_shared = record.keep_shared;
                epoch.planned.local = recorded.local;
                epoch.nodes.insert(record.node);
                epoch.node_count = record.node_count;
            }
        }
    }
    std::vector<Planned> all;
    for (const auto& [key, epoch] : found)
        if (epoch.nodes.size() == epoch.node_count) all.push_back(epoch.planned);
    return all;
}

bool HistoryAgents::is_sound(Storage& storage, const std::string& directory, const PlanRecord& record) {
    const auto streams = captured_streams(storage, directory, record);
    if (!streams.ok()) return false;
    std::vector<PartPlace> parts;
    for (const auto& stream : *streams) parts.push_back({record.key, stream.path});
    return verify_parts(storage, parts, MiB).ok();
}

// It is there, or so many newer ones are that it need not be, or a later run has gone on from an older one.
// For one that was kept in the node-local tier, one newer is enough.
bool HistoryAgents::is_finished(const Planned& planned) {
    const auto listed = list_shared(*machines_.shared, config_.shared_dir, config_.name);
    if (!listed.ok()) return false;
    uint32_t newer = 0;
    for (const auto& files : *listed) {
        if (!looks_complete(files) || !load_shared_epoch(*machines_.shared, files).ok()) continue;
        if (files.key == planned.key) return true;
        if (files.key.run > planned.key.run && files.key.epoch <= planned.key.epoch) return true;
        newer += planned.key < files.key;
    }
    return (planned.keep_shared > 0 && newer >= planned.keep_shared) || (planned.local && newer > 0);
}

uint64_t HistoryAgents::progress() {
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [host, agent] : agents_) sum += agent.agent->progress();
    return sum;
}

std::string HistoryAgents::last_passes() {
    MutexLock lock(mutex_);
    std::string all;
    for (const auto& [host, agent] : agents_) all += host + ": " + agent.agent->last_pass();
    return all;
}

void HistoryAgents::heard(const DrainedEpoch& epoch) {
    if (epoch.state == DrainedEpoch::State::committed) checks_.finished(epoch.key);
}

}  // namespace tailrace::internal::testing_support
