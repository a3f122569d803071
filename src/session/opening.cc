#include "session/opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "base/units.h"
#include "capture/file_sets.h"
#include "config/failure_domain.h"
#include "config/signal_names.h"
#include "format/codec.h"
#include "format/redundancy.h"
#include "storage/lock_pieces.h"
#include "threads/awake_time.h"
#include "threads/executor.h"
#include "when/halt_file.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_text_bytes = 1 << 20;
constexpr size_t max_notes = 3;  // about sets, in the log

// The key at which two texts of shared_settings() first differ. A text looks like "a=1 b=2
// shared_dir=/some where", and only the last value may hold spaces.
std::string first_different_key(std::string_view a, std::string_view b) {
    const size_t at =
        static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    size_t key = a.rfind(" shared_dir=", at);
    if (key == std::string_view::npos) key = at == 0 ? at : a.rfind(' ', at - 1);
    key = key == std::string_view::npos || a[key] != ' ' ? 0 : key + 1;
    const auto rest = a.substr(key);
    return std::string(rest.substr(0, rest.find('=')));
}

// A program that was killed disappears a moment before its locks do. So a busy directory is tried
// again. Agents of nodes that this job does not have may be finishing epochs of an earlier run. They
// hold the lock together, and are waited for much longer. An agent that carried the killed program's
// epochs lets go a moment after it has noticed. If it waits for agents of other nodes, that may take as long
// as they are given. While the machine sleeps nobody lets go, so that time does not count.
Result<std::unique_ptr<DirectoryLock>> lock_patiently(const Opening& opening, Storage& storage,
                                                      const std::string& directory) {
    using namespace std::chrono_literals;
    constexpr SteadyClock::duration longest = 60s;
    const SteadyClock::duration usual = opening.agent_is_late ? longest : opening.agent ? 10s : 1s;
    AwakeTime waited(SteadyClock::now());
    bool said = false;
    while (true) {
        auto lock = storage.lock_directory(directory);
        if (lock.ok() || lock.status().code() != Code::busy) return lock;
        const bool drains = storage.lock_directory(directory, LockKind::shared).ok();
        const SteadyClock::duration patience = drains ? longest : usual;
        if (waited.look(SteadyClock::now()) >= patience) return lock;
        if (drains && !std::exchange(said, true))
            log(LogLevel::info, "waiting for agents that finish epochs of an earlier run in {}", directory);
        sleep_for(20ms);
    }
}

Status ask_agent(Opening& opening, AgentDoor* agents) {
    const auto& context = opening.context;
    const auto use = context.config.agent;
    if (use == AgentUse::none || !context.is_representative()) return {};
    auto link = agents != nullptr ? agents->ask(context.config.local_dir, context.config.shared_dir)
                                  : Status(Code::not_found, "this program cannot reach agents");
    if (link.ok()) {
        opening.agent = std::move(*link);
        return {};
    }
    opening.agent_is_late = link.status().code() == Code::busy;
    if (use == AgentUse::required)
        return Status(
            Code::failed_state,
            fmt::format("agent = required, but node {} ({}) has none: {}; start `tailrace agent` there, "
                        "or set agent = auto",
                        context.node, context.hosts[static_cast<size_t>(context.rank())],
                        link.status().message()));
    if (link.status().code() != Code::not_found)
        log(LogLevel::warning, "the agent process of node {} is not used: {}", context.node,
            link.status().message());
    return {};
}

// Learns hosts and settings of all ranks. Collective; the outcome is the same on every rank without
// agreeing, because all decide by the same data.
Status learn_ranks(JobContext& context) {
    ByteWriter out;
    out.put_string(shared_settings(context.config));
    out.put_string(context.transport->host());
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(out.bytes()));
    std::string settings_of_rank_0;
    Status different;
    for (size_t r = 0; r < all.size(); ++r) {
        ByteReader in(all[r]);
        const auto settings = in.get_string(max_text_bytes);
        context.hosts.push_back(in.get_string(max_text_bytes));
        if (!in.at_end())
            return Status(Code::transport, fmt::format("the settings of rank {} could not be decoded", r));
        if (r == 0) settings_of_rank_0 = settings;
        if (!different.ok() || settings == settings_of_rank_0) continue;
        const auto key = first_different_key(settings_of_rank_0, settings);
        different = Status(Code::invalid_argument,
                           fmt::format("setting {} must be the same on all ranks, but ranks 0 and {} differ; "
                                       "nothing was opened (rank 0: {}; rank {}: {})",
                                       key, r, settings_of_rank_0, r, settings));
    }
    TAILRACE_TRY(different);
    context.topology = make_topology(context.hosts, context.config.ranks_per_node);
    context.node = context.topology.node_of_rank[static_cast<size_t>(context.rank())];
    context.tier = local_tier(context.config.local_dir, context.config.shared_dir, context.config.name);
    return {};
}

// Learns every node's failure domain, and makes the sets. Collective; the outcome is the same on
// every rank, because all decide by the same data.
Status make_protection_sets(JobContext& context) {
    TAILRACE_ASSIGN(const auto redundancy, parse_redundancy(context.config.redundancy));
    if (redundancy.scheme == Scheme::none) return {};
    std::string mine;
    if (context.is_representative()) {
        const auto& host = context.hosts[static_cast<size_t>(context.rank())];
        const auto domain = find_failure_domain(context.config.failure_domain, host);
        if (!domain.ok())
            log(LogLevel::warning, "the failure domain of {} is taken to be the machine: {}", host,
                domain.status().message());
        mine = domain.ok() ? *domain : host;
    }
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(std::as_bytes(std::span(mine))));
    auto& domains = context.domains;
    for (int node = 0; node < context.node_count(); ++node) {
        const auto& bytes = all[static_cast<size_t>(context.topology.representative(node))];
        domains.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    context.sets = make_sets(domains, redundancy, context.config.redundancy_set);
    std::set<std::string> notes;
    for (const auto& set : context.sets.sets)
        if (context.is_root() && !set.note.empty() && notes.insert(set.note).second &&
            notes.size() <= max_notes)
            log(LogLevel::warning, "redundancy = {}: {}", context.config.redundancy, set.note);
    return {};
}

Status take_shared_directory(Opening& opening) {
    auto& context = opening.context;
    if (context.rank() != 0) return {};
    const auto& directory = context.config.shared_dir;
    TAILRACE_TRY(context.shared->make_directories(directory).with_context("making the shared directory"));
    auto lock = lock_patiently(opening, *context.shared, directory);
    if (lock.ok())
        context.shared_lock = std::move(*lock);
    else if (lock.status().code() == Code::busy)
        return lock.status().with_context(
            fmt::format("another session uses {} (one session at a time per directory)", directory));
    else if (lock.status().code() == Code::unsupported)
        log(LogLevel::info, "{} cannot be locked, so a second session on it would not be noticed: {}",
            directory, lock.status().message());
    else
        return lock.status();
    TAILRACE_ASSIGN(opening.inventory, clean_shared(*context.shared, directory, context.config.name));
    if (const Status cleared = clear_halt_remains(*context.shared, directory); !cleared.ok())
        log(LogLevel::warning, "what is left of a halt file stays in {}: {}", directory, cleared.message());
    context.file_rights = usual_file_rights();
    context.block_bytes = context.config.block_bytes;
    if (context.block_bytes == 0) {
        TAILRACE_ASSIGN(const auto space, context.shared->space(directory));
        context.block_bytes = space.block_bytes;
        // If the file system's blocks do not divide the buffers, take the largest that do.
        while (context.block_bytes > 512 && context.config.buffer_bytes % context.block_bytes != 0)
            context.block_bytes /= 2;
    }
    if (context.config.buffer_bytes == 0 || context.config.buffer_bytes % context.block_bytes != 0)
        return Status(Code::invalid_argument,
                      fmt::format("buffer_bytes = {} is not a multiple of block_bytes = {}",
                                  context.config.buffer_bytes, context.block_bytes));
    context.stripe_align =
        context.config.stripe_align != 0 ? context.config.stripe_align : lock_piece_bytes_of(directory);
    context.stripe_align = align_up(context.stripe_align, context.block_bytes);
    return {};
}

Status watch_signals(JobContext& context) {
    TAILRACE_ASSIGN(const auto numbers, parse_signals(context.config.stop_signals));
    if (numbers.empty()) return {};
    TAILRACE_ASSIGN(auto signals, StopSignals::watch(numbers));
    context.signals = std::make_shared<StopSignals>(std::move(signals));
    return {};
}

// Other nodes' directories, which lie here too, may be in use. This session has not locked them.
void remove_left_file_sets(Storage& local, const std::string& directory, const std::string& own,
                           bool own_is_locked) {
    std::unique_ptr<DirectoryLock> lock;
    if (directory != own) {
        auto locked = local.lock_directory(directory);
        if (locked.ok()) lock = std::move(*locked);
    }
    if (lock != nullptr || (directory == own && own_is_locked)) remove_file_sets(local, directory);
}

Status take_local_directory(Opening& opening, uint32_t& greatest_run) {
    auto& context = opening.context;
    TAILRACE_TRY(watch_signals(context));
    if (!context.is_representative()) return {};
    const auto own = context.tier.directory(context.node);
    TAILRACE_TRY(context.local->make_directories(own).with_context("making the node-local directory"));
    auto lock = lock_patiently(opening, *context.local, own);
    if (lock.ok())
        opening.local_lock = std::move(*lock);
    else if (lock.status().code() == Code::busy)
        return lock.status().with_context(
            fmt::format("another session uses {} (one session at a time)", own));
    else if (lock.status().code() == Code::unsupported)
        log(LogLevel::info, "{} cannot be locked, so a second session on it would not be noticed: {}", own,
            lock.status().message());
    else
        return lock.status();
    TAILRACE_ASSIGN(const auto directories, directories_of_node(*context.local, context.tier, context.node,
                                                                context.topology, context.hosts));
    for (const auto& directory : directories) {
        remove_left_file_sets(*context.local, directory, own, opening.local_lock != nullptr);
        TAILRACE_ASSIGN(const auto listing,
                        list_tier(*context.local, context.tier, directory, context.config.name));
        for (const auto& part : listing.parts) {
            greatest_run = count_run(greatest_run, part.header.key.run);
            opening.old_parts.push_back({context.node, part.path, part.header});
        }
        for (const auto& leftover : listing.leftovers) {
            const auto name = part_file_name(leftover);
            if (name) greatest_run = count_run(greatest_run, name->key.run);
            if (!name || !name->unfinished) {
                log(LogLevel::warning, "a captured part cannot be used and is left as it is: {}",
                    leftover.why.message());
                continue;
            }
            auto removed = context.local->remove(leftover.path);
            if (!removed.ok())
                log(LogLevel::warning, "an unfinished captured part could not be removed: {}",
                    removed.message());
        }
    }
    return {};
}

void put(ByteWriter& out, const SharedInventory& inventory) {
    out.put(static_cast<uint8_t>(inventory.newest_committed.has_value()));
    put(out, inventory.newest_committed.value_or(EpochKey{}));
    for (const auto* keys : {&inventory.committed, &inventory.unclean}) {
        out.put(static_cast<uint64_t>(keys->size()));
        for (const auto& key : *keys) put(out, key);
    }
}

SharedInventory get_inventory(ByteReader& in) {
    SharedInventory inventory;
    const bool any = in.get<uint8_t>() != 0;
    const EpochKey key = get_key(in);
    if (any) inventory.newest_committed = key;
    for (auto* keys : {&inventory.committed, &inventory.unclean}) {
        const auto count = in.get_count(epoch_key_bytes);
        for (uint64_t i = 0; i < count; ++i) keys->push_back(get_key(in));
    }
    return inventory;
}

Status agree_on_run(Opening& opening, uint32_t greatest_local_run) {
    auto& context = opening.context;
    ByteWriter out;
    out.put(std::max(greatest_local_run, opening.inventory.greatest_run));
    TAILRACE_ASSIGN(const auto runs, context.transport->allgather(out.bytes()));
    uint32_t greatest = 0;
    for (const auto& bytes : runs) {
        ByteReader in(bytes);
        greatest = count_run(greatest, in.get<uint32_t>());
        if (!in.at_end())
            return Status(Code::transport, "a rank's message about earlier runs could not be decoded");
    }
    context.run = greatest + 1;

    ByteWriter mine;
    mine.put(random_number());
    mine.put(context.block_bytes);
    mine.put(context.stripe_align);
    mine.put(context.file_rights);
    put(mine, opening.inventory);
    TAILRACE_ASSIGN(const auto from_root, context.transport->broadcast(0, mine.bytes()));
    ByteReader in(from_root);
    context.run_uid = in.get<uint64_t>();
    context.block_bytes = in.get<uint64_t>();
    context.stripe_align = in.get<uint64_t>();
    context.file_rights = in.get<uint32_t>();
    opening.inventory = get_inventory(in);
    if (!in.at_end())
        return Status(Code::transport, "rank 0's message about the shared directory could not be decoded");
    return {};
}

}  // namespace

Result<Opening> open_directories(Config config, std::shared_ptr<Transport> transport,
                                 std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared,
                                 AgentDoor* agents) {
    Opening opening;
    auto& context = opening.context;
    context.config = std::move(config);
    context.transport = std::move(transport);
    context.local = std::move(local);
    context.shared = std::move(shared);
    TAILRACE_TRY(learn_ranks(context));
    TAILRACE_TRY(make_protection_sets(context));
    TAILRACE_TRY(agree(*context.transport, ask_agent(opening, agents)));
    TAILRACE_TRY(agree(*context.transport, take_shared_directory(opening)));
    uint32_t greatest_local_run = 0;
    TAILRACE_TRY(agree(*context.transport, take_local_directory(opening, greatest_local_run)));
    TAILRACE_TRY(agree_on_run(opening, greatest_local_run));
    if (opening.agent) opening.agent->opened();
    context.points = ArrayPoints(context.run_uid);
    return opening;
}

Result<SharedInventory> look_into_shared(const JobContext& context) {
    ByteWriter mine;
    const Status cleaned = catching([&]() -> Status {
        if (!context.is_root()) return {};
        TAILRACE_ASSIGN(const auto inventory,
                        clean_shared(*context.shared, context.config.shared_dir, context.config.name));
        put(mine, inventory);
        return {};
    });
    TAILRACE_TRY(agree(*context.transport, cleaned));
    TAILRACE_ASSIGN(const auto from_root, context.transport->broadcast(0, mine.bytes()));
    ByteReader in(from_root);
    auto inventory = get_inventory(in);
    if (in.at_end()) return inventory;
    return Status(Code::transport, "rank 0's message about the shared directory could not be decoded");
}

}  // namespace tailrace::internal
