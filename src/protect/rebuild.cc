#include "protect/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/units.h"
#include "format/manifest.h"
#include "protect/protect_object.h"
#include "protect/rebuild_run.h"
#include "read/array_judge.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_path_bytes = 1 << 16;

int own_node(const RebuildContext& context) {
    return context.topology.node_of_rank[static_cast<size_t>(context.transport.rank())];
}
bool represents(const RebuildContext& context) {
    return context.topology.representative(own_node(context)) == context.transport.rank();
}

// ---- 1. what is there ---------------------------------------------------------------------------

// An object that may be believed to be what its name says, and belongs to this job and directory.
Result<ProtectHead> believable_head(const RebuildContext& context, const ListedObject& object) {
    TAILRACE_ASSIGN(auto head, ObjectReader::read_head(context.local, object.path));
    const auto& identity = head.identity;
    const ProtectFileName real{identity.job, identity.key, head.members[head.position].node, false};
    if (real != object.name)
        return Status(Code::corrupt,
                      fmt::format("{}: its head says that it is {}: it was renamed or replaced", object.path,
                                  to_string(real)));
    if (!identity.shared_dir.empty() && identity.shared_dir != context.tier.shared_text)
        return Status(Code::corrupt, fmt::format("{}: it belongs to the shared directory {}", object.path,
                                                 identity.shared_dir));
    return head;
}

// The objects that this node looks after, of epochs that may be worth a rebuild. Those that
// were never finished are removed.
std::vector<FoundObject> own_objects(const RebuildContext& context, const Findings& findings) {
    std::vector<FoundObject> found;
    const int node = own_node(context);
    const auto directories =
        directories_of_node(context.local, context.tier, node, context.topology, context.hosts);
    if (!directories.ok()) return found;  // gather_parts has said so
    for (const auto& directory : *directories) {
        (void)remove_spares(context.local, directory, context.job);
        const auto listed = list_objects(context.local, directory, context.job);
        for (const auto& object : listed.ok() ? *listed : std::vector<ListedObject>()) {
            if (object.name.unfinished) {
                (void)context.local.remove(object.path);
                continue;
            }
            auto head = believable_head(context, object);
            if (!head.ok()) {
                log(LogLevel::warning, "a protect object on this node cannot be used: {}",
                    head.status().message());
            } else if (worth_keeping(findings, head->identity)) {
                found.push_back({node, object.path, std::move(*head)});
            }
        }
    }
    return found;
}

// Brings every node's objects to all ranks. Collective.
Status share_objects(const RebuildContext& context, const std::vector<FoundObject>& mine,
                     Findings& findings) {
    ByteWriter out;
    for (const auto& object : mine) {
        out.put_string(object.path);
        put_tables(out, object.head);
    }
    TAILRACE_ASSIGN(const auto all, context.transport.allgather(out.bytes()));
    for (int node = 0; node < context.topology.node_count(); ++node) {
        ByteReader in(all[static_cast<size_t>(context.topology.representative(node))]);
        while (in.ok() && in.remaining() > 0) {
            auto path = in.get_string(max_path_bytes);
            auto head = get_tables(in);
            if (!head.ok())
                return Status(
                    Code::transport,
                    fmt::format("the list of protect objects of node {} could not be decoded", node));
            findings.objects.push_back({node, std::move(path), std::move(*head)});
        }
    }
    return {};
}

// ---- 2. is it sound -----------------------------------------------------------------------------

Status verify_part(const RebuildContext& context, EpochKey key, const std::string& path) {
    const PartPlace place{key, path};
    return verify_parts(context.local, std::span(&place, 1), EpochReader::verify_memory_bytes);
}

// The paths of parts and objects that cannot be read back.
class Damaged {
  public:
    void check(const std::string& path, const Status& status) {
        if (status.ok()) return;
        log(LogLevel::warning, "{} is passed over: {}", path, status.message());
        paths_.push_back(path);
    }
    const std::vector<std::string>& paths() const { return paths_; }

  private:
    std::vector<std::string> paths_;
};

// Of this node's parts of the epochs that the objects could give back, whether anything is lost yet or not.
Damaged damaged_parts(const RebuildContext& context, const Findings& findings) {
    Damaged damaged;
    const auto kept = [&](const PartHeader& header) {
        return std::any_of(findings.objects.begin(), findings.objects.end(), [&](const auto& object) {
            const auto& identity = object.head.identity;
            return identity.key == header.key && identity.run_uid == header.run_uid;
        });
    };
    for (const auto& part : findings.parts)
        if (part.node == own_node(context) && kept(part.header))
            damaged.check(part.path, verify_part(context, part.header.key, part.path));
    return damaged;
}

// Of this node's objects that the plan may use.
Damaged damaged_objects(const RebuildContext& context, const RebuildPlan& plan,
                        const std::vector<FoundObject>& mine) {
    Damaged damaged;
    for (const auto& epoch : plan.epochs)
        for (const auto& set : epoch.sets)
            for (const auto& object : set.objects) {
                if (!object || object->node != own_node(context)) continue;
                const auto own = std::find_if(mine.begin(), mine.end(), [&](const FoundObject& candidate) {
                    return candidate.path == object->path;
                });
                INVARIANT(own != mine.end());
                auto reader = ObjectReader::open(context.local, own->path, own->head);
                damaged.check(own->path, reader.ok() ? (*reader)->verify() : reader.status());
            }
    return damaged;
}

// Takes what every node has found damaged out of the findings. Returns the parts among it. Collective.
Result<std::vector<KnownPart>> pass_over(const RebuildContext& context, const Damaged& mine,
                                         Findings& findings) {
    ByteWriter out;
    for (const auto& path : mine.paths()) out.put_string(path);
    TAILRACE_ASSIGN(const auto all, context.transport.allgather(out.bytes()));
    std::set<std::pair<int, std::string>> damaged;
    for (int node = 0; node < context.topology.node_count(); ++node) {
        ByteReader in(all[static_cast<size_t>(context.topology.representative(node))]);
        while (in.ok() && in.remaining() > 0) damaged.insert({node, in.get_string(max_path_bytes)});
        if (!in.ok())
            return Status(Code::transport,
                          fmt::format("the list of damaged parts of node {} could not be decoded", node));
    }
    const auto is_damaged = [&](const auto& source) { return damaged.contains({source.node, source.path}); };
    std::vector<KnownPart> parts;
    std::copy_if(findings.parts.begin(), findings.parts.end(), std::back_inserter(parts), is_damaged);
    std::erase_if(findings.parts, is_damaged);
    std::erase_if(findings.objects, is_damaged);
    return parts;
}

// ---- 3. and 4. --------------------------------------------------------------------------------

// Whether the part that was written is the one that was lost.
Result<PartHeader> check_rebuilt(const RebuildContext& context, const EpochIdentity& identity,
                                 const LostPart& lost, const std::string& path) {
    TAILRACE_ASSIGN(const auto part, captured_part(context.local, path));
    const auto& header = part.header;
    const EpochIdentity found{header.job, header.key, header.run_uid, header.rank_count, header.shared_dir};
    if (found != identity || header.stream != lost.stream)
        return Status(Code::corrupt,
                      fmt::format("{}: the rebuilt part is of rank {} of {}, not of rank {} of {}", path,
                                  header.stream.rank, to_string(header.key), lost.stream.rank,
                                  to_string(identity.key)));
    TAILRACE_TRY(verify_part(context, header.key, path));
    return header;
}

// The parts of an epoch that this node writes.
class OwnRebuilt {
  public:
    OwnRebuilt(const RebuildContext& context, const EpochRebuild& epoch) : context_(context), epoch_(epoch) {
        if (!represents(context)) return;
        const auto directory = context.tier.directory(own_node(context));
        for (size_t i = 0; i < epoch.lost.size(); ++i) {
            if (epoch.lost[i].target != own_node(context)) continue;
            PartFileName name{epoch.identity.job, epoch.identity.key, epoch.lost[i].stream.rank, true};
            const auto unfinished = join_path(directory, to_string(name));
            name.unfinished = false;
            parts_[i] = {unfinished, join_path(directory, to_string(name)), nullptr, {}};
        }
    }

    // The directory may have been lost after the session was opened.
    Status create() {
        if (!parts_.empty())
            TAILRACE_TRY(context_.local.make_directories(context_.tier.directory(own_node(context_))));
        for (auto& [lost, part] : parts_) {
            TAILRACE_ASSIGN(part.file, context_.local.open(part.unfinished, {Access::write, DirectIo::off}));
            TAILRACE_TRY(part.file->truncate(0));
            TAILRACE_TRY(reserve_if_possible(*part.file, 0, part_bytes(epoch_.lost[lost].stream)));
        }
        return {};
    }
    Status write(size_t lost, uint64_t offset, std::span<const std::byte> bytes) {
        return parts_.at(lost).file->write_at(bytes, offset);
    }
    Status check() {
        for (auto& [lost, part] : parts_) {
            if (context_.sync) TAILRACE_TRY(part.file->sync());
            TAILRACE_TRY(part.file->close());
            TAILRACE_ASSIGN(part.header,
                            check_rebuilt(context_, epoch_.identity, epoch_.lost[lost], part.unfinished));
        }
        return {};
    }
    Status name() {
        for (const auto& [lost, part] : parts_) {
            Status named = context_.local.rename(part.unfinished, part.path);
            // A directory can be there, and is nobody's captured part.
            if (named.code() == Code::invalid_argument &&
                context_.local.rename(part.path, part.path + ".in-the-way").ok())
                named = context_.local.rename(part.unfinished, part.path);
            TAILRACE_TRY(named);
        }
        if (!context_.sync || parts_.empty()) return {};
        return context_.local.sync_directory(context_.tier.directory(own_node(context_)));
    }
    void discard() {
        for (auto& [lost, part] : parts_) {
            if (part.file) (void)part.file->close();
            (void)context_.local.remove(part.unfinished);
        }
    }
    OfferedParts offered() const {
        OfferedParts offered;
        for (const auto& [lost, part] : parts_) offered.parts.push_back({part.path, part.header});
        return offered;
    }

  private:
    struct Part {
        std::string unfinished, path;
        std::unique_ptr<File> file;
        PartHeader header;
    };
    const RebuildContext& context_;
    const EpochRebuild& epoch_;
    std::map<size_t, Part> parts_;  // by index in the epoch's list
};

// Writes the lost parts of an epoch. ok if all of them are there. Collective.
Status rebuild_epoch(const RebuildContext& context, const EpochRebuild& epoch,
                     const std::vector<FoundObject>& mine, OwnRebuilt& own) {
    const int node = own_node(context);
    const auto here = [&](const Status& status) { return status.with_context(fmt::format("node {}", node)); };
    Status all = agree(context.transport, here(own.create()));
    if (all.ok()) {
        RebuildRun run(context, epoch, represents(context) ? node : -1, mine,
                       [&](size_t lost, uint64_t offset, std::span<const std::byte> bytes) {
                           return own.write(lost, offset, bytes);
                       });
        all = together(context.transport, [&] { return here(run.run()); });
    }
    if (all.ok()) all = agree(context.transport, here(own.check()));
    if (all.ok()) all = agree(context.transport, here(own.name()));
    if (!all.ok()) own.discard();
    return all;
}

void tell(const RebuildContext& context, LogLevel level, const std::string& sentence) {
    if (context.transport.rank() == 0) log(level, "{}", sentence);
}

}  // namespace

Result<std::vector<ListedObject>> list_objects(Storage& storage, const std::string& directory,
                                               const std::string& job) {
    TAILRACE_ASSIGN(const auto entries, storage.list(directory));
    std::vector<ListedObject> objects;
    for (const auto& entry : entries) {
        if (entry.is_directory) continue;
        auto name = parse_protect_file_name(entry.name);
        if (name && name->job == job) objects.push_back({join_path(directory, entry.name), std::move(*name)});
    }
    return objects;
}

// A damaged part whose rank has a sound one again must not be found first.
static void drop_replaced(const RebuildContext& context, const std::vector<KnownPart>& damaged,
                          Rebuilt& rebuilt) {
    for (const auto& part : damaged) {
        const auto replaced =
            std::find_if(rebuilt.added.begin(), rebuilt.added.end(), [&](const auto& added) {
                return added.header.key == part.header.key && added.header.run_uid == part.header.run_uid &&
                       added.header.stream.rank == part.header.stream.rank;
            });
        if (replaced == rebuilt.added.end()) continue;
        const bool same_file = replaced->node == part.node && replaced->path == part.path;
        if (!same_file && represents(context) && part.node == own_node(context))
            (void)context.local.remove(part.path);
        std::erase_if(rebuilt.known.parts, [&](const KnownPart& candidate) {
            return candidate.node == part.node && candidate.path == part.path;
        });
    }
}

// Of those that are whole, or would be.
static bool is_newest(EpochKey key, const std::vector<KnownPart>& parts,
                      const std::vector<EpochKey>& committed) {
    const auto newer = [&](EpochKey other) { return key < other; };
    const auto whole_and_newer = [&](const LocalEpoch& epoch) {
        return epoch.complete() && newer(epoch.key);
    };
    const auto captured = gather_local_epochs(parts);
    return std::none_of(committed.begin(), committed.end(), newer) &&
           std::none_of(captured.begin(), captured.end(), whole_and_newer);
}

Result<Rebuilt> rebuild_lost_parts(const RebuildContext& context, KnownParts known,
                                   const std::vector<EpochKey>& committed) {
    Rebuilt rebuilt{std::move(known), {}};
    Findings findings{rebuilt.known.parts, {}, committed};
    const auto mine = represents(context) ? own_objects(context, findings) : std::vector<FoundObject>();
    TAILRACE_TRY(share_objects(context, mine, findings));
    if (findings.objects.empty()) return rebuilt;
    TAILRACE_ASSIGN(
        const auto damaged,
        pass_over(context, represents(context) ? damaged_parts(context, findings) : Damaged(), findings));
    auto plan = plan_rebuild(findings, context.topology);
    if (!plan.epochs.empty()) {
        const auto objects = represents(context) ? damaged_objects(context, plan, mine) : Damaged();
        TAILRACE_TRY(pass_over(context, objects, findings).status());
        plan = plan_rebuild(findings, context.topology);
    }
    for (const auto& refusal : plan.refusals) tell(context, LogLevel::warning, refusal);

    for (const auto& epoch : plan.epochs) {
        OwnRebuilt written(context, epoch);
        const Status done = rebuild_epoch(context, epoch, mine, written);
        // The program would go on from an older epoch, and leave this one behind.
        if (done.code() == Code::no_space && is_newest(epoch.identity.key, rebuilt.known.parts, committed))
            return done.with_context(fmt::format(
                "{} lies protected on other nodes, but there is no room to rebuild its lost parts; "
                "make room in the node-local tier and start again, or give it up with `tailrace "
                "drain --forget`",
                to_string(epoch.identity.key)));
        if (!done.ok()) {
            tell(context, LogLevel::warning,
                 fmt::format("{} is left as it is, because its lost parts could not be rebuilt: {}",
                             to_string(epoch.identity.key), done.message()));
            continue;
        }
        TAILRACE_ASSIGN(const auto all, context.transport.allgather(encode_parts(written.offered())));
        for (int node = 0; node < context.topology.node_count(); ++node) {
            TAILRACE_ASSIGN(
                auto of_node,
                decode_parts(all[static_cast<size_t>(context.topology.representative(node))], node));
            std::move(of_node.parts.begin(), of_node.parts.end(), std::back_inserter(rebuilt.added));
        }
        tell(
            context, LogLevel::info,
            fmt::format("{}: lost captured parts were rebuilt from the data that other nodes kept, {} in all",
                        to_string(epoch.identity.key), epoch.lost.size()));
    }
    drop_replaced(context, damaged, rebuilt);
    rebuilt.known.parts.insert(rebuilt.known.parts.end(), rebuilt.added.begin(), rebuilt.added.end());
    return rebuilt;
}

}  // namespace tailrace::internal
