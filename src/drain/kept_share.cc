#include "drain/kept_share.h"

#include <fmt/format.h>

#include "catalog/catalog.h"
#include "drain/recorded_epochs.h"
#include "protect/protect_object.h"

namespace tailrace::internal {

namespace {

Status disagree(const std::string& path, std::string what) {
    return Status(Code::corrupt, fmt::format("{}: {}", path, what));
}

// Everything that is the same in the records of all nodes.
bool of_same_epoch(const PlanRecord& a, const PlanRecord& b) {
    return a.job == b.job && a.key == b.key && a.run_uid == b.run_uid && a.rank_count == b.rank_count &&
           a.shared_dir == b.shared_dir && a.node_count == b.node_count && a.file_count == b.file_count &&
           a.keep_shared == b.keep_shared;
}

Result<std::optional<PlanRecord>> record_of(Storage& storage, const std::string& directory,
                                            const PlanRecord& own, uint32_t node) {
    if (node >= own.first_node && node - own.first_node < own.nodes.size()) {
        auto record = own;
        record.node = node;
        return std::optional(std::move(record));
    }
    const auto path = join_path(directory, to_string(KeptPlanFileName{own.job, own.key, node, false}));
    auto record = read_plan_record(storage, path);
    if (record.status().code() == Code::not_found) return std::optional<PlanRecord>();
    TAILRACE_TRY(record.status());
    if (record->node != node || !of_same_epoch(*record, own))
        return disagree(path, fmt::format("it is not the record of node {} of {}", node, to_string(own.key)));
    return std::optional(std::move(*record));
}

}  // namespace

Result<std::optional<KeptShare>> find_kept_share(Storage& storage, const std::string& directory,
                                                 const PlanRecord& own) {
    const auto path = protect_path(directory, own.job, own.key, static_cast<int>(own.node));
    const auto head = ObjectReader::read_head(storage, path);
    if (head.status().code() == Code::not_found) return std::optional<KeptShare>();
    TAILRACE_TRY(head.status());
    const EpochIdentity identity{own.job, own.key, own.run_uid, own.rank_count, own.shared_dir};
    if (head->identity != identity || head->members[head->position].node != own.node)
        return disagree(path, "it is not this node's copy of the epoch");
    const auto position = copied_position(*head);
    if (!position) return std::optional<KeptShare>();
    const auto& member = head->members[*position];
    TAILRACE_ASSIGN(auto record, record_of(storage, directory, own, member.node));
    if (!record) return std::optional<KeptShare>();
    // The object names the streams as they were captured, the record as the shared files are to hold them.
    const auto planned = record->own().streams;
    if (planned.size() != member.parts.size())
        return disagree(path,
                        fmt::format("the parts of node {} are not those of its plan record", member.node));

    KeptShare share{std::move(*record), {}};
    uint64_t offset = record_bytes(*head);
    for (size_t i = 0; i < planned.size(); ++i) {
        TAILRACE_ASSIGN(const auto part, captured_part(storage, path, offset));
        TAILRACE_TRY(check_captured(part, share.record, planned[i]));
        if (part.header.stream != member.parts[i])
            return disagree(path, fmt::format("the part at byte {} is not the one that it names", offset));
        share.streams.push_back({planned[i], path, offset + part_header_bytes});
        offset += part_bytes(member.parts[i]);
    }
    return std::optional(std::move(share));
}

}  // namespace tailrace::internal
