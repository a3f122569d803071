// Session: restore and open_epoch. EpochSearch decides which epoch is taken, and from where.
#include <fmt/format.h>

#include "base/log.h"
#include "session/session.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// Declarations about the whole array are not compared, because a program may add them between two
// runs.
bool is_same_piece(const ArrayPiece& a, const ArrayPiece& b) {
    return a.type == b.type && a.global_shape == b.global_shape && a.offset == b.offset &&
           a.local_shape == b.local_shape;
}

}  // namespace

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
    const auto regions = regions_.choose(names);
    TAILRACE_TRY(agree(*context_.transport, regions.status()));
    if (closed_) return Status(Code::failed_state, "the session is closed");
    std::unique_ptr<EpochReader> reader;
    TAILRACE_ASSIGN(const auto key,
                    search_->use_newest(
                        epoch, std::nullopt, false,
                        [&](EpochReader& opened) { return restore_regions(opened, *regions); }, reader));
    if (rank() == 0) {
        log(LogLevel::info, "{} is restored", to_string(key));
        if (names.empty()) warn_of_unread_regions(*reader);
    }
    return key.epoch;
}

// If fewer ranks restore than have saved, nobody was asked for the plain regions of the others.
// This looks at the first of the others for all of them.
void Session::warn_of_unread_regions(EpochReader& reader) const {
    const auto first = static_cast<uint32_t>(rank_count());
    if (first >= reader.rank_count()) return;
    const auto manifest = reader.manifest(first);
    if (!manifest.ok()) return;  // the restore did not need it
    for (const auto& region : (*manifest)->regions) {
        if (region.array || region.bytes == 0) continue;
        log(LogLevel::warning,
            "{} was saved by {} ranks and is restored by {}: what ranks from {} on saved beside arrays, "
            "such as region \"{}\", was not read; any rank can read it with a reader of the epoch",
            to_string(reader.key()), reader.rank_count(), first, first, region.name);
        return;
    }
}

// ---- open_epoch ---------------------------------------------------------------------------------

// All ranks together read everything once.
Status Session::verify_share(EpochReader& reader) const {
    for (auto r = static_cast<uint32_t>(rank()); r < reader.rank_count();
         r += static_cast<uint32_t>(rank_count()))
        TAILRACE_TRY(reader.verify(r, [](uint64_t) {}));
    return {};
}

Result<std::unique_ptr<EpochReader>> Session::open_epoch(std::optional<uint64_t> epoch,
                                                         std::optional<uint64_t> before, bool verify) {
    return open_and_use(epoch, before,
                        [&](EpochReader& opened) { return verify ? verify_share(opened) : Status(); });
}

Result<std::unique_ptr<EpochReader>> Session::open_and_use(std::optional<uint64_t> epoch,
                                                           std::optional<uint64_t> before,
                                                           const UseEpoch& use) {
    {
        // Under the lock no save is running. So no save recycles a part that this reader may find:
        // later ones see that a reader was opened.
        MutexLock lock(save_mutex_);
        reader_was_opened_ = true;
    }
    if (closed_) return Status(Code::failed_state, "the session is closed");
    std::unique_ptr<EpochReader> reader;
    auto used = search_->use_newest(epoch, before, true, use, reader);
    if (!used.ok()) return used.status();
    return reader;
}

}  // namespace tailrace::internal
