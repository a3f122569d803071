// History: a small history of jobs on the same machines, from a seed, under faults.
//
// A job saves some epochs while its storages fail (they die at some operation, return errors, fill up, lie
// about what they read). Then the power fails or processes are killed, nodes are lost, files are damaged.
// Then the next job, sometimes laid out otherwise, restores and checks every byte, saves on under the next
// faults, and so on. The last job meets no faults.
//
// What must hold: what is restored is, byte for byte, one epoch that was saved. It is never older than the
// last epoch whose commit had been reported, nor (when the node-local tiers are as they were) than the last
// that every rank had captured, unless damage was done to files afterwards. Otherwise the truth is told. A
// job that found nothing it could read begins anew beside what is there; later is then what the later run
// saved.
//
// In some epochs a rank's piece of the array does not fit to the others'. These are refused on all ranks,
// with a sentence. Nothing of them is ever seen again, and what was saved before and is saved after them is
// not touched.
//
// Some histories have agent processes on their machines, which finish what dead jobs have left. In a part of
// them, these also carry the epochs of jobs that live (history_agents.h). And machines are lost: an epoch
// that was protected is not, as long as its sets have lost no more nodes than they survive.
//
// A Stage says how ranks run and what they are connected by. The default is threads of the system; a
// simulation has tasks in virtual time, and more that can go wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/cluster.h"

namespace tailrace::internal::testing_support {

// How large a history may become. Defaults: any.
struct HistoryLimits {
    int most_nodes = 64;
    int most_jobs = 3;   // that meet faults
    int most_saves = 5;  // of a job
    // Above 1, the first job has most_nodes, and each later one between these and most_nodes.
    int fewest_nodes = 1;
};

// How agents reach each other.
struct AgentNetwork {
    std::vector<std::unique_ptr<Transport>> transports;  // one for each agent
    std::function<void(int agent)> lose;                 // it has died; the others are not told
    std::function<void()> end;                           // all have died
};

class Stage {
  public:
    virtual ~Stage() = default;
    // What a job sees of a host's storage; `host` is empty for the shared one. A stage that has one task run
    // at a time calls `named` when a file has got another name.
    virtual std::shared_ptr<Storage> mount(std::shared_ptr<Storage> storage, const std::string& /*host*/,
                                           std::function<void()> /*named*/) {
        return storage;
    }
    // The transports of a job. Empty: ranks are threads (transport/in_process.h).
    virtual std::vector<std::unique_ptr<Transport>> connect(const std::vector<std::string>& /*hosts*/,
                                                            bool /*concurrent*/, const Config& /*config*/) {
        return {};
    }
    // A job begins. Where it may meet faults, `kill` lets its processes die: nothing they do has an effect
    // any more.
    // Says whether ranks may be cut off from each other.
    virtual bool begin_job(bool /*faults*/, std::function<void()> /*kill*/) { return false; }
    virtual void end_job() {}
    // Whether some histories have agent processes. These wait for seconds.
    virtual bool has_agents() const { return false; }
    // For agents on these hosts that carry epochs of sessions that live. Call it where has_agents().
    virtual AgentNetwork connect_agents(const std::vector<std::string>& /*hosts*/) { return {}; }
    // A stage that has one task run at a time calls `check` after every step. It must not wait.
    virtual void after_step(std::function<void()> /*check*/) {}
};

// So that a run of histories can be seen to have tested something.
struct Tally {
    std::atomic<uint64_t> restored{0}, nothing{0}, refused{0}, announced{0};
    std::atomic<uint64_t> drained{0};  // epochs that got their names from an agent
    std::atomic<uint64_t> carried{0};  // those of them whose session the agent carried
    std::atomic<uint64_t> rebuilt{
        0};  // times that a captured epoch was still promised after machines were lost
    std::atomic<uint64_t> misfits{0};  // epochs that were refused because their arrays did not fit together
};

// Runs one. Says by gtest what is wrong, and returns what happened, in sentences.
std::string run_history(uint64_t seed, const HistoryLimits& limits, Stage& stage, Tally& tally);

}  // namespace tailrace::internal::testing_support
