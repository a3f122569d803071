// World: machines with node-local storages, and jobs whose ranks are threads on them. It captures epochs,
// loses machines, and looks whether a later job finds every part as it was.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/local_tier.h"
#include "doubles/memory_storage.h"
#include "format/samples.h"
#include "protect/protect_together.h"
#include "protect/rebuild.h"
#include "protect/sets.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal::testing_support {

// The ranks of a job: which machine each is on.
struct JobShape {
    std::vector<std::string> hosts;
    Topology topology;
};
// ranks[n] ranks on machine "m<n>". Every node has one at least.
JobShape job_of(const std::vector<int>& ranks);
JobShape job_on_hosts(std::vector<std::string> hosts);

class World {
  public:
    World();

    std::shared_ptr<MemoryStorage> storage(const std::string& host);
    void lose(const std::string& host) { storages_.erase(host); }

    // Captures an epoch: rank r saves a region of bytes[r] random bytes.
    void capture(const JobShape& job, EpochKey key, uint64_t run_uid, const std::vector<uint64_t>& bytes,
                 Random& random);
    EpochIdentity identity(const JobShape& job, EpochKey key, uint64_t run_uid) const;
    ProtectWork work(const JobShape& job, EpochKey key, uint64_t run_uid, int node) const;

    // Runs `body` on every rank. Returns what each returned.
    using Body = std::function<Status(int rank, Transport& transport)>;
    static std::vector<Status> run(const JobShape& job, bool concurrent, const Body& body);

    // Protects it in collective calls; the status is that of every rank.
    Status protect(const JobShape& job, const Sets& sets, EpochKey key, uint64_t run_uid);
    // Opens a job on what is there, and rebuilds.
    // `statuses`: the outcomes by rank; without it all must be ok.
    Rebuilt rebuild(const JobShape& job, const std::vector<EpochKey>& committed = {},
                    std::vector<Status>* statuses = nullptr);
    // Whether the job knows a part of every rank, and each is byte for byte what was captured.
    std::string check(const Rebuilt& rebuilt, const JobShape& job, EpochKey key, uint64_t run_uid,
                      uint32_t rank_count);

    const LocalTier& tier() const { return tier_; }
    std::string directory(int node) const { return tier_.directory(node); }
    std::string path(int node, EpochKey key, uint32_t rank) const;
    void change(const std::string& host, const std::string& path, const std::function<void(Bytes&)>& change);
    Bytes read(const std::string& host, const std::string& path);
    std::vector<std::string> files(const std::string& host, int node);

    static constexpr auto job_name = "job";

  private:
    struct Captured {
        int node = 0;
        StreamInfo stream;
        Bytes part;
    };
    const LocalTier tier_;
    std::map<std::string, std::shared_ptr<MemoryStorage>> storages_;
    std::map<std::pair<EpochKey, uint64_t>, std::vector<Captured>> captured_;  // by rank
};

std::vector<std::string> domains_of(const JobShape& job);  // of each node: its host

}  // namespace tailrace::internal::testing_support
