#include "protect/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/crc32c.h"
#include "format/hostile.h"
#include "transport/in_process.h"

namespace tailrace::internal::testing_support {

JobShape job_on_hosts(std::vector<std::string> hosts) {
    JobShape job;
    job.topology = make_topology(hosts, 0);
    job.hosts = std::move(hosts);
    return job;
}

JobShape job_of(const std::vector<int>& ranks) {
    std::vector<std::string> hosts;
    for (size_t node = 0; node < ranks.size(); ++node)
        for (int i = 0; i < ranks[node]; ++i) hosts.push_back("m" + std::to_string(node));
    return job_on_hosts(std::move(hosts));
}

std::vector<std::string> domains_of(const JobShape& job) {
    std::vector<std::string> domains;
    for (int node = 0; node < job.topology.node_count(); ++node)
        domains.push_back(job.hosts[static_cast<size_t>(job.topology.representative(node))]);
    return domains;
}

World::World() : tier_(local_tier("local", "/shared", job_name)) {}

std::shared_ptr<MemoryStorage> World::storage(const std::string& host) {
    auto& storage = storages_[host];
    if (!storage) storage = std::make_shared<MemoryStorage>();
    return storage;
}

EpochIdentity World::identity(const JobShape& job, EpochKey key, uint64_t run_uid) const {
    return {job_name, key, run_uid, static_cast<uint32_t>(job.hosts.size()), tier_.shared_text};
}

std::string World::path(int node, EpochKey key, uint32_t rank) const {
    return join_path(directory(node), to_string(PartFileName{job_name, key, rank, false}));
}

void World::capture(const JobShape& job, EpochKey key, uint64_t run_uid, const std::vector<uint64_t>& bytes,
                    Random& random) {
    auto& captured = captured_[{key, run_uid}];
    captured.clear();
    for (uint32_t rank = 0; rank < job.hosts.size(); ++rank) {
        PartManifest manifest;
        manifest.rank = rank;
        manifest.rank_count = static_cast<uint32_t>(job.hosts.size());
        manifest.has_checksums = true;
        Region region;
        region.name = "data";
        region.bytes = bytes[rank];
        manifest.regions.push_back(region);
        auto stream = make_stream(manifest);
        // Other content for every epoch and rank, with its own checksums.
        auto& laid_out = stream.manifest.regions[0];
        const auto data = std::span(stream.bytes).subspan(laid_out.stream_offset, laid_out.bytes);
        for (auto& byte : data) byte = static_cast<std::byte>(random());
        laid_out.block_crcs.clear();
        for (uint64_t at = 0; at < data.size(); at += check_block_bytes)
            laid_out.block_crcs.push_back(
                crc32c(data.subspan(at, std::min<uint64_t>(check_block_bytes, data.size() - at))));
        const auto table = encode(stream.manifest);
        std::copy(table.begin(), table.end(), stream.bytes.begin());

        PartHeader header;
        header.job = job_name;
        header.key = key;
        header.run_uid = run_uid;
        header.rank_count = static_cast<uint32_t>(job.hosts.size());
        header.shared_dir = tier_.shared_text;
        header.stream = stream.info();
        Captured part{job.topology.node_of_rank[rank], header.stream, encode(header)};
        part.part.insert(part.part.end(), stream.bytes.begin(), stream.bytes.end());
        auto local = storage(job.hosts[rank]);
        EXPECT_TRUE(local->make_directories(directory(part.node)).ok());
        auto file = local->open(path(part.node, key, rank), {Access::write, DirectIo::off});
        EXPECT_TRUE(file.ok() && (*file)->write_at(part.part, 0).ok());
        captured.push_back(std::move(part));
    }
}

ProtectWork World::work(const JobShape& job, EpochKey key, uint64_t run_uid, int node) const {
    ProtectWork work;
    work.identity = identity(job, key, run_uid);
    work.parts.resize(static_cast<size_t>(job.topology.node_count()));
    const auto& captured = captured_.at({key, run_uid});
    for (uint32_t rank = 0; rank < captured.size(); ++rank) {
        work.parts[static_cast<size_t>(captured[rank].node)].push_back(captured[rank].stream);
        if (captured[rank].node == node) work.paths.emplace_back(rank, path(node, key, rank));
    }
    return work;
}

std::vector<Status> World::run(const JobShape& job, bool concurrent, const Body& body) {
    auto transports = make_in_process_transports(job.hosts, concurrent);
    std::vector<Status> outcomes(job.hosts.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < job.hosts.size(); ++rank)
        threads.emplace_back([&, rank] { outcomes[rank] = body(static_cast<int>(rank), *transports[rank]); });
    for (auto& thread : threads) thread.join();
    return outcomes;
}

Status World::protect(const JobShape& job, const Sets& sets, EpochKey key, uint64_t run_uid) {
    for (const auto& host : job.hosts) (void)storage(host);
    const auto outcomes = run(job, false, [&](int rank, Transport& transport) {
        const int node = job.topology.node_of_rank[static_cast<size_t>(rank)];
        auto local = storages_.at(job.hosts[static_cast<size_t>(rank)]);
        return protect_together(transport, *local, job.topology, sets, work(job, key, run_uid, node),
                                {directory(node), false, 0})
            .status;
    });
    for (const auto& outcome : outcomes) EXPECT_EQ(outcome.to_string(), outcomes.front().to_string());
    return outcomes.front();
}

Rebuilt World::rebuild(const JobShape& job, const std::vector<EpochKey>& committed,
                       std::vector<Status>* statuses) {
    for (int node = 0; node < job.topology.node_count(); ++node)
        EXPECT_TRUE(storage(job.hosts[static_cast<size_t>(job.topology.representative(node))])
                        ->make_directories(directory(node))
                        .ok());
    std::vector<Rebuilt> found(job.hosts.size());
    const auto outcomes = run(job, false, [&](int rank, Transport& transport) -> Status {
        const int node = job.topology.node_of_rank[static_cast<size_t>(rank)];
        auto& local = *storages_.at(job.hosts[static_cast<size_t>(rank)]);
        OfferedParts offered;
        if (job.topology.representative(node) == rank) {
            TAILRACE_ASSIGN(const auto directories,
                            directories_of_node(local, tier_, node, job.topology, job.hosts));
            for (const auto& listed : directories) {
                TAILRACE_ASSIGN(auto listing, list_tier(local, tier_, listed, job_name));
                std::move(listing.parts.begin(), listing.parts.end(), std::back_inserter(offered.parts));
            }
        }
        TAILRACE_ASSIGN(const auto all, transport.allgather(encode_parts(offered)));
        KnownParts known;
        for (int other = 0; other < job.topology.node_count(); ++other) {
            TAILRACE_ASSIGN(
                auto of_node,
                decode_parts(all[static_cast<size_t>(job.topology.representative(other))], other));
            std::move(of_node.parts.begin(), of_node.parts.end(), std::back_inserter(known.parts));
        }
        const RebuildContext context{transport, local, tier_, job.topology, job.hosts, job_name, false};
        TAILRACE_ASSIGN(found[static_cast<size_t>(rank)],
                        rebuild_lost_parts(context, std::move(known), committed));
        return {};
    });
    if (statuses != nullptr)
        *statuses = outcomes;
    else
        for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.to_string();
    for (const auto& of_rank : found) {
        EXPECT_EQ(of_rank.added.size(), found.front().added.size());
        EXPECT_EQ(of_rank.known.parts.size(), found.front().known.parts.size());
    }
    return found.front();
}

std::string World::check(const Rebuilt& rebuilt, const JobShape& job, EpochKey key, uint64_t run_uid,
                         uint32_t rank_count) {
    const auto& captured = captured_.at({key, run_uid});
    for (const auto& epoch : gather_local_epochs(rebuilt.known.parts)) {
        if (epoch.key != key || epoch.run_uid != run_uid) continue;
        if (epoch.rank_count != rank_count || !epoch.complete())
            return fmt::format("only {} of {} parts are known", epoch.parts.size(), rank_count);
        for (const auto& part : epoch.parts) {
            const auto& host = job.hosts[static_cast<size_t>(job.topology.representative(part.node))];
            const auto& right = captured[part.header.stream.rank];
            const auto bytes = read(host, part.path);
            if (part.header.stream != right.stream) return "a part's table is another one";
            if (bytes != right.part)
                return fmt::format("the part of rank {} has other bytes", part.header.stream.rank);
        }
        return {};
    }
    return "no part is known";
}

Bytes World::read(const std::string& host, const std::string& path) {
    auto file = storage(host)->open(path, {Access::read, DirectIo::off});
    if (!file.ok()) return {};
    Bytes bytes(*(*file)->size());
    EXPECT_TRUE((*file)->read_at(bytes, 0).ok());
    return bytes;
}

void World::change(const std::string& host, const std::string& path,
                   const std::function<void(Bytes&)>& change) {
    auto bytes = read(host, path);
    change(bytes);
    auto file = storage(host)->open(path, {Access::write, DirectIo::off});
    ASSERT_TRUE(file.ok() && (*file)->truncate(0).ok() && (*file)->write_at(bytes, 0).ok());
}

std::vector<std::string> World::files(const std::string& host, int node) {
    std::vector<std::string> names;
    const auto entries = storage(host)->list(directory(node));
    if (entries.ok())
        for (const auto& entry : *entries) names.push_back(entry.name);
    return names;
}

}  // namespace tailrace::internal::testing_support
