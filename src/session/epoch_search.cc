#include "session/epoch_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "catalog/lineage.h"
#include "format/codec.h"
#include "read/manifest_exchange.h"
#include "read/shared_epoch_codec.h"
#include "session/old_epochs.h"

namespace tailrace::internal {

namespace {

// The size of all ranks' manifests. It is the same on every rank, because all ask for the same
// epoch.
uint64_t manifest_bytes(const std::optional<LocalEpoch>& local, const std::optional<SharedEpoch>& shared) {
    uint64_t sum = 0;
    // Capped, because sizes in files may be anything.
    const auto add = [&](const StreamInfo& info) {
        sum += std::min(info.manifest_bytes, max_exchanged_manifest_bytes + 1);
    };
    if (shared)
        for (const auto& stream : shared->streams) add(stream.info);
    else if (local)
        for (const auto& part : local->parts) add(part.header.stream);
    return sum;
}

// A rank is in no state to take any epoch, asked for something that makes no sense for this one, or
// cannot reach the others. No other source would help, nor an older epoch, and the epoch is not damaged.
bool is_own_fault(const Status& status) {
    return status.code() == Code::invalid_argument || status.code() == Code::failed_state ||
           status.code() == Code::out_of_memory || status.code() == Code::no_space ||
           status.code() == Code::transport;
}

// Or the epoch does not have what the caller asked for.
bool is_refusal(const Status& status) {
    return is_own_fault(status) || status.code() == Code::not_found;
}

}  // namespace

bool EpochSearch::reachable(const KnownPart& part, int rank) const {
    INVARIANT(part.node < context_.node_count() && rank < context_.rank_count());
    return context_.hosts[static_cast<size_t>(context_.topology.representative(part.node))] ==
           context_.hosts[static_cast<size_t>(rank)];
}

// Whether every rank finds the part that it saved on its own machine.
bool EpochSearch::local_serves_own_ranks(const Candidate& candidate) const {
    if (!candidate.local || !candidate.local->complete()) return false;
    const auto& parts = candidate.local->parts;  // one for each rank, ascending
    if (static_cast<int>(parts.size()) != context_.rank_count()) return false;
    for (int r = 0; r < context_.rank_count(); ++r)
        if (!reachable(parts[static_cast<size_t>(r)], r)) return false;
    return true;
}

// Whether every rank finds every part on its own machine.
bool EpochSearch::local_serves_any_rank(const Candidate& candidate) const {
    if (!candidate.local || !candidate.local->complete()) return false;
    for (const auto& part : candidate.local->parts)
        for (int r = 0; r < context_.rank_count(); ++r)
            if (!reachable(part, r)) return false;
    return true;
}

// Parts of this run whose epoch this rank has not saved: copies of Checkpointer::capture.
std::vector<EpochKey> EpochSearch::held_copies(const std::map<EpochKey, Candidate>& found) const {
    std::vector<EpochKey> held;
    for (const auto& [key, candidate] : found)
        if (key.run == context_.run && !epochs_.find(key.epoch)) held.push_back(key);
    return held;
}

Result<EpochSearch::Candidates> EpochSearch::find() {
    TAILRACE_ASSIGN(auto known, gather_parts(context_));
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
    if (context_.rank() == 0) {
        auto listed = list_shared(*context_.shared, context_.config.shared_dir, context_.config.name);
        put(out, listed.status());
        const auto undecided = held_copies(found);
        out.put(static_cast<uint64_t>(undecided.size()));
        for (const EpochKey& key : undecided) put(out, key);
        if (!listed.ok())
            log(LogLevel::warning, "the shared directory cannot be listed and is passed over: {}",
                listed.status().message());
        else {
            std::vector<EpochKey> captured;
            for (const auto& [key, candidate] : found)
                if (candidate.local->complete()) captured.push_back(key);
            const auto whole = whole_epochs(*context_.shared, *listed, captured, {});
            for (const auto& files : *listed) {
                put(out, files.key);
                out.put(static_cast<uint8_t>(has_unfinished(files)));
                out.put(
                    static_cast<uint8_t>(std::find(whole.begin(), whole.end(), files.key) != whole.end()));
            }
        }
    }
    TAILRACE_ASSIGN(const auto from_root, context_.transport->broadcast(0, out.bytes()));
    ByteReader in(from_root);
    candidates.unlisted = get_status(in);
    for (uint64_t left = in.get<uint64_t>(); in.ok() && left > 0; --left) found.erase(get_key(in));
    while (in.ok() && in.remaining() > 0) {
        const EpochKey key = get_key(in);
        auto& candidate = found[key];
        candidate.key = key;
        candidate.in_shared = true;
        candidate.shared_unfinished = in.get<uint8_t>() != 0;
        candidate.shared_whole = in.get<uint8_t>() != 0;
    }
    if (!in.ok())
        return Status(Code::transport, "rank 0's list of the shared directory could not be decoded");
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

// Reads the heads of the K files on this rank.
Result<SharedEpoch> EpochSearch::load_here(EpochKey key) const {
    TAILRACE_ASSIGN(const auto files,
                    find_shared(*context_.shared, context_.config.shared_dir, context_.config.name, key));
    if (files) return load_shared_epoch(*context_.shared, *files);
    return Status(Code::not_found,
                  fmt::format("{} has no files in {}", to_string(key), context_.config.shared_dir));
}

Result<SharedEpoch> EpochSearch::load(EpochKey key) {
    ByteWriter out;
    if (context_.rank() == 0) {
        const auto loaded = load_here(key);
        put(out, loaded.status());
        if (loaded.ok()) out.put_bytes(encode_shared_epoch(*loaded));
    }
    TAILRACE_ASSIGN(const auto from_root, context_.transport->broadcast(0, out.bytes()));
    ByteReader in(from_root);
    Status loaded = get_status(in);
    if (!in.ok()) return Status(Code::transport, "rank 0's message about an epoch could not be decoded");
    if (!loaded.ok()) return loaded;
    return decode_shared_epoch(std::span(from_root).subspan(in.position()));
}

Status EpochSearch::try_sources(const Candidate& candidate, bool any_rank, std::optional<SharedEpoch> shared,
                                const Use& use, std::unique_ptr<EpochReader>& reader) {
    INVARIANT(shared || candidate.local);
    EpochSources sources;
    sources.key = candidate.key;
    sources.rank_count = shared ? shared->rank_count : candidate.local->rank_count;
    const bool same_attempt =
        candidate.local && (!shared || (shared->run_uid == candidate.local->run_uid &&
                                        shared->rank_count == candidate.local->rank_count));
    if (same_attempt)
        for (const auto& part : candidate.local->parts)
            if (reachable(part, context_.rank())) sources.local_parts.push_back({part.path, part.header});
    // To read arrays, a reader needs every rank's manifest. Two cases need arrays: a reader that
    // may be asked for any of them, and a restore on another number of ranks. Otherwise ranks
    // restore what they saved, as a rule, and need only their own manifest.
    const uint32_t saved_ranks = sources.rank_count;
    const bool exchange = context_.rank_count() > 1 &&
                          (any_rank || saved_ranks != static_cast<uint32_t>(context_.rank_count())) &&
                          manifest_bytes(candidate.local, shared) <= max_exchanged_manifest_bytes;
    const std::string_view where = !shared                       ? "the node-local tier"
                                   : sources.local_parts.empty() ? "the shared directory"
                                                                 : "the shared directory, and captured parts";
    // A reader reads when it is asked to, in no step with other ranks. So it looks for the shared
    // files by itself when a part turns out to be damaged. A restore goes on with the shared files
    // on all ranks.
    if (!shared && any_rank) sources.find_shared = [this, key = candidate.key] { return load_here(key); };
    sources.shared = std::move(shared);
    auto opened =
        EpochReader::open(*context_.local, *context_.shared, std::move(sources), context_.config.direct_io);
    Status mine = opened.status();
    reader = mine.ok() ? std::move(*opened) : nullptr;
    if (exchange) TAILRACE_TRY(exchange_manifests(*context_.transport, reader.get(), saved_ranks));
    if (mine.ok()) mine = use(*reader);
    auto all = agree(*context_.transport, mine);
    if (!all.ok())
        reader.reset();
    else if (context_.rank() == 0)
        log(LogLevel::info, "{} is read from {}", to_string(candidate.key), where);
    return all;
}

EpochSearch::Attempt EpochSearch::try_candidate(const Candidate& candidate, bool any_rank, const Use& use,
                                                std::unique_ptr<EpochReader>& reader) {
    using Outcome = Attempt::Outcome;
    const bool own_ranks = local_serves_own_ranks(candidate);
    Status local_failure;
    if (local_serves_any_rank(candidate) || (own_ranks && !any_rank)) {
        auto status = try_sources(candidate, any_rank, std::nullopt, use, reader);
        if (status.ok()) return {Outcome::used, {}};
        if (is_own_fault(status)) return {Outcome::refused, status};
        local_failure = status;
        if (context_.rank() == 0 && !is_refusal(status))
            log(LogLevel::warning,
                "{} could not be read from the node-local tier, so the shared directory is tried: {}",
                to_string(candidate.key), status.message());
    }
    if (auto waited = background_.wait_flushed(candidate.key); !waited.ok())
        return {Outcome::refused, waited};
    auto shared = load(candidate.key);
    // Only then has the call ended on all ranks. Any other failure is one of the files.
    if (shared.status().code() == Code::transport || shared.status().code() == Code::out_of_memory)
        return {Outcome::refused, shared.status()};
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
                           "{} lies in the node-local tiers only, where the {} ranks cannot all reach it "
                           "from their present machines (it was captured by {} ranks)",
                           to_string(candidate.key), context_.rank_count(), candidate.local->rank_count))};
    if (candidate.local)
        return {Outcome::nothing_there,
                Status(Code::not_found,
                       fmt::format("{} was captured by {} of {} ranks only", to_string(candidate.key),
                                   candidate.local->parts.size(), candidate.local->rank_count))};
    return {Outcome::nothing_there, shared.status()};
}

// The epoch that was asked for by its number is not there. If others are, this must not look like a
// first run: the program would begin anew, and what it saves would take the place of what is there.
Status EpochSearch::no_such_epoch(uint64_t epoch, const std::vector<Candidate>& candidates) const {
    std::set<uint64_t> others;
    for (const auto& candidate : candidates)
        if (candidate.key.epoch != epoch && candidate.seems_whole()) others.insert(candidate.key.epoch);
    auto sentence =
        fmt::format("there is no complete epoch {} of job {} in {} and the node-local tier {}", epoch,
                    context_.config.name, context_.config.shared_dir, context_.config.local_dir);
    if (others.empty()) return Status(Code::not_found, std::move(sentence));
    constexpr size_t max_named = 10;
    const size_t named = std::min(max_named, others.size());
    std::vector<uint64_t> numbers(std::prev(others.end(), static_cast<std::ptrdiff_t>(named)), others.end());
    sentence +=
        fmt::format("; there are {}{}", others.size() > named ? "..., " : "", fmt::join(numbers, ", "));
    return Status(Code::invalid_argument, std::move(sentence));
}

// Ranks that ask for different epochs would go through different candidates. They would return with
// different epochs, or wait for each other for ever. Collective; the outcome is the same
// everywhere.
Status EpochSearch::agree_on_request(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                                     bool any_rank) const {
    ByteWriter out;
    out.put(epoch.value_or(UINT64_MAX));
    out.put(before.value_or(UINT64_MAX));
    out.put(static_cast<uint8_t>(any_rank));
    TAILRACE_ASSIGN(const auto all, context_.transport->allgather(out.bytes()));
    auto in_words = [](const std::vector<std::byte>& request) {
        ByteReader in(request);
        const auto wanted = in.get<uint64_t>(), limit = in.get<uint64_t>();
        const std::string whose = in.get<uint8_t>() != 0 ? "what any rank saved of " : "";
        if (wanted != UINT64_MAX) return fmt::format("{}epoch {}", whose, wanted);
        if (limit != UINT64_MAX) return fmt::format("{}the newest epoch before {}", whose, limit);
        return whose + "the newest epoch";
    };
    for (size_t r = 1; r < all.size(); ++r)
        if (all[r] != all[0])
            return Status(Code::invalid_argument,
                          fmt::format("all ranks must ask for the same epoch, but rank 0 asks for {} and "
                                      "rank {} for {}; nothing was read",
                                      in_words(all[0]), r, in_words(all[r])));
    return {};
}

Result<EpochKey> EpochSearch::use_newest(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                                         bool any_rank, const Use& use,
                                         std::unique_ptr<EpochReader>& reader) {
    TAILRACE_TRY(agree_on_request(epoch, before, any_rank));
    TAILRACE_ASSIGN(const auto candidates, find());
    Status damage, incomplete;  // why the newest damaged and the newest incomplete epoch failed
    std::string passed_over;    // all damaged epochs, and why
    for (const auto& candidate : candidates.newest_first) {
        if (epoch && candidate.key.epoch != *epoch) continue;
        if (!epoch && before && candidate.key.epoch >= *before) continue;
        auto attempt = try_candidate(candidate, any_rank, use, reader);
        switch (attempt.outcome) {
            case Attempt::Outcome::used:
                INVARIANT(reader != nullptr && reader->key() == candidate.key);
                reader->set_passed_over(std::move(passed_over));
                return candidate.key;
            case Attempt::Outcome::refused: {
                // A program takes not_found for a first run. It would begin anew because a name is
                // misspelt.
                const auto why = attempt.why.code() == Code::not_found
                                     ? Status(Code::invalid_argument, attempt.why.message())
                                     : attempt.why;
                return why.with_context("reading " + to_string(candidate.key));
            }
            case Attempt::Outcome::damaged:
                if (context_.rank() == 0)
                    log(LogLevel::warning, "{} cannot be restored{}: {}", to_string(candidate.key),
                        epoch ? "" : ", so an older epoch is tried", attempt.why.message());
                background_.found_damaged(candidate.key);
                if (damage.ok()) damage = attempt.why.with_context(to_string(candidate.key));
                passed_over += fmt::format("{}{}: {}", passed_over.empty() ? "" : "; ",
                                           to_string(candidate.key), attempt.why.message());
                break;
            case Attempt::Outcome::nothing_there:
                if (context_.rank() == 0)
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
                        "epoch: {}. To begin afresh, remove the shared directory, and run `tailrace drain "
                        "--forget` on each node",
                        both_tiers(), damage.message()));
    const Status missing = nothing_to_restore(epoch, before, candidates);
    if (incomplete.ok() || missing.code() == Code::corrupt || !candidates.unlisted.ok()) return missing;
    return Status(missing.code(), fmt::format("{} ({})", missing.message(), incomplete.message()));
}

std::string EpochSearch::both_tiers() const {
    return fmt::format("{} and the node-local tier {}", context_.config.shared_dir,
                       context_.config.local_dir);
}

// No epoch was tried that should have worked.
Status EpochSearch::nothing_to_restore(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                                       const Candidates& candidates) const {
    // Nobody knows what lies there, so this may not be called a first run.
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
    return Status(Code::not_found, fmt::format("there is no complete epoch of job {} in {}",
                                               context_.config.name, both_tiers()));
}

}  // namespace tailrace::internal
