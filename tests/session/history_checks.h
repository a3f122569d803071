// HistoryChecks: what must hold while the jobs of a history run (history.h), and what they have been
// promised.
//
// Ranks call as they go on: note(), restore_and_check(). A stage that has one task run at a time also has
// check_names() called when a shared file has got another name, and after_step() after every step. The step's
// checks are cheap as long as nothing changes. Bytes are read when an epoch's state does:
//   - captured: the rank's part holds what the rank saved.
//   - committed, or named: a reader opens the epoch, and every byte is right.
// All ranks that hear how an epoch ended hear the same. One whose arrays do not fit together is refused.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/local_tier.h"
#include "ledger/rank_epochs.h"
#include "session/cluster.h"
#include "session/history.h"
#include "session/history_state.h"
#include "threads/mutex.h"
#include "transport/topology.h"

namespace tailrace::internal::testing_support {

// Earlier runs come first, whatever their epochs are.
bool earlier(EpochKey a, EpochKey b);

// Who gave a shared file its name.
enum class NamedBy { job, agent, carrying_agent };

// What is known of a history. The history itself changes it between jobs.
struct Promises {
    EpochKey committed;      // the last whose commit was reported
    EpochKey captured;       // the last that every rank has captured, while the node-local tiers are whole
    bool went_back = false;  // some job did
    bool torn = false;       // captured parts may be damaged, which no commit depends on
    bool damaged = false;    // bits have changed in files: nothing is promised but the truth
};

class HistoryChecks {
  public:
    // All arguments outlive it.
    HistoryChecks(Machines& machines, const Sizes& sizes, Promises& promises, Tally& tally)
        : machines_(machines), sizes_(sizes), promises_(promises), tally_(tally) {}

    // `number` counts jobs. `bound`: nothing older may be restored. `meets_faults`: of any kind.
    struct JobInfo {
        uint64_t number = 0;
        Config config;
        std::vector<std::string> hosts;  // by rank
        EpochKey bound;
        bool meets_faults = false, meets_local_faults = false;
        bool is_carried = false;  // perhaps: agents have buffers for it, too
    };
    void job_begins(JobInfo job);
    // All its sessions are closed.
    void job_ends();

    // ---- between jobs
    // So many agents may have buffers.
    void set_agents(size_t count);
    // An agent says that an epoch is committed.
    void finished(EpochKey key);
    // The newest epoch that was committed is there, or a newer one.
    void check_promises();
    // Whether the last epoch that all ranks have captured is still promised, going by the files that the
    // machines have: some may have been lost, and others keep something for them.
    bool captured_survives();

    // ---- a rank
    void opened(int rank, Checkpointer& session);
    void closes(int rank);
    void goes_back();
    void saves(Attempt attempt, bool misfits);
    // What has become known of an epoch. `captured`: this rank's save of it has just gone well.
    void note(Checkpointer& session, uint64_t epoch, bool captured);
    // Returns the epoch to go on from, the same on every rank.
    uint64_t restore_and_check(Checkpointer& session, RankState& state, bool verify);

    // ---- on a stage that has one task run at a time
    void check_names(NamedBy who);
    void after_step();

  private:
    struct Watched {
        const RankEpochs* epochs = nullptr;  // null: the rank has no session
        uint64_t changes = 0;
    };
    int ranks() const { return static_cast<int>(job_.hosts.size()); }
    // Whether that is news. It must be a later state than the one before.
    using States = std::map<std::pair<int, EpochKey>, EpochState>;  // by rank, in this job
    // `unheard`: the agents that carried it are gone, and perhaps its flush with them.
    bool moves_forward(States& states, int rank, EpochKey key, EpochState state, bool unheard);
    bool gave_way(const RankEpochs::Entry& entry, const RankEpochs& epochs) const;
    void check_end(int rank, EpochKey key, EpochState state);
    bool misfits(Attempt attempt);
    void check_refusal(int rank, const EpochInfo& info);
    void check_left() REQUIRES(mutex_);
    bool has_parts(const Topology& topology, size_t node);
    bool has_object(const Topology& topology, size_t node);
    void check_part(int rank, EpochKey key);
    void check_committed(EpochKey key);
    Result<std::unique_ptr<EpochReader>> open_shared(EpochKey key);
    bool was_removed(EpochKey key);
    void check_memory();
    void count_farewells();
    void check_restored(int rank, const RankState& state, bool same_ranks, uint64_t epoch);
    // Wrong bytes are a failure of the test; not being able to read is the status. `run_is_known`: the job
    // that saved it has noted its run.
    Status check_reader(EpochReader& reader, uint32_t rank, bool run_is_known);
    Status check_everything(EpochReader& reader);

    Machines& machines_;
    const Sizes& sizes_;
    Promises& promises_;
    Tally& tally_;

    Mutex mutex_;  // guards what ranks note
    JobInfo job_;
    Topology topology_;
    LocalTier tier_;
    uint64_t memory_bound_ = 0, agents_bound_ = 0;
    uint64_t carried_bound_ = 0;  // of jobs whose epochs agents may carry
    // How often this job has said that its agents carry no more, by sentence.
    std::map<std::string, int> farewells_;
    JobInfo captured_by_;  // the job that has captured what is promised
    std::map<uint64_t, uint32_t> run_of_job_;
    std::map<uint64_t, int> captures_;     // how many ranks have captured an epoch of this job
    States told_;                          // when ranks asked
    States seen_;                          // after steps
    std::map<EpochKey, EpochState> ends_;  // of this job's epochs
    std::set<uint64_t> misfits_;           // attempts whose arrays do not fit together, by number
    std::set<uint64_t> refused_;           // those of them that were refused
    uint64_t newest_begun_ = 0;            // the newest epoch of this job
    std::set<EpochKey> announced_;         // have been read when they got their names
    std::vector<Watched> watched_;         // by rank
};

}  // namespace tailrace::internal::testing_support
