// Cluster: N nodes in one process, each an aggregator driven by a thread of its own over the in-process
// transport, as a node agent would drive it. What ranks "captured" follows from (epoch, rank, offset), so
// that what is read back can be checked without keeping it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aggregate/aggregator.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct ClusterSettings {
    int nodes = 4;
    int ranks_per_node = 1;
    AggregatorOptions options;  // shared_dir is set by the cluster
    bool concurrent = true;     // false: jobs carry the offers and no message may be sent
};
// Few small chunks and buffers.
inline ClusterSettings small(int nodes, uint32_t files) {
    ClusterSettings settings;
    settings.nodes = nodes;
    settings.options.plan.file_count = files;
    settings.options.plan.chunk_bytes = 4096;
    settings.options.plan.block_bytes = 512;
    settings.options.writers = 2;
    settings.options.buffers = 4;
    return settings;
}

class Cluster {
  public:
    static constexpr uint64_t run_uid = 0x5eed;
    static constexpr const char* job = "test";
    static constexpr const char* shared_dir = "/shared";

    Cluster(ClusterSettings settings, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared);

    int rank_count() const { return settings_.nodes * settings_.ranks_per_node; }
    const Topology& topology() const { return topology_; }

    // Writes every rank's stream of `stream_bytes[rank]` to the local storage; one job per node.
    std::vector<FlushJob> capture(EpochKey key, const std::vector<uint64_t>& stream_bytes);

    // What a node's thread does beside driving its aggregator. Called before every step; while it returns
    // false the node does not move.
    using Hook = std::function<bool(int node, Aggregator&)>;

    // jobs[node] are started in order, then all nodes run until each has as many results as jobs or 60 s have
    // passed (which is a failure of the test, with what every node still has). The aggregators end
    // afterwards.
    std::vector<std::vector<FlushResult>> run(const std::vector<std::vector<FlushJob>>& jobs,
                                              const Hook& hook = nullptr);
    // The same epoch on all nodes.
    std::vector<FlushResult> run_one(const std::vector<FlushJob>& jobs, const Hook& hook = nullptr);

    // Of all nodes and runs.
    size_t most_buffers_used() const { return most_buffers_used_; }

  private:
    std::vector<FlushResult> drive(int node, const std::vector<FlushJob>& jobs, Aggregator& aggregator,
                                   Transport& transport, const Hook& hook);

    ClusterSettings settings_;
    Topology topology_;
    std::shared_ptr<Storage> local_, shared_;
    size_t most_buffers_used_ = 0;
};

// Fills or checks the bytes of a rank's stream from `stream_offset` on.
void fill_stream(EpochKey key, uint32_t rank, uint64_t stream_offset, std::span<std::byte> target);

// Ok when the epoch is in the directory as exactly `file_count` files, none with its final name yet,
// complete, and every stream of `stream_bytes` reads back right; else what is wrong. not_found when it is not
// there or incomplete; failed_state, and nothing else, when it claims to be complete and yet returns wrong
// bytes.
Status check_epoch(Storage& shared, EpochKey key, const std::vector<uint64_t>& stream_bytes,
                   uint32_t file_count);

}  // namespace tailrace::internal
