// Cluster: ranks as threads of one process, each with a session of its own, over in-process transports and
// storages in memory. For tests of the checkpointer as a whole.
//
// Machines have one node-local storage each, the shared storage is one for all. A cluster can be ended and
// another one, with other ranks, begun on the same storages, as a job that is started again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "session/checkpointer.h"
#include "transport/breaking_transport.h"

namespace tailrace::internal::testing_support {

// What outlives a job: the machines' node-local storages by host name, and the shared storage.
struct Machines {
    std::shared_ptr<MemoryStorage> shared = std::make_shared<MemoryStorage>();
    std::map<std::string, std::shared_ptr<MemoryStorage>> local;
    MemoryStorageOptions local_options;
    std::shared_ptr<MemoryStorage> local_of(const std::string& host);
};

// Small buffers and blocks, few threads: many chunks from little data.
Config small_config();

// `nodes` machines with `per_node` ranks each: "m0", "m0", "m1", ...
std::vector<std::string> hosts_of(int nodes, int per_node);

struct Job {
    std::vector<std::string> hosts;
    std::shared_ptr<Storage> shared;
    std::function<std::shared_ptr<Storage>(const std::string& host)> local;
    Config config = small_config();
    std::function<void(int rank, Config&)> change_config;  // for ranks that differ
    bool concurrent = true;
    // Where it gives transports, ranks are connected by these; else in this process (transport/in_process.h).
    std::function<std::vector<std::unique_ptr<Transport>>(const std::vector<std::string>& hosts,
                                                          bool concurrent)>
        connect;
    // Where it is given, the door to the agent process of a machine; it may lead to null.
    std::function<AgentDoor*(const std::string& host)> agents;
    // Says when posts and transfers of a rank fail (transport/breaking_transport.h); empty: never.
    std::function<bool(int rank, TransportCall kind, uint64_t calls)> breaks;
};
Job job_on(Machines& machines, std::vector<std::string> hosts);

// What a rank does between open and the end of its thread. When open failed, `session` is null and `opened`
// says why. The session is closed (or was, by the body) before run_job returns.
using RankBody = std::function<void(int rank, Checkpointer* session, const Status& opened)>;
// Runs every rank in a thread of its own (of the executor, where one is installed) and joins them all.
void run_job(const Job& job, const RankBody& body);

// Deterministic content: what rank `rank` has in region `region` at `epoch`.
std::vector<std::byte> content(uint64_t epoch, int rank, int region, uint64_t bytes);

}  // namespace tailrace::internal::testing_support
