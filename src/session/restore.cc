// Session: list, restore, open_epoch. All collective, and every decision is made from what all ranks know
// alike, so that they stay in step.
//
// restore, step by step:
//   1. representatives say which captured parts they have, rank 0 which epochs lie in the shared directory;
//   2. candidates, newest first, what the program has left behind last (format/lineage.h): when the parts
//      in the node-local tiers serve the ranks as they are now, they are read, and the shared tier is not
//      touched; all ranks agree on how that went;
//   3. else, or when that failed, the shared files are opened (once their flush has ended, if one is under
//      way), parts that are at hand still being preferred;
//   4. when that fails as well, the next older epoch is tried.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "format/codec.h"
#include "format/lineage.h"
#include "read/manifest_exchange.h"
#include "read/shared_epoch_codec.h"
#include "session/session.h"

namespace tailrace {

namespace {

// Of all ranks together; the same number on every rank, for so is what is asked.
uint64_t manifest_bytes(const std::optional<LocalEpoch>& local, const std::optional<SharedEpoch>& shared) {
    uint64_t sum = 0;
    const auto add = [&](const StreamInfo& info) {  // cut, for sizes from files may be anything
        sum += std::min(info.manifest_bytes, most_exchanged_manifest_bytes + 1);
    };
    if (shared)
        for (const auto& stream : shared->streams) add(stream.info);
    else if (local)
        for (const auto& part : local->parts) add(part.header.stream);
    return sum;
}

// Whatever is declared of the whole: a program may begin to declare it between two runs.
bool is_same_piece(const ArrayPiece& a, const ArrayPiece& b) {
    return a.type == b.type && a.global_shape == b.global_shape && a.offset == b.offset &&
           a.local_shape == b.local_shape;
}

}  // namespace

bool Session::reachable(const KnownPart& part, int rank) const {
    return hosts_[static_cast<size_t>(topology_.representative(part.node))] ==
           hosts_[static_cast<size_t>(rank)];
}

// Every rank finds the part it saved on its own machine.
bool Session::local_serves_own_ranks(const Candidate& candidate) const {
    if (!candidate.local || !candidate.local->complete()) return false;
    const auto& parts = candidate.local->parts;  // ascending by rank, one for each
    if (static_cast<int>(parts.size()) != rank_count()) return false;
    for (int r = 0; r < rank_count(); ++r)
        if (!reachable(parts[static_cast<size_t>(r)], r)) return false;
    return true;
}

// Every rank finds every part on its own machine.
bool Session::local_serves_any_rank(const Candidate& candidate) const {
    if (!candidate.local || !candidate.local->complete()) return false;
    for (const auto& part : candidate.local->parts)
        for (int r = 0; r < rank_count(); ++r)
            if (!reachable(part, r)) return false;
    return true;
}

Result<Session::Candidates> Session::find_candidates() {
    TAILRACE_ASSIGN(auto known, gather_parts());
    Candidates candidates;
    candidates.damaged_part = std::move(known.damaged);
    std::map<EpochKey, Candidate> found;
    for (auto& epoch : gather_local_epochs(known.parts)) {
        if (std::find(refused_.begin(), refused_.end(), epoch.key) != refused_.end()) continue;
        auto& candidate = found[epoch.key];
        candidate.key = epoch.key;
        candidate.local = std::move(epoch);
    }
    ByteWriter out;
    if (rank() == 0) {
        // While files get their names, a listing may miss some.
        std::shared_lock lock(agent_mutex_);
        if (quiet() && agent_) agent_->wait_idle();
        lock.unlock();
        auto listed = list_shared(*shared_, config_.shared_dir, config_.name);
        put(out, listed.status());
        if (!listed.ok())
            log(LogLevel::warning, "the shared tier is passed over: {}", listed.status().message());
        else {
            std::vector<EpochKey> captured;
            for (const auto& [key, candidate] : found)
                if (candidate.local->complete()) captured.push_back(key);
            const auto whole = whole_epochs(*shared_, *listed, captured, {});
            for (const auto& files : *listed) {
                put(out, files.key);
                out.put(static_cast<uint8_t>(has_unfinished(files)));
                out.put(
                    static_cast<uint8_t>(std::find(whole.begin(), whole.end(), files.key) != whole.end()));
            }
        }
    }
    TAILRACE_ASSIGN(const auto of_root, transport_->broadcast(0, out.bytes()));
    ByteReader in(of_root);
    candidates.unlisted = get_status(in);
    while (in.ok() && in.remaining() > 0) {
        const EpochKey key = get_key(in);
        auto& candidate = found[key];
        candidate.key = key;
        candidate.in_shared = true;
        candidate.shared_unfinished = in.get<uint8_t>() != 0;
        candidate.shared_whole = in.get<uint8_t>() != 0;
    }
    if (!in.ok()) return Status(Code::transport, "rank 0's list of the shared directory is damaged");
    std::vector<EpochKey> whole;  // as far as names tell
    auto& listed = candidates.newest_first;
    for (auto& [key, candidate] : found) {
        if (candidate.seems_whole()) whole.push_back(key);
        listed.push_back(std::move(candidate));
    }
    const Lineage lineage(whole);
    std::sort(listed.begin(), listed.end(),
              [&](const Candidate& a, const Candidate& b) { return lineage.goes_first(a.key, b.key); });
    return candidates;
}

// The heads of the K files, read by this rank.
Result<SharedEpoch> Session::load_here(EpochKey key) const {
    TAILRACE_ASSIGN(const auto listed, list_shared(*shared_, config_.shared_dir, config_.name));
    for (const auto& files : listed)
        if (files.key == key) return load_shared_epoch(*shared_, files);
    return Status(Code::not_found, fmt::format("{} has no files in {}", to_string(key), config_.shared_dir));
}

// Rank 0 reads the heads of the K files and tells the others. Collective; the same outcome everywhere.
Result<SharedEpoch> Session::load_everywhere(EpochKey key) {
    ByteWriter out;
    if (rank() == 0) {
        const auto loaded = load_here(key);
        put(out, loaded.status());
        if (loaded.ok()) out.put_bytes(encode_shared_epoch(*loaded));
    }
    TAILRACE_ASSIGN(const auto of_root, transport_->broadcast(0, out.bytes()));
    ByteReader in(of_root);
    Status loaded = get_status(in);
    if (!in.ok()) return Status(Code::transport, "rank 0's word about an epoch is damaged");
    if (!loaded.ok()) return loaded;
    return decode_shared_epoch(std::span(of_root).subspan(in.position()));
}

Status Session::wait_for_flush(EpochKey key) {
    if (quiet())
        return quiet_wait(
            [&] {
                const auto found = quiet_epochs_.find(key);
                return found == quiet_epochs_.end() || found->second.ended.has_value();
            },
            std::nullopt);
    wait_until(
        [&](const RankEpochs::Entries& entries) {
            const auto found = entries.find(key.epoch);
            return found == entries.end() || found->second.info.run != key.run ||
                   is_final(found->second.info.state);
        },
        std::nullopt);
    std::shared_lock lock(agent_mutex_);
    if (agent_) agent_->wait_recovered(key);
    return {};
}

Status Session::try_sources(const Candidate& candidate, bool any_rank, std::optional<SharedEpoch> shared,
                            const Use& use, std::unique_ptr<EpochReader>& reader) {
    EpochSources sources;
    sources.key = candidate.key;
    sources.rank_count = shared ? shared->rank_count : candidate.local->rank_count;
    const bool same_attempt =
        candidate.local && (!shared || (shared->run_uid == candidate.local->run_uid &&
                                        shared->rank_count == candidate.local->rank_count));
    if (same_attempt)
        for (const auto& part : candidate.local->parts)
            if (reachable(part, rank())) sources.local_parts.push_back({part.path, part.header});
    // Arrays need every rank's manifest: a reader may be asked for them, and other ranks than saved restore
    // other pieces. The same ranks restore what they saved, as a rule, and need no manifest but their own.
    const uint32_t saved_ranks = sources.rank_count;
    const bool exchange = rank_count() > 1 &&
                          (any_rank || saved_ranks != static_cast<uint32_t>(rank_count())) &&
                          manifest_bytes(candidate.local, shared) <= most_exchanged_manifest_bytes;
    const std::string_view where = !shared                       ? "the node-local tier"
                                   : sources.local_parts.empty() ? "the shared directory"
                                                                 : "the shared directory, and captured parts";
    // A reader reads when it is asked to, in no step with other ranks: it looks for the shared files by
    // itself when a part turns out to be damaged. A restore goes on with them on all ranks.
    if (!shared && any_rank) sources.find_shared = [this, key = candidate.key] { return load_here(key); };
    sources.shared = std::move(shared);
    auto opened = EpochReader::open(*local_, *shared_, std::move(sources), config_.direct_io);
    Status mine = opened.status();
    reader = mine.ok() ? std::move(*opened) : nullptr;
    if (exchange) TAILRACE_TRY(exchange_manifests(*transport_, reader.get(), saved_ranks));
    if (mine.ok()) mine = use(*reader);
    auto all = agree(*transport_, mine);
    if (!all.ok())
        reader.reset();
    else if (rank() == 0)
        log(LogLevel::info, "{} is read from {}", to_string(candidate.key), where);
    return all;
}

Session::Attempt Session::try_candidate(const Candidate& candidate, bool any_rank, const Use& use,
                                        std::unique_ptr<EpochReader>& reader) {
    using Outcome = Attempt::Outcome;
    // The caller asked for something that the epoch, as it is, cannot give: no other source would help.
    auto is_refusal = [](const Status& status) {
        return status.code() == Code::invalid_argument || status.code() == Code::not_found;
    };
    const bool own_ranks = local_serves_own_ranks(candidate);
    Status local_failure;
    if (local_serves_any_rank(candidate) || (own_ranks && !any_rank)) {
        auto status = try_sources(candidate, any_rank, std::nullopt, use, reader);
        if (status.ok()) return {Outcome::used, {}};
        if (status.code() == Code::invalid_argument) return {Outcome::refused, status};
        local_failure = status;
        if (rank() == 0 && !is_refusal(status))
            log(LogLevel::warning,
                "{} could not be read from the node-local tier, the shared one is next: {}",
                to_string(candidate.key), status.message());
    }
    if (auto waited = wait_for_flush(candidate.key); !waited.ok()) return {Outcome::damaged, waited};
    auto shared = load_everywhere(candidate.key);
    if (shared.ok()) {
        auto status = try_sources(candidate, any_rank, std::move(*shared), use, reader);
        if (status.ok()) return {Outcome::used, {}};
        return {is_refusal(status) ? Outcome::refused : Outcome::damaged, status};
    }
    if (any_rank && own_ranks) {
        // Every rank can at least read what it saved itself.
        auto status = try_sources(candidate, any_rank, std::nullopt, use, reader);
        if (status.ok()) return {Outcome::used, {}};
        local_failure = status;
    }
    if (!local_failure.ok())
        return {is_refusal(local_failure) ? Outcome::refused : Outcome::damaged, local_failure};
    if (shared.status().code() != Code::not_found) return {Outcome::damaged, shared.status()};
    if (candidate.in_shared && !candidate.shared_unfinished) return {Outcome::damaged, shared.status()};
    if (candidate.local && candidate.local->complete())
        return {Outcome::damaged,
                Status(Code::not_found,
                       fmt::format(
                           "{} lies in the node-local tiers only, where {} ranks on the machines of today "
                           "cannot all reach it (it was captured by {} ranks)",
                           to_string(candidate.key), rank_count(), candidate.local->rank_count))};
    if (candidate.local)
        return {Outcome::nothing_there,
                Status(Code::not_found,
                       fmt::format("{} was captured by {} of {} ranks only", to_string(candidate.key),
                                   candidate.local->parts.size(), candidate.local->rank_count))};
    return {Outcome::nothing_there, shared.status()};
}

// An epoch that was asked for by its number is not there. Where others are, that must not look like a first
// run: the program would begin anew, and what it saves would take the place of what is there.
Status Session::no_such_epoch(uint64_t epoch, const std::vector<Candidate>& candidates) const {
    std::set<uint64_t> others;
    for (const auto& candidate : candidates)
        if (candidate.key.epoch != epoch && candidate.seems_whole()) others.insert(candidate.key.epoch);
    auto sentence = fmt::format("there is no complete epoch {} of job {} in {} and the node-local tier {}",
                                epoch, config_.name, config_.shared_dir, config_.local_dir);
    if (others.empty()) return Status(Code::not_found, std::move(sentence));
    constexpr size_t most_named = 10;
    const size_t named = std::min(most_named, others.size());
    std::vector<uint64_t> numbers(std::prev(others.end(), static_cast<std::ptrdiff_t>(named)), others.end());
    sentence +=
        fmt::format("; there are {}{}", others.size() > named ? "..., " : "", fmt::join(numbers, ", "));
    return Status(Code::invalid_argument, std::move(sentence));
}

// Ranks that ask for different epochs would go through different candidates: they would come back at
// different epochs, or wait for each other for ever. Collective; the same outcome everywhere.
Status Session::agree_on_request(std::optional<uint64_t> epoch, std::optional<uint64_t> before) const {
    ByteWriter out;
    out.put(epoch.value_or(UINT64_MAX));
    out.put(before.value_or(UINT64_MAX));
    TAILRACE_ASSIGN(const auto all, transport_->allgather(out.bytes()));
    auto in_words = [](const std::vector<std::byte>& request) {
        ByteReader in(request);
        const auto wanted = in.get<uint64_t>(), limit = in.get<uint64_t>();
        if (wanted != UINT64_MAX) return fmt::format("epoch {}", wanted);
        if (limit != UINT64_MAX) return fmt::format("the newest epoch before {}", limit);
        return std::string("the newest epoch");
    };
    for (size_t r = 1; r < all.size(); ++r)
        if (all[r] != all[0])
            return Status(Code::invalid_argument,
                          fmt::format("all ranks must ask for the same epoch, but rank 0 asks for {} and "
                                      "rank {} for {}; nothing was read",
                                      in_words(all[0]), r, in_words(all[r])));
    return {};
}

Result<EpochKey> Session::use_newest(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                                     bool any_rank, const Use& use, std::unique_ptr<EpochReader>& reader) {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    TAILRACE_TRY(agree_on_request(epoch, before));
    TAILRACE_ASSIGN(const auto candidates, find_candidates());
    Status damage, incomplete;  // of the newest epoch each
    std::string passed_over;    // every damaged one
    for (const auto& candidate : candidates.newest_first) {
        if (epoch && candidate.key.epoch != *epoch) continue;
        if (!epoch && before && candidate.key.epoch >= *before) continue;
        auto attempt = try_candidate(candidate, any_rank, use, reader);
        switch (attempt.outcome) {
            case Attempt::Outcome::used:
                reader->set_passed_over(std::move(passed_over));
                return candidate.key;
            case Attempt::Outcome::refused: {
                // A program takes not_found for a first run, and would begin anew where a name is misspelt.
                const auto why = attempt.why.code() == Code::not_found
                                     ? Status(Code::invalid_argument, attempt.why.message())
                                     : attempt.why;
                return why.with_context("reading " + to_string(candidate.key));
            }
            case Attempt::Outcome::damaged:
                if (rank() == 0)
                    log(LogLevel::warning, "{} cannot be restored{}: {}", to_string(candidate.key),
                        epoch ? "" : ", and an older one is looked for", attempt.why.message());
                {
                    std::shared_lock lock(agent_mutex_);
                    if (rank() == 0 && agent_) agent_->found_damaged(candidate.key);
                }
                if (damage.ok()) damage = attempt.why.with_context(to_string(candidate.key));
                passed_over += fmt::format("{}{}: {}", passed_over.empty() ? "" : "; ",
                                           to_string(candidate.key), attempt.why.message());
                break;
            case Attempt::Outcome::nothing_there:
                if (rank() == 0)
                    log(LogLevel::info, "{} is passed over: {}", to_string(candidate.key),
                        attempt.why.message());
                if (incomplete.ok()) incomplete = attempt.why;
                break;
        }
    }
    if (!damage.ok())
        return Status(
            Code::corrupt,
            fmt::format("nothing could be restored from {}, and nothing there was changed; the newest "
                        "epoch: {}",
                        both_tiers(), damage.message()));
    const Status missing = nothing_to_restore(epoch, before, candidates);
    if (incomplete.ok() || missing.code() == Code::corrupt || !candidates.unlisted.ok()) return missing;
    return Status(missing.code(), fmt::format("{} ({})", missing.message(), incomplete.message()));
}

std::string Session::both_tiers() const {
    return fmt::format("{} and the node-local tier {}", config_.shared_dir, config_.local_dir);
}

// No epoch was tried that should have worked.
Status Session::nothing_to_restore(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                                   const Candidates& candidates) const {
    // What lies there is not known, so it may not be called a first run.
    if (!candidates.unlisted.ok())
        return Status(
            candidates.unlisted.code() == Code::not_found ? Code::io_error : candidates.unlisted.code(),
            fmt::format("nothing could be restored from {}: {}", both_tiers(),
                        candidates.unlisted.message()));
    if (!candidates.damaged_part.empty() && !epoch && !before)
        return Status(
            Code::corrupt,
            fmt::format("nothing could be restored from {}, and nothing there was changed; a captured "
                        "part is damaged (remove it to begin anew): {}",
                        both_tiers(), candidates.damaged_part));
    if (epoch) return no_such_epoch(*epoch, candidates.newest_first);
    return Status(Code::not_found,
                  fmt::format("there is no complete epoch of job {} in {}", config_.name, both_tiers()));
}

// ---- restore -----------------------------------------------------------------------------------------

Status Session::restore_regions(EpochReader& reader, const std::vector<Registered>& regions) const {
    if (regions.empty()) return {};
    const auto own = static_cast<uint32_t>(rank());
    const PartManifest* saved = nullptr;
    if (own < reader.rank_count()) {
        TAILRACE_ASSIGN(saved, reader.manifest(own));
    }
    std::vector<RegionTarget> whole;
    std::vector<BoxTarget> boxes;
    for (const auto& region : regions) {
        const auto* before = saved ? find_region(*saved, region.name) : nullptr;
        const bool same_piece = before && before->array.has_value() == region.array.has_value() &&
                                (!region.array || is_same_piece(*before->array, *region.array));
        if (region.array && !same_piece) {
            if (before && before->array &&
                (before->array->type != region.array->type ||
                 before->array->global_shape != region.array->global_shape))
                return Status(
                    Code::invalid_argument,
                    fmt::format("array \"{}\" was saved with another element type or global shape than "
                                "is registered now",
                                region.name));
            if (region.bytes > 0)
                boxes.push_back({region.name,
                                 region.array->offset,
                                 region.array->local_shape,
                                 {region.memory, region.bytes},
                                 region.strides});
        } else if (!saved) {
            return Status(
                Code::not_found,
                fmt::format("region \"{}\" belongs to a rank, and rank {} did not exist when {} was "
                            "saved by {} ranks",
                            region.name, own, to_string(reader.key()), reader.rank_count()));
        } else {
            whole.push_back({region.name, {region.memory, region.bytes}, region.strides});
        }
    }
    if (!whole.empty()) TAILRACE_TRY(reader.read_regions(own, whole));
    return boxes.empty() ? Status() : reader.read_boxes(boxes);
}

Result<uint64_t> Session::restore(std::optional<uint64_t> epoch, std::span<const std::string> names) {
    std::vector<Registered> regions;
    Status chosen;
    {
        std::lock_guard lock(regions_mutex_);
        if (names.empty()) regions = regions_;
        for (const auto& name : names) {
            const auto found =
                std::find_if(regions_.begin(), regions_.end(), [&](const auto& r) { return r.name == name; });
            if (found != regions_.end())
                regions.push_back(*found);
            else if (chosen.ok())
                chosen =
                    Status(Code::invalid_argument,
                           fmt::format("region \"{}\" is not registered, so it cannot be restored", name));
        }
    }
    TAILRACE_TRY(agree(*transport_, chosen));
    std::unique_ptr<EpochReader> reader;
    TAILRACE_ASSIGN(const auto key,
                    use_newest(
                        epoch, std::nullopt, false,
                        [&](EpochReader& opened) { return restore_regions(opened, regions); }, reader));
    if (rank() == 0) {
        log(LogLevel::info, "{} is restored", to_string(key));
        if (names.empty()) warn_of_what_is_left(*reader);
    }
    return key.epoch;
}

// Fewer ranks than saved: nobody was asked for what the others saved beside arrays. The first of them is
// looked at for all.
void Session::warn_of_what_is_left(EpochReader& reader) const {
    const auto first = static_cast<uint32_t>(rank_count());
    if (first >= reader.rank_count()) return;
    const auto manifest = reader.manifest(first);
    if (!manifest.ok()) return;  // it was no part of the restore
    for (const auto& region : (*manifest)->regions) {
        if (region.array || region.bytes == 0) continue;
        log(LogLevel::warning,
            "{} was saved by {} ranks and is restored by {}: what ranks from {} on saved beside arrays, "
            "such as region \"{}\", was not read; a reader of the epoch gives it to any rank",
            to_string(reader.key()), reader.rank_count(), first, first, region.name);
        return;
    }
}

// ---- open_epoch --------------------------------------------------------------------------------------

// All ranks together read everything once.
Status Session::verify_share(EpochReader& reader) const {
    for (auto r = static_cast<uint32_t>(rank()); r < reader.rank_count();
         r += static_cast<uint32_t>(rank_count()))
        TAILRACE_TRY(reader.verify(r, [](uint64_t) {}));
    return {};
}

Result<std::unique_ptr<EpochReader>> Session::open_epoch(std::optional<uint64_t> epoch,
                                                         std::optional<uint64_t> before, bool verify) {
    {
        // A save that runs now recycles no part that this reader could find: it is over before the reader
        // looks.
        std::lock_guard lock(save_mutex_);
        reader_was_opened_ = true;
    }
    std::unique_ptr<EpochReader> reader;
    auto used = use_newest(
        epoch, before, true, [&](EpochReader& opened) { return verify ? verify_share(opened) : Status(); },
        reader);
    if (!used.ok()) return used.status();
    return reader;
}

// ---- list --------------------------------------------------------------------------------------------

Result<std::vector<EpochInfo>> Session::list() {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    TAILRACE_ASSIGN(const auto candidates, find_candidates());
    read_mail();
    std::vector<EpochInfo> listed;
    std::set<uint64_t> epochs;
    for (const auto& candidate : candidates.newest_first) {
        if (epochs.contains(candidate.key.epoch)) continue;  // a later run's counts, and comes first
        EpochInfo info;
        info.epoch = candidate.key.epoch;
        info.run = candidate.key.run;
        info.in_local = local_serves_own_ranks(candidate) || local_serves_any_rank(candidate);
        if (candidate.in_shared) {
            TAILRACE_ASSIGN(const bool complete, [&]() -> Result<bool> {
                auto loaded = load_everywhere(candidate.key);
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
        if (const auto entry = rank_epochs_.find(info.epoch); entry && entry->info.run == info.run) {
            const bool in_shared = info.in_shared, in_local = info.in_local;
            info = entry->info;
            info.in_shared = in_shared;
            info.in_local = in_local;
        }
        listed.push_back(std::move(info));
    }
    return listed;
}

}  // namespace tailrace
