// Session: regions, save, state and wait.
//
// save, step by step:
//   1. queue policy: with `wait`, until fewer than queue_epochs epochs of this rank are unfinished;
//   2. parts that are no longer needed go, one of them gives its space to the new one;
//   3. capture: copy and checksum into the node-local tier, under an unfinished name, then renamed;
//   4. the node's agent hears of it; from here on the memory is the program's again.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "session/session.h"
#include "storage/file_size_signal.h"

namespace tailrace {

namespace {

using namespace std::chrono_literals;

// A rank without an agent reads its mail at least this often while it waits for news.
constexpr auto longest_mail_sleep = 100ms;

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

// ---- regions -----------------------------------------------------------------------------------------

Status Session::put_region(Registered region, bool exists) {
    const auto& name = region.name;
    if (name.empty() || name.size() > max_region_name_bytes)
        return Status(Code::invalid_argument,
                      fmt::format("a region's name has 1 to {} bytes; this one has {}", max_region_name_bytes,
                                  name.size()));
    if (region.bytes > 0 && region.memory == nullptr)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\": {} bytes at a null pointer", name, region.bytes));
    std::lock_guard lock(regions_mutex_);
    auto found =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.name == name; });
    if (exists && found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    if (!exists && found != regions_.end())
        return Status(Code::already_exists,
                      fmt::format("region \"{}\" is registered already and was left as it is; to change it, "
                                  "update or unregister it",
                                  name));
    if (exists)
        *found = std::move(region);
    else
        regions_.push_back(std::move(region));
    return {};
}

Status Session::register_region(std::string_view name, void* memory, uint64_t bytes) {
    return put_region({std::string(name), static_cast<std::byte*>(memory), bytes, std::nullopt}, false);
}

Status Session::update_region(std::string_view name, void* memory, uint64_t bytes) {
    return put_region({std::string(name), static_cast<std::byte*>(memory), bytes, std::nullopt}, true);
}

Status Session::put_array(std::string_view name, void* memory, const ArrayPiece& piece,
                          const MemoryLayout& layout, bool exists) {
    const auto context = fmt::format("array \"{}\"", name);
    TAILRACE_TRY(check_array_piece(piece).with_context(context));
    auto place = place_in_memory(piece, layout);
    if (!place.ok()) return place.status().with_context(context);
    auto* first = static_cast<std::byte*>(memory);
    if (first != nullptr) first += place->first_byte;
    return put_region({std::string(name), first, array_bytes(piece), piece, std::move(place->strides)},
                      exists);
}

Status Session::register_array(std::string_view name, void* memory, const ArrayPiece& piece,
                               const MemoryLayout& layout) {
    return put_array(name, memory, piece, layout, false);
}

Status Session::update_array(std::string_view name, void* memory, const ArrayPiece& piece,
                             const MemoryLayout& layout) {
    return put_array(name, memory, piece, layout, true);
}

Status Session::unregister(std::string_view name) {
    std::lock_guard lock(regions_mutex_);
    auto found =
        std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.name == name; });
    if (found == regions_.end())
        return Status(Code::not_found, fmt::format("region \"{}\" is not registered", name));
    regions_.erase(found);
    return {};
}

std::vector<RegionSource> Session::region_sources() {
    std::lock_guard lock(regions_mutex_);
    std::vector<RegionSource> sources;
    for (const auto& region : regions_)
        sources.push_back({region.name, {region.memory, region.bytes}, region.array, region.strides});
    return sources;
}

// ---- save --------------------------------------------------------------------------------------------

Status Session::check_epoch(uint64_t epoch) const {
    if (epoch == UINT64_MAX)
        return Status(Code::invalid_argument, "epoch 2^64-1 stands for the newest one and cannot be saved");
    if (!newest_saved_ || epoch > *newest_saved_) return {};
    if (rank_epochs_.find(epoch))
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

// Which parts may go is a pure decision (choose_local_removals); the newest of them gives its space away.
std::optional<OwnPart> Session::retire_parts(uint32_t keep) {
    std::vector<LocalAge> ages;
    for (const auto& part : parts_) {
        const auto entry = rank_epochs_.find(part.key.epoch);
        const bool final = !entry || is_final(entry->info.state);
        const bool everywhere = entry && entry->captured_everywhere;
        const bool unheard = entry && entry->unheard;
        const bool in_use = !final || (entry && entry->still_read);
        ages.push_back({part.key, final && everywhere, in_use, final && !everywhere && !unheard, unheard});
    }
    auto in_use = [&](EpochKey key) {
        if (quiet()) {
            const auto found = quiet_epochs_.find(key);
            return found != quiet_epochs_.end() && !found->second.ended;
        }
        return agent_ && agent_->recovering(key);
    };
    for (const auto& key : old_safe_)
        ages.push_back({key, true, in_use(key), false, false, key == old_elsewhere_});
    for (const auto& part : old_parts_) {
        const auto same = [&](const LocalAge& age) { return age.key == part.header.key; };
        if (std::none_of(ages.begin(), ages.end(), same)) ages.push_back({part.header.key});
    }
    const auto removals = choose_local_removals(std::move(ages), std::max(1u, keep));

    std::optional<OwnPart> recycled;
    for (auto key = removals.rbegin(); key != removals.rend(); ++key) {
        for (const auto& part : old_parts_)
            if (part.header.key == *key) remove_part(part.path);
        std::erase_if(old_parts_, [&](const KnownPart& part) { return part.header.key == *key; });
        std::erase(old_safe_, *key);
        const auto part =
            std::find_if(parts_.begin(), parts_.end(), [&](const OwnPart& own) { return own.key == *key; });
        if (part == parts_.end()) continue;
        // A reader of this rank or another may still have the file open; without checksums it could not tell
        // that the bytes under it are another epoch's.
        const bool recyclable = !part->mapping.empty() && (config_.checksum || !reader_was_opened_);
        if (!recycled && recyclable)
            recycled = std::move(*part);
        else
            remove_part(part->path);
        parts_.erase(part);
    }
    return recycled;
}

void Session::remove_part(const std::string& path) {
    auto removed = local_->remove(path);
    if (!removed.ok() && removed.code() != Code::not_found)
        log(LogLevel::warning, "a captured part that is no longer needed stays: {}", removed.message());
}

Status Session::wait_for_room() {
    if (config_.queue_policy != QueuePolicy::wait || sequence_ % config_.shared_every != 0) return {};
    const size_t room = std::max(1u, config_.queue_epochs);
    if (quiet()) return quiet_wait([&] { return rank_epochs_.unfinished_for_shared() < room; }, std::nullopt);
    wait_until(
        [&](const RankEpochs::Entries& entries) {
            size_t unfinished = 0;
            for (const auto& [epoch, entry] : entries)
                if (entry.for_shared && !is_final(entry.info.state)) ++unfinished;
            return unfinished < room;
        },
        std::nullopt);
    return {};
}

// At the first save: of epochs that a restore of the newest would take now, and will not once this is whole.
void Session::warn_of_newer_epochs(uint64_t epoch) const {
    const auto newest = std::max_element(old_safe_.begin(), old_safe_.end());
    if (rank() != 0 || newest == old_safe_.end() || newest->epoch <= epoch) return;
    log(LogLevel::warning,
        "epoch {} is saved while {} lies in {} or {}: once it is complete, a restore of the newest epoch "
        "takes this run's, and what lies beyond it is restored by its number only",
        epoch, to_string(*newest), config_.shared_dir, config_.local_dir);
}

PartHeader Session::part_header(uint64_t epoch) const {
    PartHeader header;
    header.job = config_.name;
    header.key = {epoch, run_};
    header.run_uid = run_uid_;
    header.rank_count = static_cast<uint32_t>(rank_count());
    header.sequence = sequence_;
    header.for_shared = sequence_ % config_.shared_every == 0;
    header.stream.rank = static_cast<uint32_t>(rank());
    header.shared_dir = tier_.shared_text;
    return header;
}

// What a rank that is alone cannot save is refused before the epoch's number is used. Of several, the others
// may have captured theirs: the epoch fails for all then.
Status Session::check_regions(uint64_t epoch) {
    if (rank_count() > 1) return {};
    return capture_->check(part_header(epoch), region_sources())
        .with_context(fmt::format("epoch {}; nothing was saved, and it can be tried again", epoch));
}

Status Session::capture_epoch(uint64_t epoch, const Status& failure, Captured& capture) {
    const auto start = Clock::now();
    const auto header = part_header(epoch);
    if (!newest_saved_) warn_of_newer_epochs(epoch);
    const auto sources = region_sources();
    std::vector<NamedPiece> arrays;
    for (const auto& source : sources)
        if (source.array) arrays.push_back({source.name, &*source.array});
    read_mail();  // epochs that have ended since: a program that only saves asks for nothing else
    auto part = [&]() -> Result<OwnPart> {
        if (!failure.ok()) return failure;
        const FileSizeSignalBlocked blocked;
        return capture_->capture(header, sources, retire_parts(config_.keep_local - 1));  // and this one
    }();

    capture.seconds = seconds_since(start);
    capture.sequence = header.sequence;
    capture.key = header.key;
    capture.for_shared = header.for_shared;
    capture.arrays = points_->digest(arrays);
    capture.stream.rank = header.stream.rank;
    EpochInfo info;
    info.epoch = epoch;
    info.run = run_;
    info.state = part.ok() ? EpochState::captured : EpochState::failed;
    info.why = part.status();
    if (failure.ok())
        for (const auto& source : sources) info.captured_bytes += source.memory.size();
    info.blocked_seconds = seconds_since(start);
    rank_epochs_.add(info, header.for_shared);
    newest_saved_ = epoch;
    capture.status = part.status();
    if (!part.ok()) return part.status();
    capture.stream = part->stream;
    capture.path = part->path;
    parts_.push_back(std::move(*part));
    return {};
}

Status Session::save_or_fail(uint64_t epoch, const Status& failure) {
    std::lock_guard lock(save_mutex_);
    if (closed_) return Status(Code::failed_state, "the session is closed; nothing was saved");
    if (quiet()) return quiet_save(epoch, failure);
    TAILRACE_TRY(check_epoch(epoch));
    TAILRACE_TRY(check_regions(epoch));
    const auto start = Clock::now();
    TAILRACE_TRY(wait_for_room());
    Captured capture;
    capture.wait_seconds = seconds_since(start);
    const auto captured = capture_epoch(epoch, failure, capture);
    ++sequence_;
    TAILRACE_TRY(tell_captured(std::move(capture)));
    rank_epochs_.set_blocked(epoch, seconds_since(start));
    return captured;
}

Status Session::tell_captured(Captured capture) {
    if (agent_) {
        agent_->captured(std::move(capture));
        return {};
    }
    const auto purpose = "telling the node's agent of " + to_string(capture.key);
    return post_to_agent(std::move(capture), purpose);
}

// Of a rank without an agent. When it fails, so does everything that waits for the agent's answer.
Status Session::post_to_agent(const AgentMessage& message, const std::string& purpose) {
    ++mail_wanted_;
    transport_->wake();
    std::lock_guard lock(mail_mutex_);
    if (--mail_wanted_ == 0) mail_posted_.notify_all();
    auto posted = transport_->post(topology_.representative(node_), encode(message));
    if (!posted.ok()) leave_background(posted.with_context(purpose));
    read_mail_locked();
    return posted;
}

void Session::leave_background(const Status& why) {
    rank_epochs_.fail_all(why, false);
    const auto over = why.with_context(fmt::format("rank {}", rank()));
    auto posted =
        transport_->post(topology_.representative(node_), encode(AgentMessage(BackgroundOver{over})));
    if (!posted.ok())
        log(LogLevel::warning, "the node's agent could not be told that rank {} takes no part any more: {}",
            rank(), posted.message());
}

// ---- state and wait ------------------------------------------------------------------------------------

void Session::read_mail() {
    if (representative_ || quiet() || closed_) return;
    std::unique_lock lock(mail_mutex_, std::try_to_lock);
    if (lock.owns_lock()) read_mail_locked();
}

void Session::read_mail_locked() {
    while (true) {
        auto message = transport_->poll();
        if (!message.ok()) return leave_background(message.status());
        if (!*message) return;
        auto news = decode_agent_message((*message)->bytes);
        if (!news.ok()) return leave_background(news.status());
        if (const auto* flushing = std::get_if<EpochFlushing>(&*news)) rank_epochs_.flushing(flushing->key);
        if (const auto* ended = std::get_if<EpochEnded>(&*news)) rank_epochs_.ended(*ended);
        if (const auto* over = std::get_if<BackgroundOver>(&*news)) rank_epochs_.fail_all(over->why, true);
    }
}

bool Session::wait_until(const std::function<bool(const RankEpochs::Entries&)>& done, Deadline deadline) {
    if (representative_) return rank_epochs_.wait_until(done, deadline);
    while (true) {
        std::unique_lock lock(mail_mutex_);
        mail_posted_.wait(lock, [&] { return mail_wanted_ == 0; });
        read_mail_locked();
        const auto now = Clock::now();
        if (rank_epochs_.wait_until(done, now)) return true;
        if (deadline && now >= *deadline) return false;
        auto nap = std::chrono::microseconds(longest_mail_sleep);
        if (deadline)
            nap = std::min(nap, std::chrono::duration_cast<std::chrono::microseconds>(*deadline - now) + 1us);
        transport_->wait(nap, false);
    }
}

Result<EpochInfo> Session::state(uint64_t epoch) {
    read_mail();
    auto entry = rank_epochs_.find(epoch);
    if (entry) return entry->info;
    EpochInfo unknown;
    unknown.epoch = epoch;
    return unknown;
}

Status Session::epoch_status(uint64_t epoch) const {
    auto entry = rank_epochs_.find(epoch);
    if (!entry) return Status(Code::not_found, fmt::format("epoch {} was not saved in this session", epoch));
    if (entry->info.state == EpochState::failed)
        return entry->info.why.with_context(fmt::format("epoch {}", epoch));
    return {};
}

Session::Deadline Session::deadline_of(std::chrono::milliseconds longest) {
    if (longest.count() <= 0) return std::nullopt;
    // Longer than this is for ever, and would overflow the clock.
    if (longest > std::chrono::hours(24 * 365)) return std::nullopt;
    return Clock::now() + longest;
}

Status Session::wait_for(const std::vector<uint64_t>& epochs, std::chrono::milliseconds longest) {
    const auto deadline = deadline_of(longest);
    auto ended = [&](const RankEpochs::Entries& entries) {
        return std::all_of(epochs.begin(), epochs.end(), [&](uint64_t epoch) {
            const auto found = entries.find(epoch);
            return found == entries.end() || is_final(found->second.info.state);
        });
    };
    bool done = true;
    if (!closed_) {
        if (quiet()) {
            auto waited = quiet_wait([&] { return rank_epochs_.wait_until(ended, Clock::now()); }, deadline);
            if (!waited.ok() && waited.code() != Code::timeout) return waited;
            done = waited.ok();
        } else {
            done = wait_until(ended, deadline);
        }
    }
    if (!done)
        return Status(Code::timeout,
                      fmt::format("waited {} ms; {} still unfinished, and work goes on", longest.count(),
                                  epochs.size() == 1 ? fmt::format("epoch {} is", epochs[0])
                                                     : std::string("some epochs are")));
    for (const auto epoch : epochs) TAILRACE_TRY(epoch_status(epoch));
    return {};
}

Status Session::wait(uint64_t epoch, std::chrono::milliseconds longest) {
    return wait_for({epoch}, longest);
}

Status Session::wait_all(std::chrono::milliseconds longest) {
    std::vector<uint64_t> epochs;
    for (const auto& entry : rank_epochs_.all()) epochs.push_back(entry.info.epoch);
    return wait_for(epochs, longest);
}

}  // namespace tailrace
