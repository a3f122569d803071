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
        const auto agent = agents_.agent_of(host_);
        if (!agent) return Status(Code::not_found, "no agent listens");
        return agent->ask();
    }
    Result<std::unique_ptr<AgentLine>> line(const std::string& /*local_dir*/) override {
        const auto agent = agents_.agent_of(host_);
        if (!agent) return Status(Code::not_found, "no agent listens");
        auto& machines = agents_.machines_;
        return agent->line([local = machines.local_of(host_), shared = machines.shared](int descriptor) {
            std::shared_ptr<DirectoryLock> lock = local->duplicate_lock(descriptor);
            return lock ? lock : std::shared_ptr<DirectoryLock>(shared->duplicate_lock(descriptor));
        });
    }

  private:
    HistoryAgents& agents_;
    const std::string host_;
};

HistoryAgents::HistoryAgents(uint64_t seed, const Config& config, Machines& machines, Stage& stage,
                             HistoryChecks& checks, const Promises& promises, std::ostream& story)
    : random_(seed * 7919 + 17),
      any_(stage.has_agents() && random_.chance(0.4)),
      carry_(any_ && Random(seed * 104729 + 5).chance(0.5)),
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
    return choose_luck(random_);
}

HistoryAgents::Luck HistoryAgents::choose_luck(Random& random) {
    Luck luck;
    luck.seed = random.engine()();
    if (random.chance(0.1)) luck.local = choose_errors(random, 20, 150);
    if (random.chance(0.2)) luck.shared = choose_errors(random, 20, 150);
    return luck;
}

// An agent that carries checks settings as a program does.
void HistoryAgents::settle_config(Config& config) const {
    config.buffer_bytes = 256 * KiB;
    config.record = false;
}

// 1 us to 4 s.
SteadyClock::duration HistoryAgents::some_time() {
    return std::chrono::nanoseconds(random_.below(uint64_t{1} << (10 + random_.below(23))));
}

// ---- birth and death ------------------------------------------------------------------------------

HistoryAgents::Agent HistoryAgents::make_agent(const std::string& host, const Luck& luck,
                                               std::shared_ptr<Transport> transport) {
    Agent agent;
    agent.local = std::make_shared<FaultyStorage>(machines_.local_of(host), luck.seed, luck.local);
    agent.shared = std::make_shared<FaultyStorage>(machines_.shared, luck.seed + 1, luck.shared);
    const auto shared = [&](NamedBy who) {
        return stage_.mount(agent.shared, "", [this, who] { checks_.check_names(who); });
    };
    DrainAgent::Carrying carrying;
    if (transport)
        carrying = {std::move(transport), stage_.mount(agent.local, host, {}),
                    shared(NamedBy::carrying_agent)};
    // The mounts draw numbers, in this order.
    auto to_shared = shared(NamedBy::agent);
    auto to_local = stage_.mount(agent.local, host, {});
    agent.agent = std::make_shared<DrainAgent>(
        config_, std::move(to_local), std::move(to_shared),
        [this](const DrainedEpoch& epoch) { heard(epoch); }, std::move(carrying));
    return agent;
}

void HistoryAgents::start_together(const std::vector<std::string>& hosts, uint64_t seed, bool faults) {
    auto network = stage_.connect_agents(hosts);
    const auto world = std::make_shared<World>(World{network.lose, network.end});
    Random random(seed);
    std::vector<std::shared_ptr<DrainAgent>> started;
    for (size_t i = 0; i < hosts.size(); ++i) {
        Luck luck = choose_luck(random);
        if (!faults) luck = {luck.seed, {}, {}};
        Agent agent = make_agent(hosts[i], luck, std::move(network.transports[i]));
        agent.world = world;
        agent.number = static_cast<int>(i);
        started.push_back(agent.agent);
        MutexLock lock(mutex_);
        agents_.insert_or_assign(hosts[i], std::move(agent));
        checks_.set_agents(++count_);
    }
    for (const auto& agent : started) (void)agent->wait_until_it_listens();
}

void HistoryAgents::start(const std::string& host, const Luck& luck) {
    Agent agent = make_agent(host, luck, nullptr);
    MutexLock lock(mutex_);
    agents_.insert_or_assign(host, std::move(agent));
    checks_.set_agents(++count_);
}

void HistoryAgents::start_some(const std::vector<std::string>& hosts, bool faults) {
    if (!any_) return;
    if (carry_) {
        {
            MutexLock lock(mutex_);
            program_is_dead_ = false;
        }
        faults_ = faults;
        all_die_with_program_ = random_.chance(0.25);
        start_carriers({hosts.begin(), hosts.end()}, faults);
        return let_some_die_later();
    }
    const double share = random_.chance(0.6) ? 1 : 0.6;
    for (const auto& host : std::set<std::string>(hosts.begin(), hosts.end())) {
        if (lives(host) || !random_.chance(share)) continue;
        story_ << host << " gets an agent\n";
        start(host, choose_luck());
    }
    let_some_die_later();
}

// Mostly the agents of a job are those of its machines. Some have others, or none that reach each other.
void HistoryAgents::start_carriers(const std::set<std::string>& hosts, bool faults) {
    std::vector<std::string> damaged;
    bool together = true;
    {
        MutexLock lock(mutex_);
        std::set<std::shared_ptr<World>> worlds;
        for (const auto& [host, agent] : agents_) {
            if (!faults) {
                agent.local->set_plan({});
                agent.shared->set_plan({});
                if (agent.storage_is_dead()) damaged.push_back(host);
            }
            if (hosts.contains(host)) worlds.insert(agent.world);
        }
        for (const auto& host : hosts) together &= agents_.contains(host);
        together &= worlds.size() == 1;
    }
    const bool anew = (!together || !damaged.empty()) && random_.chance(0.9);
    if (anew) all_die();
    for (const auto& host : damaged) die(host);
    if (!anew) return;
    story_ << "agents that carry epochs are started\n";
    start_together({hosts.begin(), hosts.end()}, random_.engine()(), faults);
}

std::shared_ptr<DrainAgent> HistoryAgents::agent_of(const std::string& host) {
    MutexLock lock(mutex_);
    const auto found = agents_.find(host);
    if (found == agents_.end() || (carry_ && program_is_dead_)) return nullptr;
    return found->second.agent;
}

void HistoryAgents::program_dies(bool cut_off) {
    if (!carry_) return;
    std::vector<std::shared_ptr<DrainAgent>> agents;
    {
        MutexLock lock(mutex_);
        program_is_dead_ = true;
        for (const auto& [host, agent] : agents_) agents.push_back(agent.agent);
    }
    for (const auto& agent : agents) agent->cut_lines();
    if (!all_die_with_program_ && !cut_off) return;
    for (const auto& host : hosts()) die(host);
}

// Nothing that it does has an effect any more. Its own locks are free when its threads have ended, a moment
// later.
void HistoryAgents::Agent::die() const {
    if (world) agent->die();  // nobody hears from it how it meets its end
    if (world) world->lose(number);
    local->die();
    shared->die();
    if (world)
        agent->let_go_of_locks();
    else
        agent->die();
}

void HistoryAgents::take_away(const std::string& host) {
    const auto found = agents_.find(host);
    if (found == agents_.end()) return;
    Agent agent = std::move(found->second);
    agents_.erase(found);
    agent.die();
    dead_.push_back(std::move(agent));
}

void HistoryAgents::die(const std::string& host) {
    std::shared_ptr<World> world;
    {
        MutexLock lock(mutex_);
        if (const auto found = agents_.find(host); found != agents_.end()) world = found->second.world;
        take_away(host);
    }
    if (world) end_world(world);
}

// The others go, too.
void HistoryAgents::end_world(const std::shared_ptr<World>& world) {
    MutexLock lock(mutex_);
    std::vector<std::string> hosts;
    for (const auto& [host, agent] : agents_)
        if (agent.world == world) hosts.push_back(host);
    for (const auto& host : hosts) take_away(host);
    world->end();
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
        Death death;
        death.host = host;
        death.after = some_time();
        death.luck = choose_luck();
        if (carry_) {
            MutexLock lock(mutex_);
            const auto found = agents_.find(host);
            if (found == agents_.end()) continue;  // its world has met its end
            death.world = found->second.world;
            for (const auto& [other, agent] : agents_)
                if (agent.world == death.world) death.others.push_back(other);
        }
        if (death.world) death.others_after = some_time();
        if (random_.chance(0.5)) death.new_one_after = some_time();
        death.only_lines = carry_ && faults_ && random_.chance(0.2);
        story_ << (death.only_lines ? "all lines end of what was to be: " : "") << "the agent of " << host
               << " dies" << (death.new_one_after ? ", another one comes" : "") << "\n";
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
    if (death.only_lines) {
        if (const auto agent = agent_of(death.host)) agent->cut_lines();
        return;
    }
    if (death.world) {
        {
            MutexLock lock(mutex_);
            const auto found = agents_.find(death.host);
            if (found == agents_.end() || found->second.world != death.world) return;  // it died already
            take_away(death.host);
        }
        (void)pass(death.others_after);
        end_world(death.world);
        if (death.new_one_after && pass(*death.new_one_after) && !any_lives())
            start_together(death.others, death.luck.seed, faults_);
        return;
    }
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
    if (carry_) {
        std::vector<std::string> together;
        for (const auto& [host, storage] : machines_.local)
            if (!lives(host) && random_.chance(0.7)) together.push_back(host);
        if (!together.empty()) start_together(together, random_.engine()(), false);
        return;
    }
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
