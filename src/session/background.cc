#include "session/background.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "session/collective_background.h"
#include "session/message_background.h"

namespace tailrace::internal {

Result<std::unique_ptr<Background>> Background::create(const JobContext& context, RankEpochs& epochs) {
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

bool all_ended(const RankEpochs::Entries& entries, std::span<const uint64_t> epochs) {
    return std::all_of(epochs.begin(), epochs.end(), [&](uint64_t epoch) {
        const auto found = entries.find(epoch);
        return found == entries.end() || is_final(found->second.info.state);
    });
}

bool waits_for_room(const Config& config, uint64_t sequence) {
    return config.queue_policy == QueuePolicy::wait && sequence % config.shared_every == 0;
}

FlushJob flush_job_of(const JobContext& context, const LocalEpoch& epoch) {
    FlushJob job;
    job.job = context.config.name;
    job.key = epoch.key;
    job.run_uid = epoch.run_uid;
    job.rank_count = epoch.rank_count;
    for (const auto& part : epoch.parts)
        if (part.node == context.node)
            job.streams.push_back({part.header.stream, part.path, part_header_bytes});
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
