#include "drain/recorded_epochs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "catalog/catalog.h"
#include "catalog/lineage.h"

namespace tailrace::internal {

Result<PlanRecord> read_plan_record(Storage& storage, const std::string& path) {
    OpenOptions how;
    how.own = true;
    TAILRACE_ASSIGN(const auto file, storage.open(path, how));
    TAILRACE_ASSIGN(const uint64_t size, file->size());
    if (size > max_plan_record_bytes)
        return Status(Code::corrupt, fmt::format("{}: a plan record has at most {} bytes, not {}", path,
                                                 max_plan_record_bytes, size));
    std::vector<std::byte> bytes(size);
    TAILRACE_ASSIGN(const size_t got, file->read_at(bytes, 0));
    bytes.resize(got);
    auto record = decode_plan_record(bytes);
    if (!record.ok()) return record.status().with_context(path);
    return record;
}

namespace {

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// One that is what its name says.
Result<PlanRecord> read_named(Storage& storage, const std::string& path, const PlanFileName& name) {
    TAILRACE_ASSIGN(auto record, read_plan_record(storage, path));
    if (record.job != name.job || record.key != name.key || record.node != name.node)
        return Status(Code::corrupt,
                      fmt::format("{}: the record says that it is {}: it was renamed or replaced", path,
                                  to_string(PlanFileName{record.job, record.key, record.node})));
    return record;
}

}  // namespace

Result<std::vector<RecordedEpoch>> list_plan_records(Storage& storage, const std::string& directory) {
    std::vector<RecordedEpoch> found;
    const auto entries = storage.list(directory);
    if (entries.status().code() == Code::not_found) return found;
    TAILRACE_TRY(entries.status());
    for (const auto& entry : *entries) {
        const auto name = parse_plan_file_name(entry.name);
        if (!name || name->unfinished || entry.is_directory) continue;
        const auto path = join_path(directory, entry.name);
        auto record = read_named(storage, path, *name);
        if (record.ok())
            found.push_back({path, std::move(*record), name->local});
        else if (record.status().code() != Code::not_found)
            log(LogLevel::warning, "a plan record cannot be used and is left as it is: {}",
                record.status().message());
    }
    std::sort(found.begin(), found.end(),
              [](const RecordedEpoch& a, const RecordedEpoch& b) { return a.record.key < b.record.key; });
    return found;
}

Result<std::vector<std::string>> list_unusable_records(Storage& storage, const std::string& directory) {
    std::vector<std::string> unusable;
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    for (const auto& entry : entries) {
        const auto name = parse_plan_file_name(entry.name);
        if (!name || name->unfinished || entry.is_directory) continue;
        auto path = join_path(directory, entry.name);
        const auto record = read_named(storage, path, *name);
        if (!record.ok() && record.status().code() != Code::not_found) unusable.push_back(std::move(path));
    }
    return unusable;
}

Status check_captured(const CapturedPart& part, const PlanRecord& record, const StreamInfo& stream) {
    const auto& header = part.header;
    if (header.job == record.job && header.key == record.key && header.run_uid == record.run_uid &&
        shared_stream(header) == stream)
        return {};
    return Status(
        Code::corrupt,
        fmt::format("{}: it is not the captured part that the plan record was made for", part.path));
}

Result<std::vector<LocalStream>> captured_streams(Storage& storage, const std::string& directory,
                                                  const PlanRecord& record) {
    std::vector<LocalStream> streams;
    for (const auto& stream : record.own().streams) {
        const auto path = join_path(directory, to_string(PartFileName{record.job, record.key, stream.rank}));
        TAILRACE_ASSIGN(const auto part, captured_part(storage, path));
        TAILRACE_TRY(check_captured(part, record, stream));
        streams.push_back({stream, path, part_header_bytes});
    }
    return streams;
}

EpochNeed epoch_need(EpochKey key, uint32_t keep_shared, const std::vector<EpochKey>& whole) {
    if (contains(whole, key)) return EpochNeed::committed;
    const Lineage lineage(whole);
    if (lineage.left_behind(key)) return EpochNeed::superseded;
    const auto newer = std::count_if(whole.begin(), whole.end(), [&](EpochKey other) {
        return key < other && !lineage.left_behind(other);
    });
    const bool room = keep_shared == 0 || static_cast<uint64_t>(newer) < keep_shared;
    return room ? EpochNeed::flush : EpochNeed::superseded;
}

EpochNeed need_of(const RecordedEpoch& recorded, const std::vector<EpochKey>& usable,
                  const std::vector<EpochKey>& begun, const std::vector<EpochKey>& whole) {
    const EpochKey key = recorded.record.key;
    const auto need = epoch_need(key, recorded.record.keep_shared, whole);
    if (!recorded.local || need != EpochNeed::flush) return need;
    // The program may have gone back, and what it had saved before that is not newer.
    auto all = whole;
    all.insert(all.end(), usable.begin(), usable.end());
    const Lineage lineage(all);
    const auto is_newer = [&](EpochKey other) { return key < other && !lineage.left_behind(other); };
    if (std::any_of(whole.begin(), whole.end(), is_newer)) return EpochNeed::superseded;
    if (contains(begun, key)) return EpochNeed::flush;
    if (lineage.left_behind(key)) return EpochNeed::stays;
    const auto newest_of = [&](const auto& counts) {
        return std::none_of(usable.begin(), usable.end(),
                            [&](EpochKey other) { return is_newer(other) && counts(other); });
    };
    const bool newest_below_others = std::any_of(begun.begin(), begun.end(), [&](EpochKey other) {
        return key < other && !contains(usable, other) &&
               newest_of([&](EpochKey mine) { return mine < other; });
    });
    const bool newest = newest_of([](EpochKey) { return true; });
    return newest || newest_below_others ? EpochNeed::flush : EpochNeed::stays;
}

}  // namespace tailrace::internal
