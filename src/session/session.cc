#include "session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "format/codec.h"
#include "session/opening.h"
#include "shared/left_intact.h"
#include "storage/file_size_signal.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace

// ---- open and close -----------------------------------------------------------------------------

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(Config config, std::shared_ptr<Transport> transport,
                                                         std::shared_ptr<Storage> local,
                                                         std::shared_ptr<Storage> shared, AgentDoor* agents) {
    // A rank that fails leaves nobody waiting, and leaves no rank with a session.
    std::unique_ptr<Session> session;
    TAILRACE_TRY(together(*transport, [&]() -> Status {
        TAILRACE_ASSIGN(auto opening, open_directories(std::move(config), transport, std::move(local),
                                                       std::move(shared), agents));
        const SharedInventory inventory = std::move(opening.inventory);
        session = std::make_unique<Session>(std::move(opening), agents);
        return session->begin(inventory);
    }));
    session->opened();
    return std::unique_ptr<Checkpointer>(std::move(session));
}

Session::Session(Opening opening, AgentDoor* agents)
    : door_(agents),
      context_(std::move(opening.context)),
      local_lock_(std::move(opening.local_lock)),
      agent_(std::move(opening.agent)),
      old_parts_(std::move(opening.old_parts)) {
    const auto& config = context_.config;
    capture_.emplace(*context_.local,
                     Capture::Options{context_.tier.directory(context_.node), config.copy_threads,
                                      config.checksum, config.local_sync});
}

Status Session::begin(const SharedInventory& inventory) {
    MutexLock lock(save_mutex_);
    const auto [failure, other_may_begin] = begin_background(inventory, {door_, &agent_, local_lock_.get()});
    if (failure.ok()) old_parts_.clear();
    if (!other_may_begin) return failure;
    say_not_carried(context_, failure);
    search_.reset();
    parts_.reset();
    background_.reset();
    // They have been told to give up what they had begun. One that is stopped has not read that.
    std::unique_ptr<AgentLink> link;
    TAILRACE_TRY(agree(*context_.transport, catching([&] {
                     return ask_agent_to_let_go(link);
                 })).with_context(failure.message()));
    agent_ = std::move(link);
    TAILRACE_ASSIGN(const auto now_there, look_into_shared(context_));
    TAILRACE_TRY(begin_background(now_there, {}).failure);
    old_parts_.clear();
    if (agent_) agent_->opened();
    return {};
}

Begun Session::begin_background(const SharedInventory& inventory, const Carriers& carriers) {
    TAILRACE_ASSIGN(const auto old, judge_old_epochs(context_, inventory));
    TAILRACE_ASSIGN(background_, Background::create(context_, epochs_, carriers));
    for (const auto& epoch : old.to_flush) {
        if (rank() == 0)
            log(LogLevel::info, "captured {} of an earlier run is flushed to {}", to_string(epoch.key),
                context_.config.shared_dir);
        background_->recover(epoch);
    }
    for (const auto& part : old.rebuilt)
        if (context_.is_representative() && part.node == context_.node) old_parts_.push_back(part);
    parts_.emplace(context_, epochs_, *background_);
    parts_->take_over(old_parts_, old);
    std::vector<EpochKey> refused;
    for (const auto& epoch : old.refused) refused.push_back(epoch.key);
    search_.emplace(context_, epochs_, *background_, std::move(refused));
    return background_->begin();
}

Session::~Session() {
    if (!opened_ || closed_) return;
    // A destructor must not throw. What close() has not done then, the destructors of the parts do.
    const Status closed = catching([&] { return close(); });
    if (!closed.ok())
        log(LogLevel::warning, "closing a session of {}: {}", context_.config.shared_dir, closed.message());
}

Status Session::close() {
    MutexLock lock(save_mutex_);
    if (closed_) return close_status_;
    drop_held();
    close_status_ = together(*context_.transport, [&] { return flush_rest(); });
    closed_ = true;
    // What follows is done on every rank, whatever fails. Epochs may have ended since the last save.
    try {
        if (const auto rest = parts_->retire(context_.config.keep_local, may_recycle()))
            parts_->remove(rest->path);
    } catch (...) {
        log(LogLevel::warning, "captured parts that are no longer needed may stay in {}: {}",
            context_.config.local_dir, caught_status().message());
    }
    (void)catching([&] { background_->end(); });
    try {
        parts_->clear();
    } catch (...) {
        log(LogLevel::warning, "spare files may stay in {}: {}", context_.config.local_dir,
            caught_status().message());
    }
    capture_.reset();
    local_lock_.reset();
    agent_.reset();
    context_.shared_lock.reset();
    return close_status_;
}

// ---- save ---------------------------------------------------------------------------------------

Status Session::check_epoch(uint64_t epoch) const {
    if (epoch == UINT64_MAX)
        return Status(Code::invalid_argument, "epoch 2^64-1 stands for the newest one and cannot be saved");
    if (!newest_saved_ || epoch > *newest_saved_) return {};
    if (epochs_.find(epoch))
        return Status(
            Code::already_exists,
            fmt::format("epoch {} was saved in this session already, or given up, and was left as it is",
                        epoch));
    return Status(Code::failed_state,
                  fmt::format("epoch {} is not above epoch {}, which was saved before; epochs must ascend "
                              "within a session (to go back, close it, open another and restore the older "
                              "epoch there). Nothing was changed",
                              epoch, *newest_saved_));
}

// A reader of this rank or another may still have a part's file open. Without checksums it could
// not tell that the file now holds another epoch's bytes. Nor could an agent that writes the part.
bool Session::may_recycle() const {
    return (context_.config.checksum || !reader_was_opened_) && !background_->parts_may_be_open();
}

// At the first save, warns of epochs that a restore of the newest would take now, but not once this
// epoch is complete.
void Session::warn_of_newer_epochs(uint64_t epoch) const {
    const auto& safe = parts_->safe_old_epochs();
    const auto newest = std::max_element(safe.begin(), safe.end());
    if (rank() != 0 || newest == safe.end() || newest->epoch <= epoch) return;
    log(LogLevel::warning,
        "epoch {} is saved while {} lies in {} or {}: once it is complete, a restore of the newest epoch "
        "takes this run's, and what lies beyond it is restored by its number only",
        epoch, to_string(*newest), context_.config.shared_dir, context_.config.local_dir);
}

Captured Session::news_of(uint64_t epoch) const noexcept {
    Captured news;
    news.sequence = background_->sequence();
    news.key = {epoch, context_.run};
    news.for_shared = news.sequence % context_.config.shared_every == 0;
    news.stream.rank = static_cast<uint32_t>(rank());
    return news;
}

PartHeader Session::part_header(uint64_t epoch) const {
    const Captured news = news_of(epoch);
    PartHeader header;
    header.job = context_.config.name;
    header.key = news.key;
    header.run_uid = context_.run_uid;
    header.rank_count = static_cast<uint32_t>(rank_count());
    header.sequence = news.sequence;
    header.for_shared = news.for_shared;
    header.stream.rank = news.stream.rank;
    header.shared_dir = context_.tier.shared_text;
    return header;
}

// A single rank learns before the epoch's number is used that its regions cannot be captured. With
// several ranks, others may have captured theirs, so the epoch fails for all.
Status Session::check_regions(uint64_t epoch, const std::vector<RegionSource>& more) {
    if (rank_count() > 1) return {};
    const auto context = fmt::format("epoch {}; nothing was saved, and it can be tried again", epoch);
    const auto sources = sources_with(more);
    if (!sources.ok()) return sources.status().with_context(context);
    return capture_->check(part_header(epoch), *sources).with_context(context);
}

Result<std::vector<RegionSource>> Session::sources_with(const std::vector<RegionSource>& more) const {
    TAILRACE_ASSIGN(auto sources, regions_.sources());
    sources.insert(sources.end(), more.begin(), more.end());
    return sources;
}

Status Session::copy_regions(uint64_t epoch, const Result<std::vector<RegionSource>>& found, Copy& copy) {
    const auto start = Background::Clock::now();
    const auto header = part_header(epoch);
    if (!newest_saved_) warn_of_newer_epochs(epoch);
    const std::vector<RegionSource> nothing;
    const auto& sources = found.ok() ? *found : nothing;
    std::vector<NamedPiece> arrays;
    for (const auto& source : sources)
        if (source.array) arrays.push_back({source.name, &*source.array});
    copy.news.arrays = context_.points.digest(arrays);
    for (const auto& source : sources) copy.info.captured_bytes += source.bytes();
    // Hear which epochs have ended meanwhile. A program that only saves does not ask for that
    // elsewhere.
    background_->read_news();
    auto part = [&]() REQUIRES(save_mutex_) -> Result<OwnPart> {
        if (!found.ok()) return found.status();
        const FileSizeSignalBlocked blocked;
        // One epoch less, because the new one is kept, too.
        auto captured =
            capture_->capture(header, sources, parts_->retire(context_.config.keep_local - 1, may_recycle()));
        if (captured.status().code() != Code::no_space || !parts_->give_spares_back()) return captured;
        return capture_->capture(header, sources, std::nullopt);
    }();

    if (part.ok()) copy.part = std::move(*part);
    copy.news.seconds = seconds_since(start);
    copy.info.epoch = epoch;
    copy.info.run = context_.run;
    copy.info.state = part.ok() ? EpochState::captured : EpochState::failed;
    // The other ranks hear from the root what is left of the whole epoch.
    copy.info.why = part.ok() || !found.ok() ? part.status() : with_left_intact(part.status());
    copy.info.blocked_seconds = seconds_since(start);
    copy.news.status = part.status();
    if (!part.ok()) return copy.info.why;
    copy.news.stream = copy.part->stream;
    copy.news.apart_bytes = copy.part->apart_bytes;
    copy.news.names_apart = std::move(copy.part->names_apart);
    copy.news.path = copy.part->path;
    return {};
}

Status Session::enter(Copy& copy, Captured& news) {
    news = std::move(copy.news);
    epochs_.add(copy.info, news.for_shared);
    newest_saved_ = copy.info.epoch;
    if (!copy.part) return copy.info.why;
    parts_->add(std::move(*copy.part));
    copy.part.reset();
    return {};
}

void Session::take_held(const Status& failure, Copy& copy) {
    copy = std::move(*held_);
    held_.reset();
    if (failure.ok()) return;
    parts_->remove(copy.part->path);
    copy.part.reset();
    copy.info.state = EpochState::failed;
    copy.info.why = copy.news.status = failure;
}

// Throws nothing, because other ranks may wait for what this one does next.
void Session::drop_held() noexcept {
    try {
        if (held_ && held_->part) parts_->remove(held_->part->path);
    } catch (...) {
        log(LogLevel::warning, "a captured part that was not saved may stay in {}: {}",
            context_.config.local_dir, caught_status().message());
    }
    held_.reset();
}

// An agent that does not carry the session's epochs. If it is gone, that is said once.
void Session::look_after_agent() {
    if (agent_ == nullptr || agent_->alive()) return;
    log(LogLevel::warning,
        "the agent process of node {} has ended; if the program dies now, the next agent on that node, "
        "`tailrace drain` or the next session finishes its captured epochs",
        context_.node);
    agent_.reset();
}

Status Session::wait_for_room(double& seconds) {
    const auto since = Background::Clock::now();
    TAILRACE_TRY(background_->wait_for_room());
    seconds = seconds_since(since);
    return {};
}

Status Session::capture(uint64_t epoch) {
    MutexLock lock(save_mutex_);
    if (closed_) return Status(Code::failed_state, "the session is closed; nothing was captured");
    drop_held();
    // Also if the epoch is refused: other ranks may wait for this one here.
    double waited = 0;
    TAILRACE_TRY(wait_for_room(waited));
    TAILRACE_TRY(check_epoch(epoch));
    TAILRACE_TRY(check_regions(epoch, {}));
    Status copied;
    try {
        held_.emplace().news = news_of(epoch);
        held_->news.wait_seconds = waited;
        copied = copy_regions(epoch, regions_.sources(), *held_);
    } catch (...) {
        copied = caught_status();
    }
    if (!copied.ok()) drop_held();
    return copied;
}

Status Session::save_or_fail(uint64_t epoch, Status failure, std::vector<RegionSource> more) {
    MutexLock lock(save_mutex_);
    if (closed_) return Status(Code::failed_state, "the session is closed; nothing was saved");
    look_after_agent();
    const auto start = Background::Clock::now();
    if (held_ && held_->info.epoch != epoch) drop_held();
    const double before = held_ ? held_->info.blocked_seconds : 0;
    double waited = 0;
    if (!held_) {
        Status refused;
        try {
            refused = check_epoch(epoch);
            if (refused.ok()) refused = check_regions(epoch, more);
        } catch (...) {
            refused = caught_status();
        }
        if (!refused.ok()) {
            TAILRACE_TRY(background_->save_refused());
            return refused;
        }
        TAILRACE_TRY(wait_for_room(waited));
    }
    Captured news = news_of(epoch);
    news.wait_seconds = waited;
    Status captured;
    Copy copy;
    try {
        // The other ranks may save the copies that they hold, of another time than the files.
        if (held_ && !more.empty())
            failure = Status(Code::failed_state,
                             fmt::format("epoch {} was captured before its files were saved; save files "
                                         "without capturing first",
                                         epoch));
        if (held_) {
            take_held(failure, copy);
        } else {
            copy.news = news;
            const auto found = failure.ok() ? sources_with(more) : Result<std::vector<RegionSource>>(failure);
            (void)copy_regions(epoch, found, copy);
        }
        captured = enter(copy, news);
    } catch (...) {
        captured = caught_status();
    }
    try {
        if (copy.part) parts_->remove(copy.part->path);  // nobody knows of it
    } catch (...) {
        log(LogLevel::warning, "a captured part of epoch {} may stay in {}: {}", epoch,
            context_.config.local_dir, caught_status().message());
    }
    // Also if something was thrown: the others must hear that this rank has not captured the epoch.
    if (news.status.ok()) news.status = captured;
    TAILRACE_TRY(background_->captured(std::move(news)));
    epochs_.set_blocked(epoch, before + seconds_since(start));
    return captured;
}

// ---- state and wait -----------------------------------------------------------------------------

Result<EpochInfo> Session::state(uint64_t epoch) {
    if (!closed_) background_->read_news();
    auto entry = epochs_.find(epoch);
    if (entry) return entry->info;
    EpochInfo unknown;
    unknown.epoch = epoch;
    return unknown;
}

Status Session::epoch_status(uint64_t epoch) const {
    auto entry = epochs_.find(epoch);
    if (!entry) return Status(Code::not_found, fmt::format("epoch {} was not saved in this session", epoch));
    if (entry->info.state == EpochState::failed)
        return entry->info.why.with_context(fmt::format("epoch {}", epoch));
    return {};
}

Background::Deadline Session::deadline_of(std::chrono::milliseconds longest) {
    if (longest.count() <= 0) return std::nullopt;
    // A longer time would overflow the clock, and is as good as for ever.
    if (longest > std::chrono::hours(24 * 365)) return std::nullopt;
    return Background::Clock::now() + longest;
}

Status Session::wait_for(EpochRange epochs, std::chrono::milliseconds longest) {
    bool done = true;
    if (!closed_) {
        TAILRACE_ASSIGN(done, background_->wait(epochs, deadline_of(longest)));
    }
    if (!done)
        return Status(Code::timeout,
                      fmt::format("waited {} ms; {} still unfinished, and work goes on", longest.count(),
                                  epochs.first == epochs.last ? fmt::format("epoch {} is", epochs.first)
                                                              : std::string("some epochs are")));
    return {};
}

Status Session::wait(uint64_t epoch, std::chrono::milliseconds longest) {
    TAILRACE_TRY(wait_for({epoch, epoch}, longest));
    return epoch_status(epoch);
}

Status Session::wait_all(std::chrono::milliseconds longest) {
    const auto all = epochs_.range();
    if (!all) return {};
    TAILRACE_TRY(wait_for(*all, longest));
    for (const auto& entry : epochs_.all())
        if (entry.info.epoch <= all->last) TAILRACE_TRY(epoch_status(entry.info.epoch));
    return {};
}

// ---- should_save and should_stop ----------------------------------------------------------------

Result<bool> Session::should_save() {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    TAILRACE_ASSIGN(const auto answer, background_->ask(Question::save));
    return answer.yes;
}

Result<std::optional<std::string>> Session::should_stop() {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    TAILRACE_ASSIGN(auto answer, background_->ask(Question::stop));
    if (!answer.yes) return std::optional<std::string>();
    return std::optional<std::string>(std::move(answer.why));
}

void Session::ask_to_stop(const std::string& why) {
    if (!closed_) background_->ask_to_stop(why);
}

// ---- list ---------------------------------------------------------------------------------------

Result<std::vector<EpochInfo>> Session::list() {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    return together(*context_.transport, [&] { return list_candidates(); });
}

Result<std::vector<EpochInfo>> Session::list_candidates() {
    TAILRACE_ASSIGN(const auto candidates, search_->find());
    background_->read_news();
    std::vector<EpochInfo> listed;
    std::set<uint64_t> epochs;
    for (const auto& candidate : candidates.newest_first) {
        // A later run's attempt counts, and came first.
        if (epochs.contains(candidate.key.epoch)) continue;
        EpochInfo info;
        info.epoch = candidate.key.epoch;
        info.run = candidate.key.run;
        info.in_local =
            search_->local_serves_own_ranks(candidate) || search_->local_serves_any_rank(candidate);
        if (candidate.in_shared) {
            TAILRACE_ASSIGN(const bool complete, [&]() -> Result<bool> {
                auto loaded = search_->load(candidate.key);
                if (!loaded.ok() && loaded.status().code() == Code::transport) return loaded.status();
                return loaded.ok();
            }());
            info.in_shared = complete;
        }
        if (!info.in_local && !info.in_shared) continue;
        epochs.insert(info.epoch);
        info.state = info.in_shared ? EpochState::committed : EpochState::kept_local;
        if (candidate.local)
            for (const auto& part : candidate.local->parts)
                if (part.header.stream.rank == static_cast<uint32_t>(rank()))
                    info.captured_bytes = part.header.stream.stream_bytes;
        if (const auto entry = epochs_.find(info.epoch); entry && entry->info.run == info.run) {
            const bool in_shared = info.in_shared, in_local = info.in_local;
            info = entry->info;
            info.in_shared = in_shared;
            info.in_local = in_local;
        }
        listed.push_back(std::move(info));
    }
    return listed;
}

}  // namespace tailrace::internal
