#include "session/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "catalog/catalog.h"
#include "session/history_agents.h"
#include "session/history_checks.h"
#include "session/history_state.h"

namespace tailrace::internal::testing_support {

namespace {

// ---- a history -------------------------------------------------------------------------------------------

struct Layout {
    std::vector<std::string> hosts;
    uint32_t ranks_per_node = 0;
    int ranks() const { return static_cast<int>(hosts.size()); }
};

class History {
  public:
    History(uint64_t seed, const HistoryLimits& limits, Stage& stage, Tally& tally)
        : seed_(seed), random_(seed), limits_(limits), stage_(stage), tally_(tally) {}

    void run() {
        choose_world();
        stage_.after_step([this] { checks_.after_step(); });
        const int jobs = std::min(random_.between(1, 3), limits_.most_jobs);
        for (int i = 0; i < jobs && !::testing::Test::HasFailure(); ++i) {
            one_job(true);
            between_jobs();
        }
        if (!::testing::Test::HasFailure()) one_job(false);
        agents_.settle();
        agents_.all_die();
        stage_.after_step({});
    }
    std::string story() const { return story_.str(); }

  private:
    void choose_world() {
        sizes_.seed = seed_;
        sizes_.scale = random_.chance(0.1) ? 0 : random_.below(60000);
        sizes_.cells = random_.below(4000) + 1;
        config_ = small_config();
        layout_ = choose_layout();
        config_.buffer_bytes = uint64_t{4096} << random_.below(4);
        if (agents_.carry()) agents_.settle_config(config_);
        config_.buffers = static_cast<uint32_t>(random_.between(1, 5));
        config_.writers = static_cast<uint32_t>(random_.between(1, 2));
        config_.placement = random_.chance(0.5) ? Placement::append : Placement::contiguous;
        config_.keep_local = static_cast<uint32_t>(random_.between(1, 3));
        config_.keep_shared = static_cast<uint32_t>(random_.between(0, 3));
        config_.shared_every = random_.chance(0.7) ? 1 : static_cast<uint32_t>(random_.between(2, 3));
        config_.queue_epochs = static_cast<uint32_t>(random_.between(1, 3));
        config_.queue_policy = static_cast<QueuePolicy>(random_.between(0, 2));
        config_.local_sync = random_.chance(0.3);
        machines_.local_options.offer_map = random_.chance(0.5);
        choose_files();
    }

    void choose_files() {
        config_.files = static_cast<uint32_t>(random_.between(1, std::min(6, 2 * layout_.ranks())));
        config_.leaders_per_file = static_cast<uint32_t>(random_.between(1, 3));
    }

    Layout choose_layout() {
        Layout layout;
        int nodes = random_.between(1, 4);
        if (random_.chance(0.15)) nodes = random_.between(5, 12);
        if (random_.chance(0.02)) nodes = random_.between(32, 64);
        nodes = std::min(nodes, limits_.most_nodes);
        if (const int fewest = std::min(limits_.fewest_nodes, limits_.most_nodes); fewest > 1)
            nodes = layout_.hosts.empty() ? limits_.most_nodes : random_.between(fewest, limits_.most_nodes);
        const int per_node = nodes > 8 ? 1 : random_.between(1, 3);
        if (random_.chance(0.4)) {  // one machine laid out as several nodes
            layout.hosts = std::vector<std::string>(static_cast<size_t>(nodes * per_node), "m0");
            layout.ranks_per_node = static_cast<uint32_t>(per_node);
        } else {
            layout.hosts = hosts_of(nodes, per_node);
        }
        for (const auto& host : layout.hosts) machines_.local_of(host);
        return layout;
    }

    FaultPlan choose_plan(bool shared) {
        if (random_.between(0, 6) > 0) return choose_errors(random_, shared ? 30 : 8, shared ? 150 : 60);
        promises_.damaged = true;  // what is committed may not be what was captured
        FaultPlan plan;
        plan.write_flip = shared ? 0.02 : 0;
        plan.read_flip = 0.02;
        return plan;
    }

    // What one job does, as drawn before it begins.
    struct Course {
        uint64_t number = 0;
        bool faults = false, shared_faults = false, local_faults = false;
        int faults_after = -1;  // saves; -1: faults are there from the start
        int saves = 0;
        uint64_t step = 1;  // between epochs
        bool wait_between = false, in_step = false, verify = false;
        bool go_back = false;                        // to the oldest epoch, or to what was left behind
        std::vector<std::optional<Misfit>> misfits;  // by save
    };

    // The storages as a job sees them, and what goes wrong with them.
    struct FaultyWorld {
        std::shared_ptr<FaultyStorage> shared;
        std::map<std::string, std::shared_ptr<FaultyStorage>> local;
        FaultPlan shared_plan, local_plan;
        std::string faulty_host;

        void let_faults_in() {
            auto plan = shared_plan;
            if (plan.die_at_operation > 0) plan.die_at_operation += shared->operations();
            shared->set_plan(plan);
            plan = local_plan;
            if (plan.die_at_operation > 0) plan.die_at_operation += local[faulty_host]->operations();
            local[faulty_host]->set_plan(plan);
        }
        void die() {
            shared->die();
            for (const auto& [host, storage] : local) storage->die();
        }
    };

    Course choose_course(bool faults) {
        Course course;
        course.number = ++job_number_;
        course.faults = faults;
        course.shared_faults = faults && random_.chance(0.6);
        course.local_faults = faults && random_.chance(0.3);
        course.saves = std::min(random_.between(0, 5), limits_.most_saves);
        // Some come after a while, when there is something to lose.
        if (random_.chance(0.6)) course.faults_after = random_.between(0, std::max(0, course.saves - 1));
        course.wait_between = random_.chance(0.5);
        course.step = 1 + random_.below(3);
        course.verify = random_.chance(0.3);
        course.go_back = random_.chance(0.2);
        course.in_step = random_.chance(0.3);
        choose_misfits(course);
        return course;
    }

    FaultyWorld choose_faults(const Course& course) {
        FaultyWorld world;
        world.shared = std::make_shared<FaultyStorage>(machines_.shared, random_.engine()());
        for (const auto& host : layout_.hosts)
            if (!world.local.contains(host))
                world.local[host] =
                    std::make_shared<FaultyStorage>(machines_.local_of(host), random_.engine()());
        if (course.shared_faults) world.shared_plan = choose_plan(true);
        if (course.local_faults) world.local_plan = choose_plan(false);
        world.faulty_host = layout_.hosts[random_.below(layout_.hosts.size())];
        return world;
    }

    Job job_in(const FaultyWorld& world) {
        Job job;
        job.hosts = layout_.hosts;
        job.config = config_;
        job.config.ranks_per_node = layout_.ranks_per_node;
        job.concurrent = random_.chance(0.85);
        choose_redundancy(job.config);
        if (agents_.carry()) choose_carriers(job.config);
        job.shared = stage_.mount(world.shared, "", [this] { checks_.check_names(NamedBy::job); });
        std::map<std::string, std::shared_ptr<Storage>> mounted;
        for (const auto& [host, storage] : world.local) mounted[host] = stage_.mount(storage, host, {});
        job.local = [mounted](const std::string& host) { return mounted.at(host); };
        job.connect = [this, config = job.config](const auto& hosts, bool concurrent) {
            return stage_.connect(hosts, concurrent, config);
        };
        job.agents = [this](const std::string& host) { return agents_.door(host); };
        return job;
    }

    // Nothing older may be restored.
    EpochKey bound_of(const Course& course) const {
        if (course.faults || promises_.damaged) return {};
        // What a job saved after it had gone back may look whole and be torn. It leaves the newer epochs
        // behind all the same: then an older one of its own past is restored before them (catalog/lineage.h).
        if (promises_.torn && promises_.went_back) return {};
        return std::max(promises_.committed, promises_.captured, earlier);
    }

    void one_job(bool faults) {
        const Course course = choose_course(faults);
        FaultyWorld world = choose_faults(course);
        if (course.faults_after < 0) world.let_faults_in();
        const Job job = job_in(world);
        tell(course, job);
        checks_.job_begins({course.number, job.config, job.hosts, bound_of(course), faults,
                            course.local_faults, agents_.carry()});
        agents_.start_some(layout_.hosts, faults);
        std::atomic<bool> faults_in{false};
        Pace pace(layout_.ranks());
        std::atomic<bool> cut_off{false};
        cut_off = stage_.begin_job(faults, [&] {
            agents_.program_dies(cut_off);
            world.die();
        });
        // Ranks whose agents are gone do not hear of each other's captures.
        const bool in_step = course.in_step || cut_off || agents_.carry();
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            if (session == nullptr) {
                pace.leave(rank);
                EXPECT_TRUE(faults) << "rank " << rank << " could not open: " << opened.to_string();
                return;
            }
            checks_.opened(rank, *session);
            one_rank(course, *session, [&](int save) {
                if (in_step) pace.come_to(rank, save + 1);
                if (save == course.faults_after && !faults_in.exchange(true)) world.let_faults_in();
            });
            checks_.closes(rank);
        });
        stage_.end_job();
        agents_.settle();
        checks_.job_ends();
        if (!faults) checks_.check_promises();
    }

    void one_rank(const Course& course, Checkpointer& session, const std::function<void(int)>& before_save) {
        const int rank = session.rank();
        RankState state;
        state.shape(sizes_, rank, layout_.ranks());
        ASSERT_TRUE(state.enlist(session).ok());
        uint64_t base = checks_.restore_and_check(session, state, course.verify);
        if (course.go_back) {
            const auto listed = session.list();  // the same on every rank
            if (listed.ok() && !listed->empty()) base = listed->back().epoch;
            checks_.goes_back();
        }
        const auto epoch_of = [&](int save) { return base + course.step * static_cast<uint64_t>(save + 1); };
        for (int i = 0; i < course.saves; ++i) {
            before_save(i);
            const Attempt attempt{epoch_of(i), course.number};
            const auto& misfit = course.misfits[static_cast<size_t>(i)];
            state.fill(sizes_, attempt, rank);
            ASSERT_TRUE(state.update(session, misfit).ok());
            checks_.saves(attempt, misfit.has_value());
            const bool captured = session.save(attempt.epoch).ok();
            checks_.note(session, attempt.epoch, captured);
            for (int j = 0; j < i; ++j) checks_.note(session, epoch_of(j), false);
            if (course.wait_between) (void)session.wait(attempt.epoch, for_ever);
        }
        (void)session.wait_all(for_ever);
        for (int i = 0; i < course.saves; ++i) checks_.note(session, epoch_of(i), false);
        const auto closed = session.close();
        // Whatever shared_every and the queue have said of it.
        if (closed.ok() && course.saves > 0) {
            EXPECT_EQ(session.state(epoch_of(course.saves - 1))->state, EpochState::committed)
                << "rank " << rank;
        }
        if (course.faults) return;
        const bool all_fit = std::none_of(course.misfits.begin(), course.misfits.end(),
                                          [](const auto& misfit) { return misfit.has_value(); });
        // Without its agents a session flushes the newest epochs when it is closed. An older one, which
        // nobody has judged, may have given way.
        const bool gave_way =
            agents_.carry() && closed.ok() && course.saves > 0 && !course.misfits.back().has_value();
        EXPECT_TRUE(gave_way || closed.code() == (all_fit ? Code::ok : Code::invalid_argument))
            << "rank " << rank << ": " << closed.to_string();
    }

    void tell(const Course& course, const Job& job) {
        const std::set<std::string> machines(job.hosts.begin(), job.hosts.end());
        story_ << "job " << course.number << ": " << layout_.ranks() << " ranks on " << machines.size()
               << " machines, ranks_per_node " << layout_.ranks_per_node << ", K " << job.config.files
               << ", leaders " << job.config.leaders_per_file << ", policy "
               << static_cast<int>(job.config.queue_policy) << ", concurrent " << job.concurrent
               << ", redundancy " << job.config.redundancy << ", saves " << course.saves
               << (course.go_back ? ", goes back" : "") << ", misfits "
               << std::count_if(course.misfits.begin(), course.misfits.end(),
                                [](const auto& misfit) { return misfit.has_value(); })
               << ", faults shared " << course.shared_faults << " local " << course.local_faults << " after "
               << course.faults_after << ", promised before: committed " << to_string(promises_.committed)
               << ", captured " << to_string(promises_.captured) << ", damaged " << promises_.damaged << "\n";
    }

    // Chosen apart from the rest, so that a seed's history is the same with and without it.
    void choose_misfits(Course& course) const {
        for (int save = 0; save < course.saves; ++save) {
            const uint64_t number = (seed_ * 64 + course.number) * 64 + static_cast<uint64_t>(save);
            course.misfits.emplace_back();
            if (Random(number).chance(0.06))
                course.misfits.back() = choose_misfit(number, sizes_.cells, layout_.ranks());
        }
    }

    // Chosen apart, too.
    void choose_redundancy(Config& config) const {
        std::mt19937_64 random(seed_ * 1000003 + job_number_);
        static constexpr const char* levels[] = {"none", "none", "partner", "xor", "rs:2"};
        config.redundancy = levels[random() % std::size(levels)];
        config.redundancy_set = 2 + static_cast<uint32_t>(random() % 7);
        config.redundancy_every = 1 + static_cast<uint32_t>(random() % 2);
    }

    // Ranks that may communicate while the program computes have a background of their own, unless the agents
    // are asked for.
    void choose_carriers(Config& config) const {
        const bool ask = Random(seed_ * 31337 + job_number_).chance(0.8);
        config.agent_carries = ask ? AgentCarries::yes : AgentCarries::automatic;
    }

    // The end of a job, and what happens until the next one begins.
    void between_jobs() {
        agents_.work();
        if (random_.chance(0.6)) {
            story_ << "the power of the shared tier fails\n";
            // Its locks are free then. Agents that still wrote would be a danger that nothing in the file
            // system averts.
            agents_.all_die();
            machines_.shared->crash(random_.engine());
        } else if (!agents_.any_lives()) {
            machines_.shared->process_death();
        }
        for (auto& [host, storage] : machines_.local) {
            if (random_.chance(0.15)) {
                story_ << host << " is lost\n";
                agents_.die(host);
                storage = std::make_shared<MemoryStorage>(machines_.local_options);
            } else if (random_.chance(0.2)) {
                story_ << "the power of " << host << " fails\n";
                agents_.die(host);
                storage->crash(random_.engine());
                if (!config_.local_sync) {
                    // Parts may be torn. That is found out when they are read, not before.
                    promises_.captured = {};
                    promises_.torn = true;
                }
            } else if (!agents_.lives(host)) {
                storage->process_death();
            }
        }
        if (!checks_.captured_survives()) promises_.captured = {};
        checks_.check_promises();
        if (random_.chance(0.1)) damage_a_file();
        if (random_.chance(0.4)) {
            layout_ = choose_layout();
            promises_.captured = {};
        }
        if (random_.chance(0.3)) choose_files();
        config_.files = std::min(config_.files, static_cast<uint32_t>(2 * layout_.ranks()));
    }

    void damage_a_file() {
        auto entries = machines_.shared->list(config_.shared_dir);
        if (!entries.ok() || entries->empty()) return;
        promises_.damaged = true;
        const auto path = join_path(config_.shared_dir, (*entries)[random_.below(entries->size())].name);
        story_ << path << " is damaged\n";
        if (random_.chance(0.3)) {
            ASSERT_TRUE(machines_.shared->remove(path).ok());
            return;
        }
        auto file = machines_.shared->open(path, {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        const uint64_t bytes = (*file)->size().value();
        if (bytes == 0) return;
        const uint64_t at = random_.below(bytes);
        if (random_.chance(0.3)) {
            ASSERT_TRUE((*file)->truncate(at).ok());
        } else {
            std::vector<std::byte> byte(1);
            ASSERT_TRUE((*file)->read_at(byte, at).ok());
            byte[0] ^= std::byte{1} << random_.below(8);
            ASSERT_TRUE((*file)->write_at(byte, at).ok());
        }
        ASSERT_TRUE((*file)->sync().ok());
    }

    const uint64_t seed_;
    Random random_;
    const HistoryLimits limits_;
    Stage& stage_;
    Tally& tally_;
    Machines machines_;
    Config config_;
    Sizes sizes_;
    Layout layout_;
    std::stringstream story_;
    Promises promises_;
    HistoryChecks checks_{machines_, sizes_, promises_, tally_};
    HistoryAgents agents_{seed_, config_, machines_, stage_, checks_, promises_, story_};
    uint64_t job_number_ = 0;
};

}  // namespace

std::string run_history(uint64_t seed, const HistoryLimits& limits, Stage& stage, Tally& tally) {
    History history(seed, limits, stage, tally);
    history.run();
    return history.story();
}

}  // namespace tailrace::internal::testing_support
