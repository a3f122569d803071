// Session where ranks may not communicate in the background (MPI below MPI_THREAD_MULTIPLE): save, wait,
// wait_all and close are collective. In each of them the ranks exchange what is new (captures, and results of
// their nodes' flushes), and every rank runs the same RootLedger on it. Every node writes its own part of its
// group's files, with sizes known from the exchange; no message is sent.
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "session/session.h"

namespace tailrace {

namespace {
constexpr uint32_t most_message_bytes = 1 << 22;
}  // namespace

Status Session::quiet_save(uint64_t epoch, const Status& failure) {
    const auto start = Clock::now();
    // Both come before this rank may refuse: they are collective.
    TAILRACE_TRY(wait_for_room());
    auto saved = check_epoch(epoch);
    if (saved.ok()) saved = check_regions(epoch);
    std::optional<Captured> capture;
    const double wait_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (saved.ok()) saved = capture_epoch(epoch, failure, capture.emplace());
    if (capture) capture->wait_seconds = wait_seconds;
    TAILRACE_TRY(exchange(capture, true).status());
    rank_epochs_.set_blocked(epoch, std::chrono::duration<double>(Clock::now() - start).count());
    return saved;
}

Result<bool> Session::exchange(const std::optional<Captured>& capture, bool in_time) {
    std::vector<AgentMessage> mine;
    if (capture) mine.push_back(*capture);
    if (agent_)
        for (const auto& result : agent_->take_results()) {
            mine.push_back(GroupResult{result.key, node_, result.status, result.statistics.seconds});
            if (config_.record)
                mine.push_back(NodeFlushed{result.key, {node_, result.group, result.statistics}});
            if (auto known = quiet_epochs_.find(result.key); known != quiet_epochs_.end())
                known->second.result_known = true;
        }
    ByteWriter out;
    out.put(static_cast<uint8_t>(in_time));
    for (const auto& message : mine) {
        const auto bytes = encode(message);
        out.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    TAILRACE_ASSIGN(const auto all, transport_->allgather(out.bytes()));

    bool all_in_time = true;
    std::vector<std::optional<Captured>> captures(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
        ByteReader in(all[rank]);
        all_in_time &= in.get<uint8_t>() != 0;
        while (in.ok() && in.remaining() > 0) {
            const auto text = in.get_string(most_message_bytes);
            TAILRACE_ASSIGN(auto message, decode_agent_message(std::as_bytes(std::span(text))));
            if (const auto* result = std::get_if<GroupResult>(&message)) ledger_->result(*result);
            if (agent_ && std::holds_alternative<NodeFlushed>(message)) agent_->record(message);
            if (const auto* captured = std::get_if<Captured>(&message)) captures[rank] = *captured;
        }
    }
    take_quiet_captures(captures);
    TAILRACE_TRY(carry_out_quiet_orders());
    return all_in_time;
}

void Session::take_quiet_captures(const std::vector<std::optional<Captured>>& captures) {
    const auto saved =
        std::count_if(captures.begin(), captures.end(), [](const auto& c) { return c.has_value(); });
    if (saved == 0) return;
    const uint64_t sequence = sequence_++;
    Status incomplete;
    if (static_cast<size_t>(saved) < captures.size()) {
        const auto missing =
            std::find_if(captures.begin(), captures.end(), [](const auto& c) { return !c.has_value(); });
        incomplete = Status(Code::invalid_argument,
                            fmt::format("rank {} did not save it while others did; earlier epochs are intact",
                                        missing - captures.begin()));
    }
    // First what to flush, then the news: the ledger may order the flush at once.
    for (int node = 0; node < topology_.node_count(); ++node) {
        for (const int rank : topology_.ranks_of_node[static_cast<size_t>(node)]) {
            const auto& capture = captures[static_cast<size_t>(rank)];
            if (!capture) continue;
            auto& epoch = quiet_epochs_[capture->key];
            epoch.run_uid = run_uid_;
            epoch.rank_count = static_cast<uint32_t>(rank_count());
            epoch.offers.resize(static_cast<size_t>(topology_.node_count()));
            auto& offer = epoch.offers[static_cast<size_t>(node)];
            offer.streams.push_back(capture->stream);
            if (node == node_) epoch.streams.push_back({capture->stream, capture->path, part_header_bytes});
        }
    }
    for (auto& [key, epoch] : quiet_epochs_)
        for (size_t node = 0; node < epoch.offers.size(); ++node)
            epoch.offers[node].node = static_cast<int>(node);
    for (int node = 0; node < topology_.node_count(); ++node) {
        NodeLedger collected(node, SIZE_MAX);
        for (const int rank : topology_.ranks_of_node[static_cast<size_t>(node)])
            if (const auto& capture = captures[static_cast<size_t>(rank)]) {
                auto same_sequence = *capture;
                same_sequence.sequence = sequence;
                (void)collected.captured(same_sequence);
            }
        for (auto& whole : collected.end_from(0, incomplete)) {
            whole.news.arrays = arrays_of_node(*points_, whole.captures);
            if (agent_) agent_->record(whole.news);
            ledger_->captured(whole.news);
        }
    }
}

void Session::end_quiet_epoch(const EpochEnded& ended) {
    quiet_epochs_[ended.key].ended = ended;
    if (ended.refused)
        std::erase_if(parts_, [&](const OwnPart& part) {
            if (part.key != ended.key) return false;
            const Status removed = local_->remove(part.path);
            if (!removed.ok())
                log(LogLevel::warning, "a captured part of {}, which was refused, stays: {}",
                    to_string(part.key), removed.message());
            return true;
        });
    rank_epochs_.ended(ended);
    if (agent_) agent_->record(ended);
    if (agent_ && node_ == 0 && ended.state == EpochState::committed) agent_->commit(ended);
    if (rank() == 0 && ended.state == EpochState::failed)
        log(LogLevel::warning, "{} did not reach {}: {}", to_string(ended.key), config_.shared_dir,
            ended.why.message());
}

// Collective: every rank comes here with the same digests. Of what is not known to be good each rank tells
// its own table.
Status Session::judge_quietly(const JudgeArrays& order) {
    const Residues digest = points_->combine(order.arrays);
    if (digest == Residues{} || digest == good_arrays_) {
        ledger_->judged(order.key, Status());
        return {};
    }
    std::vector<PartPlace> mine;
    for (const auto& part : parts_)
        if (part.key == order.key) mine.push_back({part.key, part.path});
    TAILRACE_ASSIGN(
        const auto judged,
        judge_together(*transport_, static_cast<uint32_t>(rank_count()), [&](const ArrayQuestion& question) {
            return facts_of_parts(*local_, *points_, question, mine);
        }));
    if (judged.verdict->ok()) good_arrays_ = digest;
    ledger_->judged(order.key, *judged.verdict);
    return {};
}

// Every rank writes its node's part without a word to others, so what is to be flushed starts when it was
// judged.
Status Session::carry_out_quiet_orders() {
    std::vector<EpochKey> to_start;
    for (auto orders = ledger_->take_orders(); !orders.empty(); orders = ledger_->take_orders())
        for (const auto& order : orders) {
            if (const auto* decision = std::get_if<Decision>(&order)) {
                if (decision->flush) to_start.push_back(decision->key);
            } else if (const auto* to_judge = std::get_if<JudgeArrays>(&order)) {
                TAILRACE_TRY(judge_quietly(*to_judge));
            } else if (const auto* ended = std::get_if<EpochEnded>(&order)) {
                end_quiet_epoch(*ended);
            }
        }
    auto leftovers = ledger_->take_leftovers();
    if (agent_ && node_ == 0) agent_->remove_leftovers(std::move(leftovers));
    for (const auto& key : to_start)
        if (!quiet_epochs_[key].ended) start_quiet_flush(key);
    std::erase_if(quiet_epochs_,
                  [](const auto& entry) { return entry.second.ended && !entry.second.recovered; });
    return {};
}

void Session::start_quiet_flush(EpochKey key) {
    auto& epoch = quiet_epochs_[key];
    epoch.started = true;
    rank_epochs_.flushing(key);
    if (!agent_) return;
    FlushJob job;
    job.job = config_.name;
    job.key = key;
    job.run_uid = epoch.run_uid;
    job.rank_count = epoch.rank_count;
    job.streams = epoch.streams;
    const auto group = group_of_node(node_, topology_.node_count(), config_.files);
    job.offers.emplace(epoch.offers.begin() + group.first_node, epoch.offers.begin() + group.last_node);
    agent_->start_job(std::move(job));
}

bool Session::all_quiet_epochs_ended() const {
    return std::all_of(quiet_epochs_.begin(), quiet_epochs_.end(),
                       [](const auto& entry) { return entry.second.ended.has_value(); });
}

Status Session::quiet_wait(const std::function<bool()>& done, Deadline deadline) {
    while (!done()) {
        const bool outstanding =
            agent_ && std::any_of(quiet_epochs_.begin(), quiet_epochs_.end(), [](const auto& entry) {
                return entry.second.started && !entry.second.result_known && !entry.second.ended;
            });
        const bool in_time = outstanding ? agent_->wait_result(deadline) : true;
        TAILRACE_ASSIGN(const bool all_in_time, exchange(std::nullopt, in_time));
        if (!all_in_time && !done()) return Status(Code::timeout, "the time ran out");
    }
    return {};
}

}  // namespace tailrace
