#include "session/old_epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "agent/flush_setup.h"
#include "base/bytes.h"
#include "base/log.h"
#include "protect/rebuild.h"
#include "read/array_judge.h"
#include "read/epoch_reader.h"
#include "session/recovery.h"

namespace tailrace::internal {

Result<KnownParts> gather_parts(const JobContext& context) {
    OfferedParts mine;
    Status listed;
    if (context.is_representative()) {
        auto directories =
            directories_of_node(*context.local, context.tier, context.node, context.topology, context.hosts);
        listed = directories.status();
        for (size_t i = 0; listed.ok() && i < directories->size(); ++i) {
            auto listing = list_tier(*context.local, context.tier, (*directories)[i], context.config.name);
            listed = listing.status();
            if (!listed.ok()) break;
            for (auto& part : listing->parts) mine.parts.push_back(std::move(part));
            for (const auto& leftover : listing->leftovers) {
                log(LogLevel::debug, "a leftover is passed over: {}", leftover.why.message());
                const auto name = part_file_name(leftover);
                if (name && !name->unfinished) mine.damaged = leftover.why.message();
            }
        }
        // A node-local tier that cannot be read has nothing to offer, but the shared directory may.
        if (!listed.ok())
            log(LogLevel::warning, "the node-local tier cannot be read and is passed over: {}",
                listed.message());
    }
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(encode_parts(mine)));
    KnownParts known;
    for (int node = 0; node < context.node_count(); ++node) {
        TAILRACE_ASSIGN(auto of_node,
                        decode_parts(all[static_cast<size_t>(context.topology.representative(node))], node));
        std::move(of_node.parts.begin(), of_node.parts.end(), std::back_inserter(known.parts));
        if (known.damaged.empty()) known.damaged = std::move(of_node.damaged);
    }
    return known;
}

namespace {

// The parts of an epoch that this rank looks after.
std::vector<PartPlace> own_parts(const JobContext& context, const LocalEpoch& epoch) {
    std::vector<PartPlace> mine;
    for (const auto& part : epoch.parts)
        if (context.is_representative() && part.node == context.node) mine.push_back({epoch.key, part.path});
    return mine;
}

// Judges the arrays of captured epochs by their tables of regions. If an epoch's arrays cannot be
// put together, it is neither safe nor flushed, and restore does not offer it. Its parts stay for
// as long as the node-local tier keeps them. Collective.
Status judge_captured(const JobContext& context, const std::vector<LocalEpoch>& captured, OldEpochs& old) {
    for (const auto& epoch : captured) {
        if (!epoch.complete()) continue;
        const auto mine = own_parts(context, epoch);
        const ArrayPoints points(epoch.run_uid);
        TAILRACE_ASSIGN(
            const auto judged,
            judge_together(*context.transport, epoch.rank_count, [&](const ArrayQuestion& question) {
                return facts_of_parts(*context.local, points, question, mine);
            }));
        // Any other failure is left to verify(), which reads every byte.
        if (judged.verdict->code() != Code::invalid_argument) {
            old.safe.push_back(epoch.key);
            continue;
        }
        old.refused.push_back({epoch.key, *judged.verdict});
        if (context.rank() == 0)
            log(LogLevel::warning, "{}, captured by an earlier run, is passed over: {}", to_string(epoch.key),
                judged.verdict->message());
    }
    return {};
}

// Which of the epochs some representative cannot read back. Collective.
Result<std::vector<EpochKey>> find_damaged(const JobContext& context, const std::vector<LocalEpoch>& epochs) {
    ByteWriter out;
    for (const auto& epoch : epochs) {
        const Status damaged =
            verify_parts(*context.local, own_parts(context, epoch), EpochReader::verify_memory_bytes);
        if (!damaged.ok())
            log(LogLevel::warning, "captured {} cannot be flushed to {}: {}", to_string(epoch.key),
                context.config.shared_dir, damaged.message());
        out.put(static_cast<uint8_t>(!damaged.ok()));
    }
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(out.bytes()));
    std::vector<EpochKey> damaged;
    for (size_t i = 0; i < epochs.size(); ++i)
        if (std::any_of(all.begin(), all.end(),
                        [&](const auto& flags) { return i >= flags.size() || flags[i] != std::byte{0}; }))
            damaged.push_back(epochs[i].key);
    return damaged;
}

// Fills old.to_flush with sound epochs. A damaged epoch does not count, and so hides none before it. Every
// epoch is read once. Collective.
Status choose_sound(const JobContext& context, const SharedInventory& inventory,
                    std::vector<LocalEpoch> captured, OldEpochs& old) {
    std::set<EpochKey> read;
    while (true) {
        old.to_flush = choose_recoveries(captured, inventory.committed, inventory.unclean);
        std::vector<LocalEpoch> to_read;
        for (const auto& epoch : old.to_flush)
            if (read.insert(epoch.key).second) to_read.push_back(epoch);
        if (to_read.empty()) return {};
        TAILRACE_ASSIGN(const auto damaged, find_damaged(context, to_read));
        for (const EpochKey& key : damaged) {
            std::erase(old.safe, key);
            std::erase_if(captured, [&](const LocalEpoch& epoch) { return epoch.key == key; });
        }
    }
}

// Removes the files that earlier attempts at the same epochs have left, because an old slot in a
// file that is written again would be a false commit. Collective.
Status make_room(const JobContext& context, OldEpochs& old) {
    auto& epochs = old.to_flush;
    ByteWriter out;
    for (const auto& epoch : epochs) {
        auto removed = context.rank() == 0 ? remove_for_rewrite(*context.shared, context.config.shared_dir,
                                                                context.config.name, epoch.key, epoch.run_uid)
                                           : Status();
        if (!removed.ok())
            log(LogLevel::warning, "captured {} stays in the node-local tier: {}", to_string(epoch.key),
                removed.message());
        out.put(static_cast<uint8_t>(!removed.ok()));
    }
    TAILRACE_ASSIGN(const auto from_root, context.transport->broadcast(0, out.bytes()));
    if (from_root.size() != epochs.size())
        return Status(Code::transport, "rank 0's message about captured epochs could not be decoded");
    size_t i = 0;
    std::erase_if(epochs, [&](const LocalEpoch&) { return from_root[i++] != std::byte{0}; });
    return {};
}

// Writes their files as they were, for those that want it, as any flush does before its commit. An epoch for
// which this fails on some node stays where it is, and one whose files cannot lie together is refused.
// Collective.
Status write_originals(const JobContext& context, OldEpochs& old) {
    constexpr uint8_t fine = 0, failed = 1, refused = 2;
    ByteWriter out;
    Throttle throttle(context.config.bandwidth_cap);
    for (const auto& epoch : old.to_flush) {
        const Status written = write_originals_before_commit(context, own_parts(context, epoch), throttle);
        if (!written.ok())
            log(LogLevel::warning, "captured {} stays in the node-local tier: {}", to_string(epoch.key),
                written.message());
        out.put(written.ok() ? fine : written.code() == Code::invalid_argument ? refused : failed);
    }
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(out.bytes()));
    size_t i = 0;
    std::erase_if(old.to_flush, [&](const LocalEpoch& epoch) {
        const size_t at = i++;
        uint8_t worst = fine;
        for (const auto& of_rank : all)
            worst = std::max(worst, at < of_rank.size() ? static_cast<uint8_t>(of_rank[at]) : failed);
        if (worst == refused) {
            std::erase(old.safe, epoch.key);
            old.refused.push_back({epoch.key, Status(Code::invalid_argument,
                                                     "files of two of its ranks cannot lie together in one "
                                                     "directory, which files_as = original needs")});
        }
        return worst != fine;
    });
    return {};
}

}  // namespace

Result<OldEpochs> judge_old_epochs(const JobContext& context, const SharedInventory& inventory) {
    TAILRACE_ASSIGN(auto known, gather_parts(context));
    const RebuildContext rebuild{*context.transport,       *context.local, context.tier,
                                 context.topology,         context.hosts,  context.config.name,
                                 context.config.local_sync};
    TAILRACE_ASSIGN(auto rebuilt, rebuild_lost_parts(rebuild, std::move(known), inventory.committed));
    auto captured = gather_local_epochs(rebuilt.known.parts);
    OldEpochs old;
    old.rebuilt = std::move(rebuilt.added);
    TAILRACE_TRY(judge_captured(context, captured, old));
    std::erase_if(captured, [&](const LocalEpoch& epoch) {
        return std::any_of(old.refused.begin(), old.refused.end(),
                           [&](const OldEpochs::Refused& refused) { return refused.key == epoch.key; });
    });
    TAILRACE_TRY(choose_sound(context, inventory, std::move(captured), old));
    TAILRACE_TRY(make_room(context, old));
    if (!old.to_flush.empty()) TAILRACE_TRY(write_originals(context, old));
    if (inventory.newest_committed &&
        std::find(old.safe.begin(), old.safe.end(), *inventory.newest_committed) == old.safe.end()) {
        old.safe.push_back(*inventory.newest_committed);
        old.elsewhere = inventory.newest_committed;
    }
    return old;
}

}  // namespace tailrace::internal
