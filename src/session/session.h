// Session: the Checkpointer there is. Its members are grouped by file:
//
//   session_open.cc   open, recovery, close
//   session_save.cc   regions, save, state, wait; with messages in the background
//   session_quiet.cc  the same steps where ranks may only communicate in collective calls
//   restore.cc        list, restore, open_epoch
//
// Locks, in the order they may be taken: save_mutex_ (one save at a time), agent_mutex_ (shared by whoever
// uses the agent without save_mutex_; close() takes it alone to end the agent), regions_mutex_, mail_mutex_
// (whoever polls this rank's messages; ranks without an agent).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "agent/node_agent.h"
#include "agent/rank_epochs.h"
#include "capture/capture.h"
#include "capture/local_tier.h"
#include "session/checkpointer.h"
#include "session/recovery.h"
#include "shared/inventory.h"

namespace tailrace {

class Session : public Checkpointer {
  public:
    Session(Config config, std::shared_ptr<Transport> transport, std::shared_ptr<Storage> local,
            std::shared_ptr<Storage> shared);
    ~Session() override;

    Status begin();  // collective: everything open() does

    Status register_region(std::string_view name, void* memory, uint64_t bytes) override;
    Status register_array(std::string_view name, void* memory, const ArrayPiece& piece,
                          const MemoryLayout& layout) override;
    Status update_region(std::string_view name, void* memory, uint64_t bytes) override;
    Status update_array(std::string_view name, void* memory, const ArrayPiece& piece,
                        const MemoryLayout& layout) override;
    Status unregister(std::string_view name) override;

    Status save(uint64_t epoch) override { return save_or_fail(epoch, {}); }
    Status give_up(uint64_t epoch, const Status& why) override { return save_or_fail(epoch, why); }
    Result<EpochInfo> state(uint64_t epoch) override;
    Status wait(uint64_t epoch, std::chrono::milliseconds longest) override;
    Status wait_all(std::chrono::milliseconds longest) override;

    Result<std::vector<EpochInfo>> list() override;
    Result<uint64_t> restore(std::optional<uint64_t> epoch, std::span<const std::string> names) override;
    Result<std::unique_ptr<EpochReader>> open_epoch(std::optional<uint64_t> epoch,
                                                    std::optional<uint64_t> before, bool verify) override;
    Status close() override;

    const Config& config() const override { return config_; }
    int rank() const override { return transport_->rank(); }
    int rank_count() const override { return transport_->size(); }
    uint64_t agent_bytes() const override {
        std::shared_lock lock(agent_mutex_);
        return agent_ ? agent_->buffer_bytes_used() : 0;
    }

  private:
    using Clock = std::chrono::steady_clock;
    using Deadline = std::optional<Clock::time_point>;
    static Deadline deadline_of(std::chrono::milliseconds longest);

    struct Registered {
        std::string name;
        std::byte* memory = nullptr;  // the region's first byte
        uint64_t bytes = 0;
        std::optional<ArrayPiece> array;
        Strides strides = {};
    };

    // ---- session_open.cc
    Status learn_ranks();
    Status take_shared_directory(SharedInventory& inventory);
    Status take_local_directory(uint32_t& greatest_run);
    Status agree_on_run(SharedInventory& inventory, uint32_t greatest_local_run);
    Status recover(const SharedInventory& inventory);
    Status judge_captured(const std::vector<LocalEpoch>& captured);
    Status verify_recoveries(std::vector<LocalEpoch>& epochs);
    Status make_room_for_recoveries(std::vector<LocalEpoch>& epochs);
    SessionRecord session_record() const;
    Status make_agent();
    void queue_recoveries(const std::vector<LocalEpoch>& epochs);
    void drop_old_parts();
    Result<KnownParts> gather_parts();
    Status close_once();

    // ---- session_save.cc
    Status put_region(Registered region, bool exists);
    Status put_array(std::string_view name, void* memory, const ArrayPiece& piece, const MemoryLayout& layout,
                     bool exists);
    Status check_epoch(uint64_t epoch) const;
    Status check_regions(uint64_t epoch);
    PartHeader part_header(uint64_t epoch) const;
    void warn_of_newer_epochs(uint64_t epoch) const;
    // With a `failure` nothing is captured, and that is told in place of a capture.
    Status save_or_fail(uint64_t epoch, const Status& failure);
    Status capture_epoch(uint64_t epoch, const Status& failure, Captured& capture);
    std::vector<RegionSource> region_sources();
    // Removes what the node-local tier need not keep beside `keep` epochs, but for one part to be recycled.
    std::optional<OwnPart> retire_parts(uint32_t keep);
    void remove_part(const std::string& path);
    Status wait_for_room();
    Status tell_captured(Captured capture);
    // This rank's own transport has failed: nobody must wait for what it cannot tell or hear.
    void leave_background(const Status& why);
    Status post_to_agent(const AgentMessage& message, const std::string& purpose);
    void read_mail();  // never blocks
    void read_mail_locked();
    // Sleeps until `done` or the deadline, reading this rank's mail where no agent does; says whether done.
    bool wait_until(const std::function<bool(const RankEpochs::Entries&)>& done, Deadline deadline);
    Status epoch_status(uint64_t epoch) const;
    // What wait and wait_all have in common; the status is the first failure among `epochs`.
    Status wait_for(const std::vector<uint64_t>& epochs, std::chrono::milliseconds longest);

    // ---- session_quiet.cc
    Status quiet_save(uint64_t epoch, const Status& failure);
    // One collective step: this rank's news go to all, everybody's news into the ledger, its orders are
    // carried out. Says whether all ranks still have time.
    Result<bool> exchange(const std::optional<Captured>& capture, bool in_time);
    Status quiet_wait(const std::function<bool()>& done, Deadline deadline);
    void take_quiet_captures(const std::vector<std::optional<Captured>>& captures);
    Status carry_out_quiet_orders();
    Status judge_quietly(const JudgeArrays& order);
    void end_quiet_epoch(const EpochEnded& ended);
    void start_quiet_flush(EpochKey key);
    bool all_quiet_epochs_ended() const;

    // ---- restore.cc
    struct Candidate {
        EpochKey key;
        std::optional<LocalEpoch> local;
        bool in_shared = false;          // files of it are listed
        bool shared_unfinished = false;  // some of them under unfinished names
        bool shared_whole = false;       // whole_epochs() has it
        bool seems_whole() const { return shared_whole || (local && local->complete()); }
    };
    // The same on every rank.
    struct Candidates {
        std::vector<Candidate> newest_first;  // what is left behind last (format/lineage.h)
        Status unlisted;                      // why the shared tier could not be looked at; ok when it could
        std::string damaged_part;             // what is wrong with a captured part; empty: nothing
    };
    Status no_such_epoch(uint64_t epoch, const std::vector<Candidate>& candidates) const;
    struct Attempt {
        enum class Outcome { used, nothing_there, damaged, refused } outcome = Outcome::nothing_there;
        Status why;
    };
    // What to do with an epoch's reader on this rank.
    using Use = std::function<Status(EpochReader&)>;
    Result<Candidates> find_candidates();
    bool local_serves_own_ranks(const Candidate& candidate) const;
    bool local_serves_any_rank(const Candidate& candidate) const;
    Attempt try_candidate(const Candidate& candidate, bool any_rank, const Use& use,
                          std::unique_ptr<EpochReader>& reader);
    Status try_sources(const Candidate& candidate, bool any_rank, std::optional<SharedEpoch> shared,
                       const Use& use, std::unique_ptr<EpochReader>& reader);
    Result<SharedEpoch> load_here(EpochKey key) const;
    Result<SharedEpoch> load_everywhere(EpochKey key);
    Status agree_on_request(std::optional<uint64_t> epoch, std::optional<uint64_t> before) const;
    Result<EpochKey> use_newest(std::optional<uint64_t> epoch, std::optional<uint64_t> before, bool any_rank,
                                const Use& use, std::unique_ptr<EpochReader>& reader);
    std::string both_tiers() const;  // for sentences
    Status nothing_to_restore(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                              const Candidates& candidates) const;
    Status wait_for_flush(EpochKey key);
    bool reachable(const KnownPart& part, int rank) const;
    Status restore_regions(EpochReader& reader, const std::vector<Registered>& regions) const;
    void warn_of_what_is_left(EpochReader& reader) const;
    Status verify_share(EpochReader& reader) const;

    bool quiet() const { return !transport_->concurrent(); }
    bool is_representative() const { return representative_; }

    Config config_;
    const std::shared_ptr<Transport> transport_;
    const std::shared_ptr<Storage> local_, shared_;

    std::vector<std::string> hosts_;  // by rank
    Topology topology_;
    int node_ = 0;
    bool representative_ = false;
    uint32_t run_ = 0;
    uint64_t run_uid_ = 0;
    uint64_t block_bytes_ = 4096;
    uint64_t stripe_align_ = 0;
    std::unique_ptr<ArrayPoints> points_;  // of this run
    LocalTier tier_;
    std::unique_ptr<DirectoryLock> shared_lock_, local_lock_;

    RankEpochs rank_epochs_;
    mutable std::shared_mutex agent_mutex_;
    std::unique_ptr<NodeAgent> agent_;  // of the representative, until the session is closed
    std::mutex mail_mutex_;
    std::atomic<int> mail_wanted_{0};  // threads that want mail_mutex_ to post: a waiting one gives way...
    std::condition_variable mail_posted_;  // ... until this says that they are through

    std::mutex regions_mutex_;
    std::vector<Registered> regions_;  // in the order of registration

    std::mutex save_mutex_;
    std::unique_ptr<Capture> capture_;
    std::vector<OwnPart> parts_;        // in the node-local tier, of this session, ascending
    std::vector<KnownPart> old_parts_;  // of earlier runs, that this node looks after (representatives)
    std::vector<EpochKey> old_safe_;  // epochs of earlier runs that could be restored, when the session began
    std::optional<EpochKey>
        old_elsewhere_;                // the one of them that is in the shared tier only, if there is one
    std::vector<EpochKey> recovered_;  // being flushed, or flushed, since
    std::vector<EpochKey> refused_;    // captured by earlier runs, and cannot be restored
    std::optional<uint64_t> newest_saved_;
    uint64_t sequence_ = 0;
    bool reader_was_opened_ = false;  // guarded by save_mutex_

    // quiet only: the same on every rank.
    std::unique_ptr<RootLedger> ledger_;
    std::optional<Residues> good_arrays_;  // the digest of the last epoch that was found good
    struct QuietEpoch {
        std::vector<NodeOffer> offers;     // of all nodes
        std::vector<LocalStream> streams;  // of this node
        uint64_t run_uid = 0;
        uint32_t rank_count = 0;
        bool started = false;
        bool result_known = false;  // this node's
        bool recovered = false;
        std::optional<EpochEnded> ended;
    };
    std::map<EpochKey, QuietEpoch> quiet_epochs_;

    bool began_ = false;
    bool all_ended_ = false;  // every rank has come to the last step of close_once()
    std::atomic<bool> closed_{false};
    Status close_status_;
};

}  // namespace tailrace
