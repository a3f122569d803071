#include "aggregate/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "catalog/catalog.h"
#include "doubles/strict_invariants.h"
#include "transport/in_process.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t part_offset = 4096;
constexpr auto longest_run = std::chrono::seconds(60);

uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

}  // namespace

// `stream_offset` is a multiple of 8.
void fill_stream(EpochKey key, uint32_t rank, uint64_t stream_offset, std::span<std::byte> target) {
    const uint64_t base = mix(key.epoch * 1000003 + key.run) ^ mix(rank + 77);
    for (size_t at = 0; at < target.size(); at += 8) {
        const uint64_t word = mix(base + stream_offset + at);
        std::memcpy(target.data() + at, &word, std::min<size_t>(8, target.size() - at));
    }
}

Cluster::Cluster(ClusterSettings settings, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared)
    : settings_(std::move(settings)), local_(std::move(local)), shared_(std::move(shared)) {
    std::vector<std::string> hosts(static_cast<size_t>(rank_count()), "machine");
    topology_ = make_topology(hosts, static_cast<uint32_t>(settings_.ranks_per_node));
    settings_.options.shared_dir = shared_dir;
    (void)local_->make_directories("/local");
    (void)shared_->make_directories(shared_dir);
}

std::vector<FlushJob> Cluster::capture(EpochKey key, const std::vector<uint64_t>& stream_bytes) {
    std::vector<FlushJob> jobs(static_cast<size_t>(settings_.nodes));
    std::vector<NodeOffer> offers(jobs.size());
    for (size_t node = 0; node < jobs.size(); ++node) {
        offers[node].node = static_cast<int>(node);
        FlushJob& flush = jobs[node];
        flush.job = job;
        flush.key = key;
        flush.run_uid = run_uid;
        flush.rank_count = static_cast<uint32_t>(rank_count());
        for (int rank : topology_.ranks_of_node[node]) {
            const auto number = static_cast<uint32_t>(rank);
            const uint64_t bytes = stream_bytes[number];
            LocalStream stream;
            stream.info = {number, bytes, bytes >= 4096 ? 4096u : 0u, number};
            stream.path = fmt::format("/local/e{}.r{}.p{}", key.epoch, key.run, rank);
            stream.path_offset = part_offset;
            std::vector<std::byte> content(bytes);
            fill_stream(key, number, 0, content);
            auto file = local_->open(stream.path, {Access::write, DirectIo::off});
            EXPECT_TRUE(file.ok() && (*file)->write_at(content, part_offset).ok());
            offers[node].streams.push_back(stream.info);
            flush.streams.push_back(std::move(stream));
        }
    }
    if (!settings_.concurrent) {
        for (size_t node = 0; node < jobs.size(); ++node) {
            const Group group =
                group_of_node(static_cast<int>(node), settings_.nodes, settings_.options.plan.file_count);
            jobs[node].offers.emplace(offers.begin() + group.first_node, offers.begin() + group.last_node);
        }
    }
    return jobs;
}

std::vector<FlushResult> Cluster::run_one(const std::vector<FlushJob>& jobs, const Hook& hook) {
    std::vector<std::vector<FlushJob>> lists;
    for (const FlushJob& flush : jobs) lists.push_back({flush});
    std::vector<FlushResult> results;
    for (auto& of_node : run(lists, hook)) {
        if (!of_node.empty()) results.push_back(of_node.front());
    }
    return results;
}

std::vector<std::vector<FlushResult>> Cluster::run(const std::vector<std::vector<FlushJob>>& jobs,
                                                   const Hook& hook) {
    const auto nodes = static_cast<size_t>(settings_.nodes);
    auto transports = make_in_process_transports(
        std::vector<std::string>(static_cast<size_t>(rank_count()), "machine"), settings_.concurrent);
    std::vector<std::unique_ptr<Aggregator>> aggregators;
    for (size_t node = 0; node < nodes; ++node) {
        Transport& transport =
            *transports[static_cast<size_t>(topology_.representative(static_cast<int>(node)))];
        auto made = Aggregator::create(settings_.options, topology_, static_cast<int>(node), transport,
                                       *local_, *shared_, [&transport] { transport.wake(); });
        if (!made.ok()) {
            ADD_FAILURE() << made.status().message();
            return {};
        }
        aggregators.push_back(std::move(made).value());
    }
    std::vector<std::vector<FlushResult>> results(nodes);
    std::vector<std::thread> threads;
    for (size_t node = 0; node < nodes; ++node) {
        threads.emplace_back([&, node] {
            const int number = static_cast<int>(node);
            results[node] = drive(number, jobs[node], *aggregators[node],
                                  *transports[static_cast<size_t>(topology_.representative(number))], hook);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& aggregator : aggregators)
        most_buffers_used_ = std::max(most_buffers_used_, aggregator->most_buffers_used());
    return results;
}

std::vector<FlushResult> Cluster::drive(int node, const std::vector<FlushJob>& jobs, Aggregator& aggregator,
                                        Transport& transport, const Hook& hook) {
    const auto deadline = std::chrono::steady_clock::now() + longest_run;
    for (const FlushJob& flush : jobs) aggregator.start(flush);
    std::vector<FlushResult> results;
    while (results.size() < jobs.size() || !aggregator.idle()) {
        if (std::chrono::steady_clock::now() > deadline) {
            ADD_FAILURE() << "node " << node << " has " << results.size() << " of " << jobs.size()
                          << " results after the longest time allowed";
            break;
        }
        bool moved = false;
        if (!hook || hook(node, aggregator)) {
            while (settings_.concurrent) {
                auto message = transport.poll();
                if (!message.ok() || !message->has_value()) break;
                EXPECT_TRUE(is_aggregator_message((**message).bytes));
                aggregator.handle((**message).source, (**message).bytes);
                moved = true;
            }
            moved = aggregator.step() || moved;
            for (FlushResult& result : aggregator.take_results()) results.push_back(std::move(result));
        }
        if (!moved) transport.wait(std::chrono::milliseconds(hook ? 1 : 200), aggregator.moving());
    }
    return results;
}

Status check_epoch(Storage& shared, EpochKey key, const std::vector<uint64_t>& stream_bytes,
                   uint32_t file_count) {
    TAILRACE_ASSIGN(auto listed, list_shared(shared, Cluster::shared_dir, Cluster::job));
    const SharedEpochFiles* files = nullptr;
    for (const auto& candidate : listed)
        if (candidate.key == key) files = &candidate;
    if (files == nullptr) return Status(Code::not_found, to_string(key) + " is not there");
    if (files->files.size() != file_count)
        return Status(Code::not_found,
                      fmt::format("{} files instead of {}", files->files.size(), file_count));
    for (const auto& file : files->files)
        if (!file.name.unfinished)
            return Status(Code::failed_state, file.path + " has its final name already");
    TAILRACE_ASSIGN(auto epoch, load_shared_epoch(shared, *files));
    if (epoch.streams.size() != stream_bytes.size())
        return Status(Code::failed_state, fmt::format("{} streams", epoch.streams.size()));
    for (const StreamMap& stream : epoch.streams) {
        const uint64_t bytes = stream_bytes[stream.info.rank];
        std::vector<std::byte> expected(bytes), found(bytes);
        fill_stream(key, stream.info.rank, 0, expected);
        for (const StreamExtent& extent : stream.extents) {
            TAILRACE_ASSIGN(auto file, shared.open(epoch.paths[extent.file], {Access::read, DirectIo::off}));
            TAILRACE_ASSIGN(size_t read,
                            file->read_at(std::span(found).subspan(extent.stream_offset, extent.bytes),
                                          extent.file_offset));
            if (read != extent.bytes)
                return Status(Code::failed_state, "an extent is behind the end of its file");
        }
        if (stream.info.stream_bytes != bytes || found != expected)
            return Status(Code::failed_state, fmt::format("rank {} has wrong bytes", stream.info.rank));
    }
    return Status();
}

}  // namespace tailrace::internal
