#include "background/background.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "background/collective_background.h"
#include "background/message_background.h"
#include "background/process_background.h"
#include "base/bytes.h"
#include "base/log.h"

namespace tailrace::internal {

namespace {

// Whether the agents of all nodes carry this session's epochs, and which agent of their world each node
// has. Collective; the same on every rank.
Result<std::optional<std::vector<uint32_t>>> find_carriers(const JobContext& context,
                                                           const Carriers& carriers) {
    const auto place =
        carriers.link != nullptr && *carriers.link != nullptr ? (*carriers.link)->carries() : std::nullopt;
    ByteWriter out;
    out.put(static_cast<uint8_t>(context.config.agent_carries));
    out.put(static_cast<uint8_t>(place.has_value()));
    out.put(place.value_or(CarrierPlace{}).world);
    out.put(place.value_or(CarrierPlace{}).agent);
    TAILRACE_ASSIGN(const auto all, context.transport->allgather(out.bytes()));
    std::optional<std::vector<uint32_t>> agent_of_node(std::in_place);
    std::optional<uint64_t> world;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        ByteReader in(all[rank]);
        const auto wish = static_cast<AgentCarries>(in.get<uint8_t>());
        const bool carries = in.get<uint8_t>() != 0;
        const auto its_world = in.get<uint64_t>();
        const auto agent = in.get<uint32_t>();
        if (!in.at_end())
            return Status(Code::transport,
                          fmt::format("the message of rank {} about its agent could not be decoded", rank));
        const bool wanted = wish == AgentCarries::yes ||
                            (wish == AgentCarries::automatic && !context.transport->concurrent());
        if (!wanted) agent_of_node.reset();
        const int node = context.topology.node_of_rank[rank];
        if (context.topology.representative(node) != static_cast<int>(rank) || !agent_of_node) continue;
        // Nodes are numbered by their representatives.
        if (carries && its_world == world.value_or(its_world))
            agent_of_node->push_back(agent);
        else
            agent_of_node.reset();
        world = its_world;
    }
    return agent_of_node;
}

}  // namespace

Result<std::unique_ptr<Background>> Background::create(const JobContext& context, RankEpochs& epochs,
                                                       const Carriers& carriers) {
    TAILRACE_ASSIGN(auto agent_of_node, find_carriers(context, carriers));
    if (agent_of_node) {
        auto carried = ProcessBackground::create(context, epochs, carriers, std::move(*agent_of_node));
        if (carried.ok() && carriers.link != nullptr) carriers.link->reset();
        if (carried.ok()) return carried;
        say_not_carried(context, carried.status());
    }
    std::unique_ptr<Background> background;
    const Status mine = with_threads([&]() -> Status {
        if (context.transport->concurrent()) {
            TAILRACE_ASSIGN(background, MessageBackground::create(context, epochs));
        } else {
            TAILRACE_ASSIGN(background, CollectiveBackground::create(context, epochs));
        }
        return {};
    });
    TAILRACE_TRY(agree(*context.transport, mine));
    return background;
}

bool all_ended(const RankEpochs::Entries& entries, EpochRange epochs) {
    return std::all_of(entries.lower_bound(epochs.first), entries.upper_bound(epochs.last),
                       [](const auto& entry) { return is_final(entry.second.info.state); });
}

bool all_ended(const RankEpochs::Entries& entries) {
    return all_ended(entries, {0, UINT64_MAX});
}

bool has_ended(const RankEpochs::Entries& entries, EpochKey key) {
    const auto found = entries.find(key.epoch);
    return found == entries.end() || found->second.info.run != key.run || is_final(found->second.info.state);
}

bool waits_for_room(const Config& config, uint64_t sequence) {
    return config.queue_policy == QueuePolicy::wait && sequence % config.shared_every == 0;
}

bool has_room(const Config& config, const RankEpochs::Entries& entries) {
    return RankEpochs::unfinished_for_shared(entries) < std::max(1u, config.queue_epochs);
}

void say_not_carried(const JobContext& context, const Status& why) {
    if (!context.is_root()) return;
    log(LogLevel::warning, "the agent processes do not carry this session's epochs: {}", why.message());
}

FlushJob flush_job_of(const JobContext& context, const LocalEpoch& epoch) {
    FlushJob job;
    job.job = context.config.name;
    job.key = epoch.key;
    job.run_uid = epoch.run_uid;
    job.rank_count = epoch.rank_count;
    for (const auto& part : epoch.parts)
        if (part.node == context.node)
            job.streams.push_back({shared_stream(part.header), part.path, part_header_bytes});
    return job;
}

Status with_threads(const std::function<Status()>& work) {
    try {
        return work();
    } catch (const std::system_error& error) {
        return Status(
            Code::out_of_memory,
            fmt::format("starting the threads of the background: {}; nothing was opened", error.what()));
    }
}

}  // namespace tailrace::internal
