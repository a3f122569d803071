// Session: restore and open_epoch. EpochSearch decides which epoch is taken, and from where.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "format/file_table.h"
#include "session/session.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// Declarations about the whole array are not compared, because a program may add them between two
// runs.
bool is_same_piece(const ArrayPiece& a, const ArrayPiece& b) {
    return a.is_list == b.is_list && a.type == b.type && a.global_shape == b.global_shape &&
           a.offset == b.offset && a.local_shape == b.local_shape;
}

std::string array_text(const ArrayPiece& array) {
    return fmt::format("{} of {}", element_type_name(array.type), fmt::join(array.global_shape, " x "));
}

Result<std::span<std::byte>> make_room(const Registered& region, uint64_t bytes) {
    if (!region.resizable->resize(bytes))
        return Status(Code::out_of_memory,
                      fmt::format("region \"{}\": the program could not make room for its {} bytes",
                                  region.name, bytes));
    const auto memory = region.resizable->find();
    if (memory.size() != bytes)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\": the program was asked for room for {} bytes and has {}",
                                  region.name, bytes, memory.size()));
    if (memory.data() == nullptr && bytes > 0)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\": the program made room for {} bytes at a null pointer",
                                  region.name, bytes));
    return memory;
}

// The memory to which a region is restored. `before` is the region as it was saved. If it is null, nothing
// was saved under this name, and the reader will say so.
Result<std::span<std::byte>> memory_for(const Registered& region, const Region* before) {
    if (!region.resizable || !before) return std::span(region.memory, region.bytes);
    return make_room(region, before->bytes);
}

std::string item_text(ElementType type, std::span<const uint64_t> shape) {
    return shape.size() == 1
               ? fmt::format("{}", element_type_name(type))
               : fmt::format("{} x {}", fmt::join(shape.subspan(1), " x "), element_type_name(type));
}

Status check_list(const Registered& region, bool is_list, ElementType type, std::span<const uint64_t> shape) {
    if (!is_list)
        return Status(
            Code::invalid_argument,
            fmt::format("region \"{}\" is registered as a list, but was not saved as one", region.name));
    const auto wanted = region.list->shape(0);
    if (type == region.list->type && std::ranges::equal(shape.subspan(1), std::span(wanted).subspan(1)))
        return {};
    return Status(Code::invalid_argument,
                  fmt::format("list \"{}\" was saved with items of {}, but is registered with items of {}",
                              region.name, item_text(type, shape), item_text(region.list->type, wanted)));
}

// Consecutive items of a list.
struct ItemRun {
    uint64_t first = 0, count = 0;
};

// This rank's share of a list of `items`. Without an owner it is an even one, and the first ranks get one
// item more.
Result<std::vector<ItemRun>> list_share(const Registered& region, uint64_t items, uint32_t rank,
                                        uint32_t rank_count) {
    std::vector<ItemRun> share;
    if (!region.owner) {
        const uint64_t each = items / rank_count, more = items % rank_count;
        share.push_back({rank * each + std::min<uint64_t>(rank, more), each + (rank < more ? 1 : 0)});
        return share;
    }
    for (uint64_t i = 0; i < items; ++i) {
        const int owner = region.owner(i, items, static_cast<int>(rank_count));
        if (owner < 0 || owner >= static_cast<int>(rank_count))
            return Status(Code::invalid_argument,
                          fmt::format("list \"{}\": the program gives item {} to rank {}, but there are {} "
                                      "ranks",
                                      region.name, i, owner, rank_count));
        if (owner != static_cast<int>(rank)) continue;
        if (share.empty() || share.back().first + share.back().count != i) share.push_back({i, 0});
        ++share.back().count;
    }
    return share;
}

struct Targets {
    std::vector<RegionTarget> whole;  // this rank's own, as it saved them
    std::vector<BoxTarget> boxes;
};

// This rank's share of a list, with room for it.
Status add_list_share(const Registered& region, EpochReader& reader, uint32_t rank, uint32_t rank_count,
                      Targets& targets) {
    TAILRACE_ASSIGN(const auto whole, reader.array(region.name));
    TAILRACE_TRY(check_list(region, whole.is_list, whole.type, whole.shape));
    TAILRACE_ASSIGN(const auto share, list_share(region, whole.shape.front(), rank, rank_count));
    uint64_t items = 0;
    for (const auto& run : share) items += run.count;
    TAILRACE_ASSIGN(auto memory, make_room(region, items * region.list->bytes()));
    for (const auto& run : share) {
        const auto bytes = static_cast<size_t>(run.count * region.list->bytes());
        BoxTarget box{region.name, region.list->shape(run.first), region.list->shape(run.count),
                      memory.first(bytes)};
        if (box.offset.size() > 1) box.offset.back() = 0;  // items are whole
        memory = memory.subspan(bytes);
        targets.boxes.push_back(std::move(box));
    }
    return {};
}

// `before` is what this rank saved under the name; null if nothing.
Status add_target(const Registered& region, const Region* before, EpochReader& reader, uint32_t own,
                  Targets& targets) {
    if (!region.list && before && before->array && before->array->is_list)
        return Status(Code::invalid_argument,
                      fmt::format("region \"{}\" was saved as a list; register it as one", region.name));
    const bool same_piece = before && before->array.has_value() == region.array.has_value() &&
                            (!region.array || is_same_piece(*before->array, *region.array));
    if (region.array && !same_piece) {
        if (before && before->array &&
            (before->array->type != region.array->type ||
             before->array->global_shape != region.array->global_shape))
            return Status(Code::invalid_argument,
                          fmt::format("array \"{}\" was saved as {}, but is registered as {}", region.name,
                                      array_text(*before->array), array_text(*region.array)));
        if (region.bytes > 0)
            targets.boxes.push_back({region.name,
                                     region.array->offset,
                                     region.array->local_shape,
                                     {region.memory, region.bytes},
                                     region.strides});
        return {};
    }
    if (own >= reader.rank_count())
        return Status(
            Code::not_found,
            fmt::format("region \"{}\" belongs to one rank, and rank {} did not exist when {} was "
                        "saved by {} ranks: restart on at most as many ranks, or register what all ranks "
                        "share as an array, a list or a replicated value",
                        region.name, own, to_string(reader.key()), reader.rank_count()));
    if (region.list && before) {
        const bool is_list = before->array && before->array->is_list;
        TAILRACE_TRY(is_list ? check_list(region, true, before->array->type, before->array->local_shape)
                             : check_list(region, false, {}, {}));
    }
    TAILRACE_ASSIGN(const auto memory, memory_for(region, before));
    targets.whole.push_back({region.name, memory, region.strides});
    return {};
}

}  // namespace

Status Session::restore_regions(EpochReader& reader, const std::vector<Registered>& regions) const {
    if (regions.empty()) return {};
    const auto own = static_cast<uint32_t>(rank()), ranks = static_cast<uint32_t>(rank_count());
    const PartManifest* saved = nullptr;
    if (own < reader.rank_count()) {
        TAILRACE_ASSIGN(saved, reader.manifest(own));
    }
    const bool shares_lists = reader.rank_count() != ranks;
    Targets targets;
    for (const auto& region : regions) {
        if (region.list && shares_lists) {
            TAILRACE_TRY(add_list_share(region, reader, own, ranks, targets));
            continue;
        }
        const auto* before = saved ? find_region(*saved, region.name) : nullptr;
        TAILRACE_TRY(add_target(region, before, reader, own, targets));
    }
    if (!targets.whole.empty()) TAILRACE_TRY(reader.read_regions(own, targets.whole));
    return targets.boxes.empty() ? Status() : reader.read_boxes(targets.boxes);
}

Status Session::check_restores() const {
    if (config().purpose == Purpose::checkpoints) return {};
    return Status(Code::failed_state,
                  "the epochs of this session are outputs (purpose = outputs), and no restore takes them; "
                  "open one to read it, or restore from the session of the checkpoints");
}

Result<uint64_t> Session::restore(std::optional<uint64_t> epoch, std::span<const std::string> names) {
    if (closed_) return Status(Code::failed_state, "the session is closed");
    TAILRACE_TRY(check_restores());
    return together(*context_.transport, [&]() -> Result<uint64_t> {
        TAILRACE_ASSIGN(const auto regions, regions_.choose(names));
        std::unique_ptr<EpochReader> reader;
        TAILRACE_ASSIGN(const auto key,
                        search_->use_newest(
                            epoch, std::nullopt, false,
                            [&](EpochReader& opened) { return restore_regions(opened, regions); }, reader));
        if (rank() == 0) {
            log(LogLevel::info, "{} is restored", to_string(key));
            if (names.empty()) warn_of_unread_regions(*reader);
        }
        return key.epoch;
    });
}

// If fewer ranks restore than have saved, nobody was asked for the plain regions of the others.
// This looks at the first of the others for all of them.
void Session::warn_of_unread_regions(EpochReader& reader) const {
    const auto first = static_cast<uint32_t>(rank_count());
    if (first >= reader.rank_count()) return;
    const auto manifest = reader.manifest(first);
    if (!manifest.ok()) return;  // the restore did not need it
    for (const auto& region : (*manifest)->regions) {
        if (region.array || region.bytes == 0 || region.name.starts_with(file_table_region)) continue;
        log(LogLevel::warning,
            "{} was saved by {} ranks and is restored by {}: the plain regions of ranks from {} on, such as "
            "region \"{}\", were not read; any rank can read them with a reader of the epoch",
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
    TAILRACE_TRY(expect_reader());
    return together(*context_.transport, [&]() -> Result<std::unique_ptr<EpochReader>> {
        std::unique_ptr<EpochReader> reader;
        TAILRACE_TRY(search_->use_newest(epoch, before, true, use, reader).status());
        return reader;
    });
}

Result<std::unique_ptr<EpochReader>> Session::restore_and_use(std::optional<uint64_t> epoch, bool any_rank,
                                                              const UseEpoch& use) {
    TAILRACE_TRY(check_restores());
    TAILRACE_TRY(expect_reader());
    return together(*context_.transport, [&]() -> Result<std::unique_ptr<EpochReader>> {
        TAILRACE_ASSIGN(const auto regions, regions_.choose({}));
        std::unique_ptr<EpochReader> reader;
        const auto restore = [&](EpochReader& opened) -> Status {
            if (any_rank) TAILRACE_TRY(verify_share(opened));
            TAILRACE_TRY(restore_regions(opened, regions));
            return use(opened);
        };
        TAILRACE_ASSIGN(const auto key, search_->use_newest(epoch, std::nullopt, any_rank, restore, reader));
        if (rank() == 0) {
            log(LogLevel::info, "{} is restored", to_string(key));
            warn_of_unread_regions(*reader);
        }
        return reader;
    });
}

Status Session::expect_reader() {
    {
        // Under the lock no save is running. Later ones see that a reader was opened.
        MutexLock lock(save_mutex_);
        reader_was_opened_ = true;
    }
    return closed_ ? Status(Code::failed_state, "the session is closed") : Status();
}

}  // namespace tailrace::internal
