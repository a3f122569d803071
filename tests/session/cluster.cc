#include "session/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "doubles/strict_invariants.h"
#include "threads/worker.h"
#include "transport/in_process.h"

namespace tailrace::internal::testing_support {

std::shared_ptr<MemoryStorage> Machines::local_of(const std::string& host) {
    auto& storage = local[host];
    if (!storage) storage = std::make_shared<MemoryStorage>(local_options);
    return storage;
}

Config small_config() {
    Config config;
    config.name = "job";
    config.local_dir = "/local";
    config.shared_dir = "/shared/run one";
    config.files = 2;
    config.writers = 1;
    config.buffer_bytes = 16 * KiB;
    config.buffers = 4;
    config.block_bytes = 4096;
    config.copy_threads = 1;
    config.background_nice = 0;
    return config;
}

std::vector<std::string> hosts_of(int nodes, int per_node) {
    std::vector<std::string> hosts;
    for (int node = 0; node < nodes; ++node)
        for (int i = 0; i < per_node; ++i) hosts.push_back(fmt::format("m{}", node));
    return hosts;
}

Job job_on(Machines& machines, std::vector<std::string> hosts) {
    Job job;
    for (const auto& host : hosts) machines.local_of(host);
    job.hosts = std::move(hosts);
    job.shared = machines.shared;
    job.local = [&machines](const std::string& host) { return machines.local.at(host); };
    return job;
}

void run_job(const Job& job, const RankBody& body) {
    std::vector<std::unique_ptr<Transport>> transports;
    if (job.connect) transports = job.connect(job.hosts, job.concurrent);
    if (transports.empty()) transports = make_in_process_transports(job.hosts, job.concurrent);
    std::vector<Worker> threads;
    for (size_t r = 0; r < transports.size(); ++r)
        threads.emplace_back(fmt::format("rank {}", r), Priority{}, [&, r](const std::stop_token&) {
            std::shared_ptr<Transport> transport = std::move(transports[r]);
            const std::shared_ptr<Transport> inner = transport;
            if (job.breaks)
                transport = std::make_shared<BreakingTransport>(
                    *inner, [&](auto kind, uint64_t n) { return job.breaks(static_cast<int>(r), kind, n); });
            Config config = job.config;
            if (job.change_config) job.change_config(static_cast<int>(r), config);
            AgentDoor* const agents = job.agents ? job.agents(job.hosts[r]) : nullptr;
            auto session =
                Checkpointer::open(std::move(config), transport, job.local(job.hosts[r]), job.shared, agents);
            body(static_cast<int>(r), session.ok() ? session->get() : nullptr, session.status());
        });
    for (auto& thread : threads) thread.join();
}

std::vector<std::byte> content(uint64_t epoch, int rank, int region, uint64_t bytes) {
    std::vector<std::byte> data(bytes);
    uint64_t state = epoch * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(rank) * 1000003u +
                     static_cast<uint64_t>(region) * 10007u + 1;
    for (size_t i = 0; i < data.size(); i += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::memcpy(data.data() + i, &state, std::min(sizeof state, data.size() - i));
    }
    return data;
}

}  // namespace tailrace::internal::testing_support
