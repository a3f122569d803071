// What Client does to find a checkpoint of an earlier run, and to recover it.
#include <algorithm>
#include <charconv>
#include <functional>
#include <span>
#include <sstream>

#include "client.h"
#include "common/directories.h"

namespace fti_on_tailrace {

namespace {

std::optional<int> id_of_region(std::string_view name) {
    if (!name.starts_with(region_prefix)) return std::nullopt;
    name.remove_prefix(region_prefix.size());
    int id = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return std::nullopt;
    return id;
}

std::string bytes_in_words(uint64_t bytes) {
    return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

}  // namespace

std::optional<std::string> Client::known_checkpoints(const char* call) {
    std::vector<std::pair<uint64_t, int>> known;
    const bool listed = guarded(call, [&] {
        for (int level = 1; level <= levels; ++level)
            if (sessions_[level])
                for (const auto& epoch : session(level).list()) known.emplace_back(epoch.epoch, level);
    });
    if (!everywhere(call, listed)) return std::nullopt;
    std::sort(known.begin(), known.end(), std::greater<>());
    return from_first(call, [&] {
        std::string lines;
        for (const auto& [epoch, level] : known)
            lines += std::to_string(epoch) + " " + std::to_string(level) + "\n";
        return lines;
    });
}

bool Client::find_checkpoint(const char* call) {
    const auto there = from_first(call, [&] {
        std::string marks;
        for (int level = 1; level <= levels; ++level)
            marks +=
                on_tailrace::is_below(settings_.glbl_dir, {settings_.exec_id, own_name, level_name(level)})
                    ? '1'
                    : '0';
        return marks;
    });
    if (!there) return false;
    for (int level = 1; level <= levels; ++level)
        if ((*there)[static_cast<size_t>(level) - 1] == '1' && !open_session(call, level)) return false;
    const auto known = known_checkpoints(call);
    if (!known) return false;
    std::istringstream lines(*known);
    uint64_t epoch = 0;
    for (int level = 0; lines >> epoch >> level;) {
        next_epoch_ = std::max(next_epoch_, epoch + 1);
        if (!saved_ && !open_checkpoint(call, level, epoch) && ranks_->rank() == 0)
            complain(call, "the checkpoint of level " + std::to_string(level) + " in " + shared(level) +
                               ", epoch " + std::to_string(epoch) +
                               ", cannot be recovered, and is passed over");
    }
    return true;
}

bool Client::open_checkpoint(const char* call, int level, uint64_t epoch) {
    Saved found{level, epoch, 0, {}};
    const bool opened =
        guarded(call, [&] { reader_ = session(level).open_epoch(epoch, TAILRACE_NEWEST, true); });
    const bool read =
        everywhere(call, opened) &&
        everywhere(call, guarded(call, [&] {
                       const auto ranks = reader_->rank_count();
                       if (ranks != static_cast<uint32_t>(ranks_->count()))
                           throw tailrace::Error(
                               TAILRACE_INVALID_ARGUMENT,
                               "it was saved by " + std::to_string(ranks) + " ranks, and these are " +
                                   std::to_string(ranks_->count()) + "; start " + std::to_string(ranks));
                       const auto rank = static_cast<uint32_t>(ranks_->rank());
                       for (const auto& region : reader_->regions(rank))
                           if (const auto id = id_of_region(region.name)) found.bytes[*id] = region.bytes;
                       reader_->read(rank, id_region, std::span(&found.id, 1));
                   }));
    if (read)
        saved_ = std::move(found);
    else
        reader_.reset();
    return read;
}

// Of a checkpoint that this run has taken.
bool Client::reopen(const char* call) {
    if (reader_) return true;
    if (saved_) {
        const auto taken_before = *saved_;
        return open_checkpoint(call, taken_before.level, taken_before.epoch);
    }
    if (ranks_->rank() == 0) complain(call, "there is no checkpoint; take one with FTI_Checkpoint first");
    return false;
}

bool Client::fits(const char* call) const {
    return guarded(call, [&] {
        for (const auto& [id, region] : regions_) {
            const auto stored = saved_->bytes.find(id);
            const auto what = "id " + std::to_string(id);
            if (stored == saved_->bytes.end())
                throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                                      what +
                                          " is protected and not in the checkpoint; protect what it has, and "
                                          "others after FTI_Recover. Nothing was recovered");
            if (stored->second != region.bytes)
                throw tailrace::Error(
                    TAILRACE_INVALID_ARGUMENT,
                    what + " has " + bytes_in_words(region.bytes) + " here and " +
                        bytes_in_words(stored->second) +
                        " in the checkpoint; call FTI_Realloc, or FTI_Protect with that size, "
                        "first. Nothing was recovered");
        }
        for (const auto& [id, bytes] : saved_->bytes)
            if (!regions_.contains(id))
                throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                                      "id " + std::to_string(id) + ", " + bytes_in_words(bytes) +
                                          ", is in the checkpoint and not protected; protect it before "
                                          "FTI_Recover. Nothing was recovered");
    });
}

void Client::fill(int id, const Region& region) const {
    reader_->read(static_cast<uint32_t>(ranks_->rank()), region_name(id),
                  std::span(static_cast<std::byte*>(region.memory), region.bytes));
}

Result Client::recover() {
    constexpr const char* call = "FTI_Recover";
    if (!reopen(call) || !everywhere(call, fits(call))) return not_recovered;
    const bool filled = guarded(call, [&] {
        for (const auto& [id, region] : regions_) fill(id, region);
    });
    if (!everywhere(call, filled)) return not_recovered;
    status_ = 0;
    return good;
}

Result Client::begin_recovering() {
    if (status_ == 0 || reader_) return good;
    complain("FTI_RecoverVarInit", "a checkpoint was taken since the start; call FTI_Recover for that one");
    return failed;
}

// On a first run it does nothing, as in FTI.
Result Client::recover_one(int id) {
    constexpr const char* call = "FTI_RecoverVar";
    const auto region = regions_.find(id);
    const auto what = "id " + std::to_string(id);
    if (region == regions_.end()) {
        complain(call, what + " is not protected; call FTI_Protect first");
        return failed;
    }
    if (status_ == 0) return good;
    const auto stored = saved_->bytes.find(id);
    if (stored == saved_->bytes.end() || stored->second != region->second.bytes) {
        complain(call, what + " has " + bytes_in_words(region->second.bytes) + " here and " +
                           (stored == saved_->bytes.end() ? "is not" : bytes_in_words(stored->second)) +
                           " in the checkpoint; it stays as it is");
        return not_recovered;
    }
    if (begin_recovering() != good) return failed;
    return guarded(call, [&] { fill(id, region->second); }) ? good : not_recovered;
}

}  // namespace fti_on_tailrace
