#include "session/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <tuple>

#include "base/bytes.h"
#include "format/catalog.h"
#include "session/history_state.h"

namespace tailrace::internal::testing_support {

namespace {

// ---- a history -------------------------------------------------------------------------------------------

struct Layout {
    std::vector<std::string> hosts;
    uint32_t ranks_per_node = 0;
    int ranks() const { return static_cast<int>(hosts.size()); }
};

bool earlier(EpochKey a, EpochKey b) {
    return std::tie(a.run, a.epoch) < std::tie(b.run, b.epoch);
}

class History {
  public:
    History(uint64_t seed, const HistoryLimits& limits, Stage& stage, Tally& tally)
        : seed_(seed), random_(seed), limits_(limits), stage_(stage), tally_(tally) {}

    void run() {
        choose_world();
        const int jobs = std::min(random_.between(1, 3), limits_.most_jobs);
        for (int i = 0; i < jobs && !::testing::Test::HasFailure(); ++i) {
            one_job(true);
            between_jobs();
        }
        if (!::testing::Test::HasFailure()) one_job(false);
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

    FaultPlan choose_faults(bool shared) {
        FaultPlan plan;
        switch (random_.between(0, 6)) {
            case 0:
                plan.write_error = 0.05;
                break;
            case 1:
                plan.write_no_space = 0.05;
                break;
            case 2:
                plan.sync_error = 0.05;
                break;
            case 3:
                plan.rename_error = 0.1;
                plan.open_error = 0.02;
                break;
            case 4:
                plan.read_error = 0.05;
                plan.short_read = 0.05;
                plan.list_error = 0.02;
                break;
            case 5:
                damaged_ = true;  // what is committed may not be what was captured
                plan.write_flip = shared ? 0.02 : 0;
                plan.read_flip = 0.02;
                break;
            default:
                if (random_.chance(0.5))
                    plan.die_at_sync = 1 + random_.below(shared ? 30 : 8);
                else
                    plan.die_at_operation = 1 + random_.below(shared ? 150 : 60);
        }
        return plan;
    }

    void one_job(bool faults) {
        ++job_number_;
        const bool shared_faults = faults && random_.chance(0.6);
        const bool local_faults = faults && random_.chance(0.3);
        auto shared = std::make_shared<FaultyStorage>(machines_.shared, random_.engine()());
        std::map<std::string, std::shared_ptr<FaultyStorage>> local;
        for (const auto& host : layout_.hosts)
            if (!local.contains(host))
                local[host] = std::make_shared<FaultyStorage>(machines_.local_of(host), random_.engine()());
        const FaultPlan shared_plan = shared_faults ? choose_faults(true) : FaultPlan{};
        const FaultPlan local_plan = local_faults ? choose_faults(false) : FaultPlan{};
        const auto faulty_host = layout_.hosts[random_.below(layout_.hosts.size())];
        auto let_faults_in = [&] {
            auto plan = shared_plan;
            if (plan.die_at_operation > 0) plan.die_at_operation += shared->operations();
            shared->set_plan(plan);
            plan = local_plan;
            if (plan.die_at_operation > 0) plan.die_at_operation += local[faulty_host]->operations();
            local[faulty_host]->set_plan(plan);
        };
        // Some come after a while, when there is something to lose.
        const bool late = random_.chance(0.6);
        if (!late) let_faults_in();

        Job job;
        job.hosts = layout_.hosts;
        job.shared = stage_.mount(shared, "", [this] { check_names(); });
        std::map<std::string, std::shared_ptr<Storage>> mounted;
        for (const auto& [host, storage] : local) mounted[host] = stage_.mount(storage, host, {});
        job.local = [&](const std::string& host) { return mounted.at(host); };
        job.connect = [&](const auto& hosts, bool concurrent) { return stage_.connect(hosts, concurrent); };
        job.config = config_;
        job.config.ranks_per_node = layout_.ranks_per_node;
        job.concurrent = random_.chance(0.85);
        choose_redundancy(job.config);
        const int saves = std::min(random_.between(0, 5), limits_.most_saves);
        const int faults_after = late ? random_.between(0, std::max(0, saves - 1)) : -1;
        const bool wait_between = random_.chance(0.5);
        const uint64_t step = 1 + random_.below(3);
        const bool verify = random_.chance(0.3);
        const bool go_back = random_.chance(0.2);  // to the oldest epoch, or to what was left behind
        story_ << "job " << job_number_ << ": " << layout_.ranks() << " ranks on " << local.size()
               << " machines, ranks_per_node " << layout_.ranks_per_node << ", K " << job.config.files
               << ", leaders " << job.config.leaders_per_file << ", policy "
               << static_cast<int>(job.config.queue_policy) << ", concurrent " << job.concurrent
               << ", redundancy " << job.config.redundancy << ", saves " << saves
               << (go_back ? ", goes back" : "") << ", faults shared " << shared_faults << " local "
               << local_faults << " late " << late << ", promised before: committed " << to_string(committed_)
               << ", captured " << to_string(captured_) << ", damaged " << damaged_ << "\n";

        EpochKey bound = std::max(committed_, captured_, earlier);
        if (faults || damaged_) bound = {};
        // What a job saved after it had gone back may look whole and be torn. It leaves the newer epochs
        // behind all the same: then an older one of its own past is restored before them (format/lineage.h).
        if (torn_ && went_back_) bound = {};
        std::atomic<bool> faults_in{false};
        std::map<uint64_t, int> captures;
        seen_.clear();
        newest_begun_ = 0;
        const bool in_step = random_.chance(0.3);
        Pace pace(layout_.ranks());
        const bool cut_off = stage_.begin_job(faults, [&] {
            shared->die();
            for (const auto& [host, storage] : local) storage->die();
        });
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            if (session == nullptr) {
                pace.leave(rank);
                EXPECT_TRUE(faults) << "rank " << rank << " could not open: " << opened.to_string();
                return;
            }
            RankState state;
            state.shape(sizes_, rank, layout_.ranks());
            ASSERT_TRUE(state.enlist(*session).ok());
            uint64_t base = restore_and_check(*session, state, faults, verify, bound);
            if (go_back) {
                const auto listed = session->list();  // the same on every rank
                if (listed.ok() && !listed->empty()) base = listed->back().epoch;
                MutexLock lock(mutex_);
                went_back_ = true;
            }
            for (int i = 0; i < saves; ++i) {
                if (in_step || cut_off) pace.come_to(rank, i + 1);
                if (i == faults_after && !faults_in.exchange(true)) let_faults_in();
                const Attempt attempt{base + step * static_cast<uint64_t>(i + 1), job_number_};
                state.fill(sizes_, attempt, rank);
                ASSERT_TRUE(state.update(*session).ok());
                {
                    MutexLock lock(mutex_);
                    newest_begun_ = std::max(newest_begun_, attempt.epoch);
                }
                const bool captured = session->save(attempt.epoch).ok();
                note(*session, attempt.epoch, captured && !local_faults, captures);
                for (int j = 0; j < i; ++j)
                    note(*session, base + step * static_cast<uint64_t>(j + 1), false, captures);
                if (wait_between) (void)session->wait(attempt.epoch, for_ever);
            }
            (void)session->wait_all(for_ever);
            for (int i = 0; i < saves; ++i)
                note(*session, base + step * static_cast<uint64_t>(i + 1), false, captures);
            const auto closed = session->close();
            if (!faults) {
                EXPECT_TRUE(closed.ok()) << "rank " << rank << ": " << closed.to_string();
            }
        });
        stage_.end_job();
        if (faults) return;
        auto left = machines_.shared->list(config_.shared_dir);
        ASSERT_TRUE(left.ok());
        for (const auto& entry : *left)
            EXPECT_TRUE(damaged_ || entry.name.find(".unfinished") == std::string::npos) << entry.name;
    }

    // What became known on a rank: which run this is, what is committed, what every rank has captured.
    void note(Checkpointer& session, uint64_t epoch, bool captured, std::map<uint64_t, int>& captures) {
        const auto info = session.state(epoch);
        if (!info.ok() || info->state == EpochState::unknown) return;
        const EpochKey key{epoch, info->run};
        check_moves_forward(session.rank(), key, info->state);
        if (info->state == EpochState::committed) check_committed(key);
        MutexLock lock(mutex_);
        run_of_job_[job_number_] = info->run;
        if (info->state == EpochState::committed) committed_ = std::max(committed_, key, earlier);
        if (captured && ++captures[epoch] == layout_.ranks()) captured_ = std::max(captured_, key, earlier);
    }

    // captured, flushing, then one of the ends, which stays.
    void check_moves_forward(int rank, EpochKey key, EpochState state) {
        MutexLock lock(mutex_);
        auto& before = seen_.try_emplace({rank, key}, state).first->second;
        EXPECT_TRUE(before == state || (!is_final(before) && before < state))
            << "rank " << rank << ", " << to_string(key) << ": state " << static_cast<int>(state) << " after "
            << static_cast<int>(before);
        before = state;
    }

    // No rank is told that an epoch is committed which a reader would not open. Those that check_names() has
    // read are known to be sound, and older ones may have been removed meanwhile.
    void check_committed(EpochKey key) {
        const auto removable = [&] {
            MutexLock lock(mutex_);
            return damaged_ || (config_.keep_shared > 0 && key.epoch < newest_begun_);
        };
        if (removable() || announced_.contains(key)) return;
        const Status opens = [&]() -> Status {
            TAILRACE_ASSIGN(const auto listed,
                            list_shared(*machines_.shared, config_.shared_dir, config_.name));
            for (const auto& files : listed)
                if (files.key == key) return load_shared_epoch(*machines_.shared, files).status();
            return Status(Code::not_found, "it has no files");
        }();
        EXPECT_TRUE(opens.ok() || removable())
            << to_string(key) << " is reported as committed: " << opens.to_string();
    }

    // Returns the epoch to go on from, the same on every rank.
    uint64_t restore_and_check(Checkpointer& session, RankState& state, bool faults, bool verify,
                               EpochKey bound) {
        const int rank = session.rank();
        const bool must_work = !faults && !damaged_ && !torn_;
        auto opened = session.open_epoch(std::nullopt, std::nullopt, verify);
        if (!opened.ok()) {
            // The truth, as long as nothing was promised.
            EXPECT_EQ(to_string(bound), to_string(EpochKey{}))
                << "rank " << rank << " found nothing: " << opened.status().to_string();
            ++tally_.nothing;
            return 0;
        }
        auto reader = std::move(*opened);
        const EpochKey key = reader->key();
        EXPECT_FALSE(earlier(key, bound))
            << "rank " << rank << " opened " << to_string(key) << " instead of " << to_string(bound);
        bool same_ranks = reader->rank_count() == static_cast<uint32_t>(session.rank_count());
        const auto read = check_reader(*reader, static_cast<uint32_t>(rank) % reader->rank_count());
        if (must_work) {
            EXPECT_TRUE(read.ok()) << "rank " << rank << ": " << read.to_string();
        }
        reader.reset();

        std::vector<std::string> names{"cells"};
        if (same_ranks) names.insert(names.end(), {"tag", "fixed"});
        auto restored = session.restore(std::nullopt, names);
        if (same_ranks && torn_ && !faults && restored.status().code() == Code::invalid_argument) {
            // The reader looked at heads only. What it had opened was torn, and the next older epoch is of
            // fewer ranks than there are now: it has no regions of their own for all of them.
            same_ranks = false;
            restored = session.restore(std::nullopt, std::vector<std::string>{"cells"});
        }
        if (must_work || bound != EpochKey{}) {
            EXPECT_TRUE(restored.ok()) << "rank " << rank << ": " << restored.status().to_string();
        }
        ++(restored.ok() ? tally_.restored : tally_.refused);
        if (!restored.ok()) return key.epoch;
        const auto expect_in_time = [&](Attempt attempt) {
            MutexLock lock(mutex_);
            EXPECT_EQ(attempt.epoch, *restored) << "rank " << rank;
            EXPECT_FALSE(earlier({attempt.epoch, run_of_job_[attempt.job]}, bound)) << "rank " << rank;
        };
        if (same_ranks) {
            const auto attempt = read_tag(state.tag);
            expect_in_time(attempt);
            EXPECT_TRUE(state.fixed == content(attempt.number(), rank, 1, sizes_.fixed(rank)))
                << "rank " << rank;
        }
        if (!state.cells.empty()) {
            const uint64_t from = state.piece.offset[0];
            const uint32_t number = state.cells[0] - cell({}, from);
            expect_in_time({number / 64, number % 64});
            for (uint64_t i = 0; i < state.cells.size(); ++i)
                if (state.cells[i] != cell({number / 64, number % 64}, from + i)) {
                    ADD_FAILURE() << "rank " << rank << ": cell " << from + i << " is wrong";
                    break;
                }
        }
        return key.epoch;
    }

    // What has its final names is announced, or will be: a reader must be able to open it, and find every
    // byte right.
    void check_names() {
        if (damaged_) return;
        const auto listed = list_shared(*machines_.shared, config_.shared_dir, config_.name);
        ASSERT_TRUE(listed.ok()) << listed.status().to_string();
        for (const auto& files : *listed) {
            if (!looks_complete(files) || !announced_.insert(files.key).second) continue;
            ++tally_.announced;
            auto shared = load_shared_epoch(*machines_.shared, files);
            ASSERT_TRUE(shared.ok()) << to_string(files.key)
                                     << " has its names: " << shared.status().to_string();
            const uint32_t ranks = shared->rank_count;
            auto reader =
                EpochReader::open(*machines_.shared, *machines_.shared, {files.key, ranks, {}, *shared});
            ASSERT_TRUE(reader.ok()) << to_string(files.key) << ": " << reader.status().to_string();
            for (uint32_t rank = 0; rank < ranks; ++rank) {
                const auto read = check_reader(**reader, rank, false);
                EXPECT_TRUE(read.ok())
                    << to_string(files.key) << ", rank " << rank << ": " << read.to_string();
            }
        }
    }

    // Wrong bytes are a failure of the test; not being able to read is the status. `run_is_known`: the job
    // that saved it has noted its run.
    Status check_reader(EpochReader& reader, uint32_t rank, bool run_is_known = true) {
        const auto signed_rank = static_cast<int>(rank);
        std::vector<std::byte> tag(16), fixed(sizes_.fixed(signed_rank));
        const std::vector<RegionTarget> targets{{"tag", tag}, {"fixed", fixed}};
        TAILRACE_TRY(reader.read_regions(rank, targets));
        const auto attempt = read_tag(tag);
        {
            MutexLock lock(mutex_);
            EXPECT_EQ(attempt.epoch, reader.key().epoch);
            if (run_is_known) {
                EXPECT_EQ(run_of_job_[attempt.job], reader.key().run);
            }
        }
        EXPECT_TRUE(fixed == content(attempt.number(), signed_rank, 1, fixed.size())) << "rank " << rank;
        std::vector<std::byte> variable(sizes_.variable(attempt, signed_rank));
        const RegionTarget target{"variable", variable};
        TAILRACE_TRY(reader.read_regions(rank, {&target, 1}));
        EXPECT_TRUE(variable == content(attempt.number(), signed_rank, 2, variable.size()))
            << "rank " << rank;
        return {};
    }

    // Chosen apart from the rest, so that a seed's history is the same with and without it.
    void choose_redundancy(Config& config) const {
        std::mt19937_64 random(seed_ * 1000003 + job_number_);
        static constexpr const char* levels[] = {"none", "none", "partner", "xor", "rs:2"};
        config.redundancy = levels[random() % std::size(levels)];
        config.redundancy_set = 2 + static_cast<uint32_t>(random() % 7);
        config.redundancy_every = 1 + static_cast<uint32_t>(random() % 2);
    }

    // The end of a job, and what happens until the next one begins.
    void between_jobs() {
        if (random_.chance(0.6)) {
            story_ << "the power of the shared tier fails\n";
            machines_.shared->crash(random_.engine());
        } else {
            machines_.shared->process_death();
        }
        for (auto& [host, storage] : machines_.local) {
            if (random_.chance(0.15)) {
                story_ << host << " is lost\n";
                storage = std::make_shared<MemoryStorage>(machines_.local_options);
                captured_ = {};
            } else if (random_.chance(0.2)) {
                story_ << "the power of " << host << " fails\n";
                storage->crash(random_.engine());
                if (!config_.local_sync) {
                    // Parts may be torn. That is found out when they are read, not before.
                    captured_ = {};
                    torn_ = true;
                }
            } else {
                storage->process_death();
            }
        }
        if (random_.chance(0.1)) damage_a_file();
        if (random_.chance(0.4)) {
            layout_ = choose_layout();
            captured_ = {};
        }
        if (random_.chance(0.3)) choose_files();
        config_.files = std::min(config_.files, static_cast<uint32_t>(2 * layout_.ranks()));
    }

    void damage_a_file() {
        auto entries = machines_.shared->list(config_.shared_dir);
        if (!entries.ok() || entries->empty()) return;
        damaged_ = true;
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
    Mutex mutex_;         // guards what the ranks' threads note: the next five
    EpochKey committed_;  // the last whose commit was reported
    EpochKey captured_;   // the last that every rank has captured, while the node-local tiers are whole
    std::map<uint64_t, uint32_t> run_of_job_;
    std::map<std::pair<int, EpochKey>, EpochState> seen_;  // by rank, in this job
    uint64_t newest_begun_ = 0;                            // the newest epoch of this job
    std::set<EpochKey> announced_;                         // have been read when they got their names
    bool went_back_ = false;                               // some job did
    bool torn_ = false;     // captured parts may be damaged, which no commit depends on
    bool damaged_ = false;  // bits have changed in files: nothing is promised but the truth
    uint64_t job_number_ = 0;
    std::stringstream story_;
};

}  // namespace

std::string run_history(uint64_t seed, const HistoryLimits& limits, Stage& stage, Tally& tally) {
    History history(seed, limits, stage, tally);
    history.run();
    return history.story();
}

}  // namespace tailrace::internal::testing_support
