#include "session/history_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "base/log.h"
#include "memory/buffer_pool.h"
#include "protect/protect_object.h"
#include "protect/protector.h"
#include "protect/sets.h"
#include "read/epoch_reader.h"
#include "session/session.h"

namespace tailrace::internal::testing_support {

bool earlier(EpochKey a, EpochKey b) {
    return std::tie(a.run, a.epoch) < std::tie(b.run, b.epoch);
}

namespace {

// (Comparing vectors of std::byte goes byte by byte.)
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

// ---- a job
// -------------------------------------------------------------------------------------------------

void HistoryChecks::job_begins(JobInfo job) {
    MutexLock lock(mutex_);
    job_ = std::move(job);
    topology_ = make_topology(job_.hosts, job_.config.ranks_per_node);
    tier_ = local_tier(job_.config.local_dir, job_.config.shared_dir, job_.config.name);
    const uint64_t of_protector =
        job_.config.redundancy == "none" ? 0 : protect_buffers * protect_buffer_bytes;
    memory_bound_ = static_cast<uint64_t>(topology_.node_count()) *
                    (job_.config.buffers * job_.config.buffer_bytes + of_protector);
    if (job_.is_carried) {
        carried_bound_ += memory_bound_;
        count_farewells();
    }
    captures_.clear();
    told_.clear();
    seen_.clear();
    ends_.clear();
    newest_begun_ = 0;
    watched_.assign(job_.hosts.size(), {});
}

void HistoryChecks::job_ends() {
    MutexLock lock(mutex_);
    if (job_.is_carried && std::getenv("TAILRACE_LOG") == nullptr) {
        set_log_callback({});
        set_log_level(LogLevel::off);
    }
    watched_.clear();
    if (!job_.meets_faults) check_left();
    memory_bound_ = 0;
    if (agents_bound_ > 0) return;
    const auto usage = BufferPool::usage();
    EXPECT_EQ(usage.taken_bytes, 0u) << "of buffers are in use, and all sessions are closed";
    EXPECT_EQ(usage.pool_bytes, 0u) << "of buffers stay, and all sessions are closed";
}

// A node's representative says it once. (Who wants to see the log gets all of it, without this check.)
void HistoryChecks::count_farewells() {
    if (std::getenv("TAILRACE_LOG") != nullptr) return;
    farewells_.clear();
    set_log_callback([this](LogLevel, std::string_view message) {
        const auto end = message.find(" no longer carries the epochs");
        if (end == std::string_view::npos) return;
        const auto sentence = std::string(message.substr(0, end));
        EXPECT_EQ(++farewells_[sentence], 1) << message;
    });
    set_log_level(LogLevel::warning);
}

void HistoryChecks::set_agents(size_t count) {
    MutexLock lock(mutex_);
    agents_bound_ = count * job_.config.buffers * job_.config.buffer_bytes;
    if (count == 0 && watched_.empty()) {
        carried_bound_ = 0;
        EXPECT_EQ(BufferPool::usage().pool_bytes, 0u) << "of buffers stay, and all agents have ended";
    }
}

void HistoryChecks::finished(EpochKey key) {
    MutexLock lock(mutex_);
    promises_.committed = std::max(promises_.committed, key, earlier);
}

void HistoryChecks::opened(int rank, Checkpointer& session) {
    MutexLock lock(mutex_);
    watched_[static_cast<size_t>(rank)] = {&dynamic_cast<Session&>(session).epochs(), 0};
}

void HistoryChecks::closes(int rank) {
    MutexLock lock(mutex_);
    watched_[static_cast<size_t>(rank)] = {};
}

void HistoryChecks::goes_back() {
    MutexLock lock(mutex_);
    promises_.went_back = true;
}

void HistoryChecks::saves(Attempt attempt, bool misfits) {
    MutexLock lock(mutex_);
    if (misfits) misfits_.insert(attempt.number());
    newest_begun_ = std::max(newest_begun_, attempt.epoch);
}

void HistoryChecks::note(Checkpointer& session, uint64_t epoch, bool captured) {
    const auto info = session.state(epoch);
    if (!info.ok() || info->state == EpochState::unknown) return;
    const EpochKey key{epoch, info->run};
    const auto entry = dynamic_cast<Session&>(session).epochs().find(epoch);
    (void)moves_forward(told_, session.rank(), key, info->state, entry && entry->unheard);
    if (is_final(info->state)) check_refusal(session.rank(), *info);
    if (info->state == EpochState::committed) check_committed(key);
    const bool fits = !misfits({epoch, job_.number});
    MutexLock lock(mutex_);
    run_of_job_[job_.number] = info->run;
    if (info->state == EpochState::committed)
        promises_.committed = std::max(promises_.committed, key, earlier);
    if (captured && fits && !job_.meets_local_faults && ++captures_[epoch] == ranks()) {
        promises_.captured = std::max(promises_.captured, key, earlier);
        captured_by_ = job_;
    }
}

// ---- states
// ------------------------------------------------------------------------------------------------

namespace {

// close() may commit what was kept in the node-local tier.
bool at_close(EpochState before, EpochState state) {
    return before == EpochState::kept_local && state == EpochState::committed;
}

}  // namespace

// captured, protected, flushing, then one of the ends, which stays.
bool HistoryChecks::moves_forward(States& states, int rank, EpochKey key, EpochState state, bool unheard) {
    MutexLock lock(mutex_);
    const auto [seen, is_new] = states.try_emplace({rank, key}, state);
    auto& before = seen->second;
    const bool flush_is_over = unheard && before == EpochState::flushing && !is_final(state);
    EXPECT_TRUE(before == state || stage_of(before) < stage_of(state) || at_close(before, state) ||
                flush_is_over)
        << "rank " << rank << ", " << to_string(key) << ": state " << static_cast<int>(state) << " after "
        << static_cast<int>(before);
    return std::exchange(before, state) != state || is_new;
}

void HistoryChecks::after_step() {
    check_memory();
    for (size_t rank = 0; rank < watched_.size(); ++rank) {
        auto& watched = watched_[rank];
        if (watched.epochs == nullptr || watched.epochs->changes() == watched.changes) continue;
        watched.changes = watched.epochs->changes();
        for (const auto& entry : watched.epochs->all()) {
            const auto& info = entry.info;
            const EpochKey key{info.epoch, info.run};
            const bool is_new = !seen_.contains({static_cast<int>(rank), key});
            if (!moves_forward(seen_, static_cast<int>(rank), key, info.state, entry.unheard)) continue;
            if (is_final(info.state)) check_refusal(static_cast<int>(rank), info);
            if (is_final(info.state) && !entry.unheard) check_end(static_cast<int>(rank), key, info.state);
            // (One whose flush is over may be gone: newer ones have taken its place.)
            if (info.state == EpochState::captured && is_new && !gave_way(entry, *watched.epochs))
                check_part(static_cast<int>(rank), key);
            if (info.state == EpochState::committed) check_committed(key);
        }
    }
}

// A rank without a background waits for nothing: it may save several epochs in one step. The first of them
// are removed by then.
bool HistoryChecks::gave_way(const RankEpochs::Entry& entry, const RankEpochs& epochs) const {
    const auto all = epochs.all();
    const auto newer = std::count_if(all.begin(), all.end(), [&](const RankEpochs::Entry& other) {
        return other.info.epoch > entry.info.epoch;
    });
    return entry.unheard && newer >= job_.config.keep_local;
}

void HistoryChecks::check_end(int rank, EpochKey key, EpochState state) {
    const auto [ended, first] = ends_.try_emplace(key, state);
    if (at_close(ended->second, state)) ended->second = state;
    EXPECT_TRUE(ended->second == state)
        << "rank " << rank << " hears that " << to_string(key) << " ended in state "
        << static_cast<int>(state) << ", and another one " << static_cast<int>(ended->second);
}

bool HistoryChecks::misfits(Attempt attempt) {
    MutexLock lock(mutex_);
    return misfits_.contains(attempt.number());
}

// An epoch of this job has ended. Without faults there is no other reason for a failure.
void HistoryChecks::check_refusal(int rank, const EpochInfo& info) {
    const Attempt attempt{info.epoch, job_.number};
    const bool refused =
        info.why.code() == Code::invalid_argument && info.why.message().find("'cells'") != std::string::npos;
    if (!misfits(attempt)) {
        EXPECT_FALSE(refused) << "rank " << rank << ", epoch " << info.epoch << ": " << info.why.to_string();
        EXPECT_TRUE(job_.meets_faults || info.state != EpochState::failed)
            << "rank " << rank << ", epoch " << info.epoch << ": " << info.why.to_string();
        return;
    }
    EXPECT_TRUE(info.state == EpochState::failed && (refused || job_.meets_faults))
        << "the arrays of epoch " << info.epoch << " do not fit together, but on rank " << rank
        << " it ended in state " << static_cast<int>(info.state) << ": " << info.why.to_string();
    MutexLock lock(mutex_);
    if (refused && refused_.insert(attempt.number()).second) ++tally_.misfits;
}

// After a job without faults: no file of a refused epoch, and no file under an unfinished name. (An agent
// that carries may die while it removes an older epoch.)
void HistoryChecks::check_left() {
    const auto left = list_shared(*machines_.shared, job_.config.shared_dir, job_.config.name);
    ASSERT_TRUE(left.ok());
    const auto run = run_of_job_.find(job_.number);
    for (const auto& files : *left) {
        EXPECT_TRUE(promises_.damaged || job_.is_carried || !has_unfinished(files)) << to_string(files.key);
        EXPECT_FALSE(run != run_of_job_.end() && files.key.run == run->second &&
                     misfits_.contains(Attempt{files.key.epoch, job_.number}.number()))
            << to_string(files.key) << " was refused and has files";
    }
}

void HistoryChecks::check_promises() {
    const EpochKey committed = promises_.committed;
    if (promises_.damaged || committed == EpochKey{}) return;
    // While agents work, an older epoch may go between two looks, because a newer one has come.
    for (int look = 0; look < 5; ++look) {
        const auto listed = list_shared(*machines_.shared, job_.config.shared_dir, job_.config.name);
        ASSERT_TRUE(listed.ok()) << listed.status().to_string();
        for (const auto& files : *listed)
            if (!earlier(files.key, committed) && load_shared_epoch(*machines_.shared, files).ok()) return;
    }
    std::string found;
    for (const auto& entry : *machines_.shared->list(job_.config.shared_dir)) found += " " + entry.name;
    ADD_FAILURE() << to_string(committed) << " was committed, and neither it ("
                  << open_shared(committed).status().to_string() << ") nor a later one is there, but"
                  << found;
}

bool HistoryChecks::has_parts(const Topology& topology, size_t node) {
    const auto& ranks = topology.ranks_of_node[node];
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
        const PartFileName name{captured_by_.config.name, promises_.captured, static_cast<uint32_t>(rank)};
        return captured_part(*machines_.local_of(captured_by_.hosts[static_cast<size_t>(rank)]),
                             join_path(tier_.directory(static_cast<int>(node)), to_string(name)))
            .ok();
    });
}

bool HistoryChecks::has_object(const Topology& topology, size_t node) {
    const int number = static_cast<int>(node);
    const auto& host = captured_by_.hosts[static_cast<size_t>(topology.representative(number))];
    return ObjectReader::read_head(
               *machines_.local_of(host),
               protect_path(tier_.directory(number), captured_by_.config.name, promises_.captured, number))
        .ok();
}

bool HistoryChecks::captured_survives() {
    if (promises_.captured == EpochKey{}) return false;
    const auto& config = captured_by_.config;
    const auto topology = make_topology(captured_by_.hosts, config.ranks_per_node);
    std::vector<std::string> domains;
    for (int node = 0; node < topology.node_count(); ++node)
        domains.push_back(captured_by_.hosts[static_cast<size_t>(topology.representative(node))]);
    const auto sets = make_sets(domains, *parse_redundancy(config.redundancy), config.redundancy_set);
    std::vector<bool> lost;
    for (size_t node = 0; node < domains.size(); ++node) lost.push_back(!has_parts(topology, node));
    if (std::find(lost.begin(), lost.end(), true) == lost.end()) return true;
    for (const auto& set : sets.sets) {
        const auto is_lost = [&](int node) { return lost[static_cast<size_t>(node)]; };
        const auto losses = std::count_if(set.nodes.begin(), set.nodes.end(), is_lost);
        if (losses == 0) continue;
        if (losses > set.redundancy.losses) return false;
        for (size_t i = 0; i < set.nodes.size(); ++i) {
            const int node = set.nodes[i];
            // A partner is needed only if it keeps what was lost.
            const bool needed = set.redundancy.scheme == Scheme::partner
                                    ? is_lost(set.nodes[kept_by(set, static_cast<uint32_t>(i))])
                                    : !is_lost(node);
            if (needed && (is_lost(node) || !has_object(topology, static_cast<size_t>(node)))) return false;
        }
    }
    if (sets.sets.empty()) return false;
    ++tally_.rebuilt;
    return true;
}

void HistoryChecks::check_memory() {
    const auto usage = BufferPool::usage();
    if (usage.taken_bytes <= usage.pool_bytes &&
        usage.pool_bytes <= memory_bound_ + agents_bound_ + carried_bound_)
        return;
    ADD_FAILURE() << usage.taken_bytes << " bytes of buffers are in use, pools have " << usage.pool_bytes
                  << ", and jobs and agents may have " << memory_bound_ << " and "
                  << agents_bound_ + carried_bound_;
    memory_bound_ = UINT64_MAX / 2;  // once is enough
}

// A rank has just captured this.
void HistoryChecks::check_part(int rank, EpochKey key) {
    if (promises_.damaged) return;
    const auto& host = job_.hosts[static_cast<size_t>(rank)];
    const int node = topology_.node_of_rank[static_cast<size_t>(rank)];
    const PartFileName name{job_.config.name, key, static_cast<uint32_t>(rank), false};
    auto& local = *machines_.local_of(host);
    const auto read = [&]() -> Status {
        TAILRACE_ASSIGN(auto part, captured_part(local, join_path(tier_.directory(node), to_string(name))));
        const EpochSources sources{key, static_cast<uint32_t>(ranks()), {std::move(part)}, std::nullopt};
        TAILRACE_ASSIGN(const auto reader, EpochReader::open(local, *machines_.shared, sources));
        return check_reader(*reader, static_cast<uint32_t>(rank), false);
    }();
    EXPECT_TRUE(read.ok()) << "rank " << rank << " has captured " << to_string(key) << ": "
                           << read.to_string();
}

Result<std::unique_ptr<EpochReader>> HistoryChecks::open_shared(EpochKey key) {
    auto& shared = *machines_.shared;
    TAILRACE_ASSIGN(const auto listed, list_shared(shared, job_.config.shared_dir, job_.config.name));
    for (const auto& files : listed) {
        if (files.key != key) continue;
        TAILRACE_ASSIGN(auto epoch, load_shared_epoch(shared, files));
        const uint32_t rank_count = epoch.rank_count;
        return EpochReader::open(shared, shared, {key, rank_count, {}, std::move(epoch)});
    }
    return Status(Code::not_found, "it has no files");
}

// No rank is told that an epoch is committed which a reader would not open. Those that have been read when
// they got their names are known to be sound, and older ones may have been removed meanwhile.
void HistoryChecks::check_committed(EpochKey key) {
    {
        MutexLock lock(mutex_);
        if (announced_.contains(key)) return;
    }
    const auto removable = [&] {
        MutexLock lock(mutex_);
        return promises_.damaged || (job_.config.keep_shared > 0 && key.epoch < newest_begun_);
    };
    if (removable()) return;
    const auto reader = open_shared(key);
    const Status read = reader.ok() ? check_everything(**reader) : reader.status();
    EXPECT_TRUE(read.ok() || removable())
        << to_string(key) << " is reported as committed: " << read.to_string();
}

// Another agent has committed newer epochs meanwhile.
bool HistoryChecks::was_removed(EpochKey key) {
    if (job_.config.keep_shared == 0) return false;
    const auto listed = list_shared(*machines_.shared, job_.config.shared_dir, job_.config.name);
    return listed.ok() && std::none_of(listed->begin(), listed->end(), [&](const SharedEpochFiles& files) {
               return files.key == key && looks_complete(files);
           });
}

// What has its final names is announced, or will be.
void HistoryChecks::check_names(NamedBy who) {
    if (promises_.damaged) return;
    const auto listed = list_shared(*machines_.shared, job_.config.shared_dir, job_.config.name);
    ASSERT_TRUE(listed.ok()) << listed.status().to_string();
    for (const auto& files : *listed) {
        {
            MutexLock lock(mutex_);
            if (!looks_complete(files) || !announced_.insert(files.key).second) continue;
        }
        ++tally_.announced;
        if (who != NamedBy::job) ++tally_.drained;
        if (who == NamedBy::carrying_agent) ++tally_.carried;
        const auto reader = open_shared(files.key);
        const Status read = reader.ok() ? check_everything(**reader) : reader.status();
        EXPECT_TRUE(read.ok() || was_removed(files.key))
            << to_string(files.key) << " has its names: " << read.to_string();
    }
}

// ---- bytes
// -------------------------------------------------------------------------------------------------

Status HistoryChecks::check_reader(EpochReader& reader, uint32_t rank, bool run_is_known) {
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
    EXPECT_TRUE(same(fixed, content(attempt.number(), signed_rank, 1, fixed.size()))) << "rank " << rank;
    std::vector<std::byte> variable(sizes_.variable(attempt, signed_rank));
    const RegionTarget target{"variable", variable};
    TAILRACE_TRY(reader.read_regions(rank, {&target, 1}));
    EXPECT_TRUE(same(variable, content(attempt.number(), signed_rank, 2, variable.size())))
        << "rank " << rank;
    return {};
}

// The regions of all ranks, and the array that they have together.
Status HistoryChecks::check_everything(EpochReader& reader) {
    for (uint32_t rank = 0; rank < reader.rank_count(); ++rank)
        TAILRACE_TRY(check_reader(reader, rank, false));
    std::vector<std::byte> tag(16);
    const RegionTarget target{"tag", tag};
    TAILRACE_TRY(reader.read_regions(0, {&target, 1}));
    EXPECT_FALSE(misfits(read_tag(tag))) << to_string(reader.key()) << " is there, although it was refused";
    std::vector<uint32_t> cells(sizes_.cells);
    const std::vector<uint64_t> offset{0}, shape{cells.size()};
    TAILRACE_TRY(reader.read_box("cells", offset, shape, std::as_writable_bytes(std::span(cells))));
    for (uint64_t i = 0; i < cells.size(); ++i)
        if (cells[i] != cell(read_tag(tag), i)) {
            ADD_FAILURE() << to_string(reader.key()) << ": cell " << i << " is wrong";
            break;
        }
    return {};
}

uint64_t HistoryChecks::restore_and_check(Checkpointer& session, RankState& state, bool verify) {
    const int rank = session.rank();
    const EpochKey bound = job_.bound;
    const bool must_work = !job_.meets_faults && !promises_.damaged && !promises_.torn;
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
    const auto read = check_reader(*reader, static_cast<uint32_t>(rank) % reader->rank_count(), true);
    if (must_work) {
        EXPECT_TRUE(read.ok()) << "rank " << rank << ": " << read.to_string();
    }
    reader.reset();

    std::vector<std::string> names{"cells"};
    if (same_ranks) names.insert(names.end(), {"tag", "fixed"});
    auto restored = session.restore(std::nullopt, names);
    if (same_ranks && promises_.torn && !job_.meets_faults &&
        restored.status().code() == Code::invalid_argument) {
        // The reader looked at heads only. What it had opened was torn, and the next older epoch is of
        // fewer ranks than there are now: it has no regions of their own for all of them.
        same_ranks = false;
        restored = session.restore(std::nullopt, std::vector<std::string>{"cells"});
    }
    if (must_work || bound != EpochKey{}) {
        EXPECT_TRUE(restored.ok()) << "rank " << rank << ": " << restored.status().to_string();
    }
    ++(restored.ok() ? tally_.restored : tally_.refused);
    if (restored.ok()) check_restored(rank, state, same_ranks, *restored);
    return key.epoch;
}

void HistoryChecks::check_restored(int rank, const RankState& state, bool same_ranks, uint64_t epoch) {
    const auto expect_in_time = [&](Attempt attempt) {
        MutexLock lock(mutex_);
        EXPECT_EQ(attempt.epoch, epoch) << "rank " << rank;
        EXPECT_FALSE(misfits_.contains(attempt.number())) << "rank " << rank << ", epoch " << epoch;
        EXPECT_FALSE(earlier({attempt.epoch, run_of_job_[attempt.job]}, job_.bound)) << "rank " << rank;
    };
    if (same_ranks) {
        const auto attempt = read_tag(state.tag);
        expect_in_time(attempt);
        EXPECT_TRUE(same(state.fixed, content(attempt.number(), rank, 1, sizes_.fixed(rank))))
            << "rank " << rank;
    }
    if (state.cells.empty()) return;
    const uint64_t from = state.piece.offset[0];
    const uint32_t number = state.cells[0] - cell({}, from);
    expect_in_time({number / 64, number % 64});
    for (uint64_t i = 0; i < state.cells.size(); ++i)
        if (state.cells[i] != cell({number / 64, number % 64}, from + i)) {
            ADD_FAILURE() << "rank " << rank << ": cell " << from + i << " is wrong";
            break;
        }
}

}  // namespace tailrace::internal::testing_support
