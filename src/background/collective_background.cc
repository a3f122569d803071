#include "background/collective_background.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "agent/flush_setup.h"
#include "agent/node_protection.h"
#include "base/bytes.h"
#include "base/caught.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "ledger/node_ledger.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_message_bytes = 1 << 28;  // the names of many files

// Warns once in a program, because the message is true of every session that saves in this way. One that
// only restores, or that flushes what lost agents have left, has nothing to gain from another start of MPI.
void warn_of_collective_saves() {
    static std::atomic<bool> said{false};
    if (said.exchange(true)) return;
    log(LogLevel::warning,
        "MPI runs below MPI_THREAD_MULTIPLE: save and wait are collective, and every node writes its own "
        "part of the files. To save without waiting for other ranks, start MPI by MPI_Init_thread with "
        "MPI_THREAD_MULTIPLE in place of MPI_Init (if the program does so, its MPI library does not provide "
        "it), or start the nodes' agents by `tailrace agent --mpi`");
}

}  // namespace

CollectiveBackground::CollectiveBackground(const JobContext& context, RankEpochs& epochs)
    : context_(context),
      rank_epochs_(epochs),
      ledger_(static_cast<size_t>(context.node_count()), static_cast<size_t>(context.node_count()),
              context.config.queue_policy, context.config.queue_epochs, redundancy_every(context)),
      answers_(true, context.config.save_every) {
    if (context.is_root()) decisions_.emplace(context, epochs, true);
}

Result<std::unique_ptr<Background>> CollectiveBackground::create(const JobContext& context,
                                                                 RankEpochs& epochs) {
    std::unique_ptr<CollectiveBackground> background(new CollectiveBackground(context, epochs));
    if (context.is_root()) background->finisher_ = std::make_unique<EpochFinisher>(context);
    if (context.is_representative()) {
        background->recorder_ = Recorder::create(context);
        background->plans_ = std::make_unique<PlanKeeper>(context);
        TAILRACE_ASSIGN(background->flusher_, NodeFlusher::create(context, background->recorder_.get()));
    }
    return std::unique_ptr<Background>(std::move(background));
}

Begun CollectiveBackground::begin() {
    TAILRACE_TRY(agree(*context_.transport, with_threads([&]() -> Status {
        const Priority priority = background_priority(context_.config);
        if (finisher_)
            finisher_->begin(priority, [] {
                log(LogLevel::warning, "a committed epoch may keep its unfinished names: {}",
                    caught_status().message());
            });
        if (recorder_) recorder_->begin(priority);
        if (flusher_) flusher_->begin();
        if (plans_) plans_->begin(priority);
        return {};
    })));
    return carry_out_orders();  // those for recovered epochs
}

void CollectiveBackground::recover(const LocalEpoch& epoch) {
    Epoch waiting;
    waiting.recovered = true;
    waiting.run_uid = epoch.run_uid;
    waiting.rank_count = epoch.rank_count;
    waiting.streams = flush_job_of(context_, epoch).streams;
    for (int node = 0; node < context_.node_count(); ++node) waiting.offers.push_back({node, {}});
    for (const auto& part : epoch.parts)
        waiting.offers[static_cast<size_t>(part.node)].streams.push_back(shared_stream(part.header));
    epochs_[epoch.key] = std::move(waiting);
    if (plans_) plans_->recovered(epoch.key);
    ledger_.recovered(epoch.key);
}

Status CollectiveBackground::wait_for_room() {
    if (!waits_for_room(context_.config, sequence_)) return {};
    const auto room = [&](const RankEpochs::Entries& entries) { return has_room(context_.config, entries); };
    return exchange_until([&] { return rank_epochs_.wait_until(room, Clock::now()); }, std::nullopt);
}

Status CollectiveBackground::captured(Captured news) {
    if (over_) return {};
    if (context_.is_root() && context_.rank_count() > 1) warn_of_collective_saves();
    return exchange(std::move(news), true).status();
}

Status CollectiveBackground::save_refused() {
    TAILRACE_TRY(wait_for_room());
    return over_ ? Status() : exchange(std::nullopt, true).status();
}

// It succeeds on every rank, or on none. So all ranks know alike that the background is over. If a rank
// has left a call around this one, it does not take part, and the news wait for the next exchange.
Result<bool> CollectiveBackground::exchange(const std::optional<Captured>& capture, bool in_time) {
    auto all_in_time = together(*context_.transport, [&]() -> Result<bool> {
        const auto mine = encode_own_news(capture, in_time);
        TAILRACE_ASSIGN(const auto all, context_.transport->allgather(mine));
        return take_news(all);
    });
    if (all_in_time.ok()) unsent_.clear();
    if (all_in_time.ok() || context_.transport->common_call_left()) return all_in_time;
    end_background(all_in_time.status());
    return true;
}

// Captured parts stay where they are.
void CollectiveBackground::end_background(const Status& why) noexcept {
    log(LogLevel::error, "rank {} flushes nothing any more: {}", context_.rank(), why.message());
    over_ = true;
    broken_ = catching([&] {
        return why.with_context("the background of the session has ended, and captured epochs are intact");
    });
    (void)catching([&] {
        std::unique_ptr<NodeFlusher> ended;
        MutexLock lock(mutex_);
        ended.swap(flusher_);
        lock.unlock();  // a flusher takes its time to end
    });
    epochs_.clear();
    (void)catching([&] { rank_epochs_.fail_all(broken_, true); });
}

std::vector<std::byte> CollectiveBackground::encode_own_news(const std::optional<Captured>& capture,
                                                             bool in_time) {
    ByteWriter out;
    out.put(static_cast<uint8_t>(in_time));
    collect_news();
    std::vector<AgentMessage> news = unsent_;
    if (capture) news.emplace_back(*capture);
    for (const auto& message : news) {
        const auto bytes = encode(message);
        out.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return out.take();
}

Result<bool> CollectiveBackground::take_news(const std::vector<std::vector<std::byte>>& all) {
    bool all_in_time = true;
    std::vector<std::optional<Captured>> captures(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
        ByteReader in(all[rank]);
        all_in_time &= in.get<uint8_t>() != 0;
        while (in.ok() && in.remaining() > 0) {
            const auto text = in.get_string(max_message_bytes);
            TAILRACE_ASSIGN(auto message, decode_agent_message(std::as_bytes(std::span(text))));
            TAILRACE_TRY(check_sender(static_cast<int>(rank), message));
            if (const auto* result = std::get_if<GroupResult>(&message)) ledger_.result(*result);
            if (std::holds_alternative<NodeFlushed>(message)) record(message);
            if (const auto* captured = std::get_if<Captured>(&message)) captures[rank] = *captured;
            if (const auto* named = std::get_if<EpochEnded>(&message)) end_epoch(*named);
        }
        if (!in.ok())
            return Status(Code::transport, fmt::format("the news of rank {} could not be decoded", rank));
    }
    TAILRACE_TRY(take_captures(captures));
    TAILRACE_TRY(protect(captures));
    TAILRACE_TRY(carry_out_orders());
    return all_in_time;
}

// The ledger takes each rank's and each node's word for what it has done itself, and rank 0's for names.
Status CollectiveBackground::check_sender(int rank, const AgentMessage& news) const {
    const int node = context_.topology.node_of_rank[static_cast<size_t>(rank)];
    const bool speaks_for_node = context_.topology.representative(node) == rank;
    const auto* result = std::get_if<GroupResult>(&news);
    const auto* flushed = std::get_if<NodeFlushed>(&news);
    const auto* captured = std::get_if<Captured>(&news);
    if ((result != nullptr && (!speaks_for_node || result->party != node)) ||
        (flushed != nullptr && (!speaks_for_node || flushed->node.node != node)) ||
        (captured != nullptr && captured->stream.rank != static_cast<uint32_t>(rank)) ||
        (std::holds_alternative<EpochEnded>(news) && rank != 0))
        return Status(Code::transport,
                      fmt::format("rank {} of node {} sent news that are not its own", rank, node));
    return {};
}

// News that were taken once stay in unsent_ until all ranks have them.
void CollectiveBackground::collect_news() {
    for (const auto& named : take_named()) unsent_.emplace_back(named);
    if (!flusher_) return;
    for (const auto& result : flusher_->take_results()) {
        unsent_.emplace_back(
            GroupResult{result.key, context_.node, result.status, result.statistics.seconds});
        if (context_.config.record)
            unsent_.emplace_back(NodeFlushed{result.key, {context_.node, result.group, result.statistics}});
        if (auto known = epochs_.find(result.key); known != epochs_.end()) known->second.result_known = true;
    }
}

Status CollectiveBackground::take_captures(const std::vector<std::optional<Captured>>& captures) {
    const auto saved =
        std::count_if(captures.begin(), captures.end(), [](const auto& c) { return c.has_value(); });
    if (saved == 0) return {};
    const uint64_t sequence = sequence_++;
    Status incomplete;
    if (static_cast<size_t>(saved) < captures.size()) {
        const auto missing =
            std::find_if(captures.begin(), captures.end(), [](const auto& c) { return !c.has_value(); });
        incomplete = Status(Code::invalid_argument, fmt::format("rank {} did not save it while others did",
                                                                missing - captures.begin()));
    }
    // Note what is to be flushed before the ledger gets the news, because the ledger may order the
    // flush at once.
    for (size_t rank = 0; rank < captures.size(); ++rank) {
        const auto& capture = captures[rank];
        if (!capture) continue;
        const int node = context_.topology.node_of_rank[rank];
        auto& epoch = epochs_[capture->key];
        epoch.run_uid = context_.run_uid;
        epoch.rank_count = static_cast<uint32_t>(context_.rank_count());
        epoch.offers.resize(static_cast<size_t>(context_.node_count()));
        const auto stream = shared_stream(capture->stream, capture->apart_bytes);
        epoch.offers[static_cast<size_t>(node)].streams.push_back(stream);
        if (node == context_.node) epoch.streams.push_back({stream, capture->path, part_header_bytes});
        if (static_cast<int>(rank) == context_.rank() && !capture->path.empty())
            epoch.own = PartPlace{capture->key, capture->path};
    }
    for (auto& [key, epoch] : epochs_)
        for (size_t node = 0; node < epoch.offers.size(); ++node)
            epoch.offers[node].node = static_cast<int>(node);
    for (int node = 0; node < context_.node_count(); ++node) {
        NodeLedger collected(node, SIZE_MAX);
        for (const int rank : context_.topology.ranks_of_node[static_cast<size_t>(node)])
            if (const auto& capture = captures[static_cast<size_t>(rank)]) {
                auto same_sequence = *capture;
                same_sequence.sequence = sequence;
                TAILRACE_TRY(collected.captured(same_sequence).status());
            }
        for (auto& whole : collected.end_from(0, incomplete)) {
            whole.news.arrays = arrays_of_node(context_.points, whole.captures);
            record(whole.news);
            TAILRACE_TRY(ledger_.captured(whole.news));
        }
    }
    return {};
}

// The flush is not begun before that, so the captured parts stay. Every rank decides by the same data.
Status CollectiveBackground::protect(const std::vector<std::optional<Captured>>& captures) {
    const bool all_captured = std::all_of(captures.begin(), captures.end(), [&](const auto& capture) {
        return capture && capture->status.ok() && capture->key == captures.front()->key;
    });
    if (!all_captured || !wants_protection(context_, sequence_ - 1)) return {};
    const EpochKey key = captures.front()->key;
    ProtectWork work;
    work.identity = identity_of(context_, key);
    work.parts.resize(static_cast<size_t>(context_.node_count()));
    for (size_t rank = 0; rank < captures.size(); ++rank) {
        const int node = context_.topology.node_of_rank[rank];
        work.parts[static_cast<size_t>(node)].push_back(captures[rank]->stream);
        if (node == context_.node) work.paths.emplace_back(captures[rank]->stream.rank, captures[rank]->path);
    }
    const auto start = Clock::now();
    const auto done = protect_together(*context_.transport, *context_.local, context_.topology, context_.sets,
                                       work, protect_settings(context_));
    if (const auto epoch = epochs_.find(key); epoch != epochs_.end())
        epoch->second.is_protected = done.status.ok();
    std::vector<std::byte> mine;
    if (context_.is_representative()) {
        ProtectResult result{key, done.status, std::chrono::duration<double>(Clock::now() - start).count(),
                             done.sent_bytes, done.written_bytes};
        const auto& set = context_.sets.set_of(context_.node);
        if (done.status.ok() && set.redundancy.scheme == Scheme::none)
            result.status = Status(Code::unsupported, set.note);
        mine = encode(AgentMessage(report_protection(context_, result)));
    }
    TAILRACE_ASSIGN(const auto all, context_.transport->allgather(mine));
    for (int node = 0; node < context_.node_count(); ++node) {
        const auto rank = static_cast<size_t>(context_.topology.representative(node));
        TAILRACE_ASSIGN(const auto message, decode_agent_message(all[rank]));
        const auto* news = std::get_if<NodeProtected>(&message);
        if (news == nullptr || news->node.node != node)
            return Status(Code::transport,
                          fmt::format("rank {} does not say what node {} has protected", rank, node));
        record(message);
        ledger_.node_protected(*news);
    }
    return {};
}

// The epoch is announced when its files have their final names, which rank 0 tells in an exchange.
void CollectiveBackground::commit(const EpochEnded& committed) {
    epochs_[committed.key].committed = committed;
    if (finisher_)
        finisher_->commit(committed, [this](const EpochEnded& named) {
            MutexLock lock(named_mutex_);
            named_.push_back(named);
        });
}

// At rank 0. The naming thread may have thrown, and tells nothing any more.
std::vector<EpochEnded> CollectiveBackground::take_named() {
    std::vector<EpochEnded> named;
    if (!finisher_) return named;
    const bool naming = finisher_->naming();  // asked first: if it is over, all that was named is here
    {
        MutexLock lock(named_mutex_);
        named.swap(named_);
    }
    for (const auto& entry : epochs_) {
        const Epoch& epoch = entry.second;
        const auto same = [&](const EpochEnded& ended) { return ended.key == entry.first; };
        if (!naming && epoch.committed && !epoch.ended && std::none_of(named.begin(), named.end(), same))
            named.push_back(*epoch.committed);
    }
    return named;
}

void CollectiveBackground::end_epoch(const EpochEnded& ended) {
    auto& epoch = epochs_[ended.key];
    epoch.ended = ended;
    // No restore may find a part of an epoch that cannot be restored, and the next session must not
    // flush it.
    if (ended.refused && epoch.own) {
        const Status removed = remove_if_there(*context_.local, epoch.own->path);
        if (!removed.ok())
            log(LogLevel::warning, "a captured part of {}, which was refused, could not be removed: {}",
                to_string(ended.key), removed.message());
    }
    if (plans_) {
        plans_->ended(ended);
        plans_->forget(ended.key);  // no plan comes later
    }
    if (ended.refused && context_.is_representative()) remove_protection(context_, ended.key);
    rank_epochs_.ended(ended);
    record(ended);
    if (context_.is_root() && ended.state == EpochState::failed)
        log(LogLevel::warning, "{} did not reach {}: {}", to_string(ended.key), context_.config.shared_dir,
            ended.why.message());
}

// Every rank comes here with the same digests. If these are not known to be good, each rank tells
// what its own table says.
Status CollectiveBackground::judge(const JudgeArrays& order) {
    const Residues digest = context_.points.combine(order.arrays);
    if (digest == Residues{} || digest == good_arrays_) {
        ledger_.judged(order.key, Status());
        return {};
    }
    std::vector<PartPlace> mine;
    if (const auto& own = epochs_[order.key].own) mine.push_back(*own);
    TAILRACE_ASSIGN(const auto judged,
                    judge_together(*context_.transport, static_cast<uint32_t>(context_.rank_count()),
                                   [&](const ArrayQuestion& question) {
                                       return facts_of_parts(*context_.local, context_.points, question,
                                                             mine);
                                   }));
    if (judged.verdict->ok()) good_arrays_ = digest;
    ledger_.judged(order.key, *judged.verdict);
    return {};
}

// Carries out the ledger's orders. Flushes start after the epochs have been judged, because no node
// waits for another before it writes its slots.
Status CollectiveBackground::carry_out_orders() {
    std::vector<EpochKey> to_start;
    for (auto orders = ledger_.take_orders(); !orders.empty(); orders = ledger_.take_orders())
        for (const auto& order : orders) {
            if (const auto* decision = std::get_if<Decision>(&order)) {
                if (decision->flush)
                    to_start.push_back(decision->key);
                else
                    keep_plans(decision->key, true);
            } else if (const auto* to_judge = std::get_if<JudgeArrays>(&order)) {
                TAILRACE_TRY(judge(*to_judge));
            } else if (const auto* ended = std::get_if<EpochEnded>(&order)) {
                if (ended->state == EpochState::committed)
                    commit(*ended);
                else
                    end_epoch(*ended);
            } else if (const auto* fit = std::get_if<ArraysFit>(&order)) {
                if (plans_) plans_->arrays_fit(fit->key);
            } else if (const auto* safe = std::get_if<EpochProtected>(&order)) {
                if (context_.is_root()) report_protected(context_, *safe);
                rank_epochs_.protected_from(safe->key, losses_survived(context_));
            }
        }
    const auto leftovers = ledger_.take_leftovers();
    if (finisher_) finisher_->remove_leftovers(leftovers);
    for (const auto& key : to_start)
        if (!epochs_[key].ended) start_flush(key);
    std::erase_if(epochs_, [](const auto& entry) { return entry.second.ended && !entry.second.recovered; });
    return {};
}

void CollectiveBackground::start_flush(EpochKey key) {
    auto& epoch = epochs_[key];
    INVARIANT(!epoch.started && !epoch.ended);
    epoch.started = true;
    rank_epochs_.flushing(key);
    if (!flusher_) return;
    FlushJob job;
    job.job = context_.config.name;
    job.key = key;
    job.run_uid = epoch.run_uid;
    job.rank_count = epoch.rank_count;
    job.streams = epoch.streams;
    job.originals_written = epoch.recovered;  // when the session began
    job.offers = offers_of_group(epoch, context_.node);
    keep_plans(key, false);
    flusher_->start(std::move(job));
}

std::vector<NodeOffer> CollectiveBackground::offers_of_group(const Epoch& epoch, int node) const {
    const auto group = group_of_node(node, context_.node_count(), context_.config.files);
    return {epoch.offers.begin() + group.first_node, epoch.offers.begin() + group.last_node};
}

// `local`: the epoch is kept in the node-local tier.
void CollectiveBackground::keep_plans(EpochKey key, bool local) {
    if (!plans_) return;
    const auto& epoch = epochs_[key];
    auto own = offers_of_group(epoch, context_.node);
    if (local)
        plans_->planned_local(key, std::move(own));
    else
        plans_->planned(key, std::move(own));
    const auto other = node_with_copy_here(context_);
    if (other && epoch.is_protected && !in_one_group(context_, *other, context_.node))
        plans_->planned_for(key, *other, offers_of_group(epoch, *other));
}

Status CollectiveBackground::exchange_until(const std::function<bool()>& done, Deadline deadline) {
    while (!over_ && !done()) {
        const bool outstanding =
            flusher_ && std::any_of(epochs_.begin(), epochs_.end(), [](const auto& entry) {
                return entry.second.started && !entry.second.result_known && !entry.second.ended;
            });
        const bool naming = finisher_ && finisher_->naming();
        bool in_time = true;
        if (naming)
            in_time = finisher_->wait_named(deadline);
        else if (outstanding)
            in_time = flusher_->wait_result(deadline);
        TAILRACE_ASSIGN(const bool all_in_time, exchange(std::nullopt, in_time));
        if (!all_in_time && !over_ && !done()) return Status(Code::timeout, "the time ran out");
    }
    return {};
}

Result<bool> CollectiveBackground::wait(EpochRange epochs, Deadline deadline) {
    const auto ended = [&](const RankEpochs::Entries& entries) { return all_ended(entries, epochs); };
    const auto waited =
        exchange_until([&] { return rank_epochs_.wait_until(ended, Clock::now()); }, deadline);
    if (!waited.ok() && waited.code() != Code::timeout) return waited;
    return waited.ok();
}

Status CollectiveBackground::wait_flushed(EpochKey key) {
    return exchange_until(
        [&] {
            const auto found = epochs_.find(key);
            return found == epochs_.end() || found->second.ended.has_value();
        },
        std::nullopt);
}

bool CollectiveBackground::recovering(EpochKey key) const {
    const auto found = epochs_.find(key);
    return found != epochs_.end() && !found->second.ended;
}

void CollectiveBackground::found_damaged(EpochKey key) {
    MutexLock lock(mutex_);
    if (finisher_) finisher_->found_damaged(key);
}

// Every rank decides alike by what all of them have said. A rank that was asked to stop says so in
// each exchange, and all ranks hear it at the same call. After a call that failed, a rank may not know
// what the others know, and would not come to the same exchanges. So then no rank has answers any more.
Result<Answer> CollectiveBackground::ask(Question question) {
    const uint64_t call = ++calls_[static_cast<size_t>(question)];
    if (no_answers_)
        return Status(Code::failed_state,
                      "an earlier should_save or should_stop failed, so the ranks cannot agree on answers "
                      "any more");
    if (question == Question::stop && stopped_) return Answer{true, *stopped_};
    if (answers_.decided(question, call)) {
        TAILRACE_ASSIGN(auto known, answers_.find(question, call));
        return std::move(*known);
    }
    std::vector<std::byte> mine;
    const Status asked = catching([&] { mine = encode_own_question(question); });
    const auto all = catching([&] { return context_.transport->allgather(mine); });
    auto answer = together(*context_.transport, [&]() -> Result<Answer> {
        TAILRACE_TRY(asked);
        TAILRACE_TRY(all.status());
        return take_questions(*all, question, call);
    });
    no_answers_ = !answer.ok();  // the same on every rank
    return answer;
}

std::vector<std::byte> CollectiveBackground::encode_own_question(Question question) {
    std::optional<Announcement> announcement;
    const Status decided = catching([&] {
        if (decisions_) announcement = decisions_->call(question, stopped_);
    });
    const auto stop = own_stop_ ? own_stop_ : stop_signal_of(context_);
    const auto bytes = encode(AgentMessage(Announced{announcement.value_or(Announcement{question})}));
    ByteWriter out;
    put(out, decided);
    out.put_string(stop.value_or("").substr(0, most_reason_bytes));
    out.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return out.take();
}

Result<Answer> CollectiveBackground::take_questions(const std::vector<std::vector<std::byte>>& all,
                                                    Question question, uint64_t call) {
    Announcement of_root;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].empty())
            return Status(Code::out_of_memory, fmt::format("memory has run out on rank {}", rank));
        ByteReader in(all[rank]);
        TAILRACE_TRY(get_status(in).with_context("rank 0"));
        const auto asked = in.get_string(most_reason_bytes);
        const auto text = in.get_string(max_message_bytes);
        TAILRACE_ASSIGN(const auto message, decode_agent_message(std::as_bytes(std::span(text))));
        const auto* announced = std::get_if<Announced>(&message);
        if (!in.at_end() || announced == nullptr)
            return Status(Code::transport, fmt::format("what rank {} asks could not be decoded", rank));
        if (announced->announcement.question != question)
            return Status(Code::invalid_argument,
                          fmt::format("rank {} calls should_{} while rank {} calls should_{}; below "
                                      "MPI_THREAD_MULTIPLE these calls are collective",
                                      rank, question == Question::save ? "stop" : "save", context_.rank(),
                                      question == Question::save ? "save" : "stop"));
        if (rank == 0) of_root = announced->announcement;
        if (!asked.empty() && !stopped_) stopped_ = asked;
    }
    TAILRACE_TRY(answers_.hear(of_root));
    if (question == Question::stop && stopped_) return Answer{true, *stopped_};
    TAILRACE_ASSIGN(auto answer, answers_.find(question, call));
    if (!answer) return Status(Code::transport, fmt::format("rank 0 has not decided call {}", call));
    return std::move(*answer);
}

Closed CollectiveBackground::close() {
    TAILRACE_TRY(exchange_until(
        [&] {
            return std::all_of(epochs_.begin(), epochs_.end(),
                               [](const auto& entry) { return entry.second.ended.has_value(); });
        },
        std::nullopt));
    Status failure = rank_epochs_.first_failure();
    for (const auto& [key, epoch] : epochs_)
        if (failure.ok() && epoch.ended && epoch.ended->state == EpochState::failed)
            failure = epoch.ended->why.with_context(
                fmt::format("flushing {}, left by an earlier run", to_string(key)));
    if (failure.ok() && over_) failure = broken_;
    const Status agreed = agree(*context_.transport, failure);
    // Its code may differ, because a rank may have no memory for the others' sentences.
    const bool all_here = agreed.ok() || agree(*context_.transport, {}).ok();
    return {agreed, all_here && !over_ ? Closed::Rest::kept : Closed::Rest::nothing};
}

void CollectiveBackground::end() {
    MutexLock lock(mutex_);
    flusher_.reset();
    plans_.reset();
    finisher_.reset();
    if (recorder_) recorder_->finish();
    recorder_.reset();
}

uint64_t CollectiveBackground::buffer_bytes_used() const {
    MutexLock lock(mutex_);
    return flusher_ ? flusher_->buffer_bytes_used() : 0;
}

void CollectiveBackground::record(const AgentMessage& news) {
    if (recorder_) recorder_->hear(news);
}

}  // namespace tailrace::internal
