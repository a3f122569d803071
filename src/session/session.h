// Session: implements Checkpointer. It joins the program's regions, their capture, the background
// that flushes captured epochs, and the search for what can be restored. Each of these has a header
// of its own.
//
// The steps of save:
//   1. The background waits for room, as queue_policy says.
//   2. Parts that are no longer needed are removed. One of them may give its space to the new part.
//   3. The regions are copied and checksummed into the node-local tier, under an unfinished name.
//      Then the part is renamed.
//   4. The background hears of the capture. From here on the memory is the program's again.
//
// capture() takes steps 1 to 3 and holds the copy. save() of the same epoch then takes only step 4.
// give_up() removes the copy instead, and reports the failure.
//
// Locks, in the order in which they may be taken: save_mutex_ (one save at a time), then those of
// the parts.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <vector>

#include "background/background.h"
#include "capture/capture.h"
#include "ledger/rank_epochs.h"
#include "session/captured_parts.h"
#include "session/checkpointer.h"
#include "session/epoch_search.h"
#include "session/regions.h"
#include "threads/mutex.h"

namespace tailrace::internal {

struct Opening;

class Session : public Checkpointer {
  public:
    // `agents` may be null, or must outlive the session.
    Session(Opening opening, AgentDoor* agents);
    ~Session() override;
    // The steps of open that follow open_directories(). Collective.
    // If the agents that were to carry its epochs die meanwhile, it begins as one without agents.
    Status begin(const SharedInventory& inventory);
    // All ranks have begun. From now on the session must be closed by all of them together.
    void opened() { opened_ = true; }

    Status register_region(std::string_view name, void* memory, uint64_t bytes) override {
        return regions_.put(name, memory, bytes, false);
    }
    Status register_array(std::string_view name, void* memory, const ArrayPiece& piece,
                          const MemoryLayout& layout) override {
        return regions_.put_array(name, memory, piece, layout, false);
    }
    Status register_resizable(std::string_view name, ResizableMemory memory) override {
        return regions_.put_resizable(name, std::move(memory));
    }
    Status register_list(std::string_view name, const ListItem& item, ResizableMemory memory) override {
        return regions_.put_resizable(name, std::move(memory), item);
    }
    Status set_list_owner(std::string_view name, ListOwner owner) override {
        return regions_.set_owner(name, std::move(owner));
    }
    Status update_region(std::string_view name, void* memory, uint64_t bytes) override {
        return regions_.put(name, memory, bytes, true);
    }
    Status update_array(std::string_view name, void* memory, const ArrayPiece& piece,
                        const MemoryLayout& layout) override {
        return regions_.put_array(name, memory, piece, layout, true);
    }
    Status unregister(std::string_view name) override { return regions_.remove(name); }

    Status save_with(uint64_t epoch, std::vector<RegionSource> more) override {
        return save_or_fail(epoch, {}, std::move(more));
    }
    Status capture(uint64_t epoch) override;
    Status give_up(uint64_t epoch, const Status& why) override { return save_or_fail(epoch, why, {}); }
    Result<EpochInfo> state(uint64_t epoch) override;
    Status wait(uint64_t epoch, std::chrono::milliseconds longest) override;
    Status wait_all(std::chrono::milliseconds longest) override;

    Result<bool> should_save() override;
    Result<std::optional<std::string>> should_stop() override;
    void ask_to_stop(const std::string& why) override;

    Result<std::vector<EpochInfo>> list() override;
    Result<uint64_t> restore(std::optional<uint64_t> epoch, std::span<const std::string> names) override;
    Result<std::unique_ptr<EpochReader>> open_epoch(std::optional<uint64_t> epoch,
                                                    std::optional<uint64_t> before, bool verify) override;
    Result<std::unique_ptr<EpochReader>> open_and_use(std::optional<uint64_t> epoch,
                                                      std::optional<uint64_t> before,
                                                      const UseEpoch& use) override;
    Result<std::unique_ptr<EpochReader>> restore_and_use(std::optional<uint64_t> epoch, bool any_rank,
                                                         const UseEpoch& use) override;
    Status close() override;

    const Config& config() const override { return context_.config; }
    int rank() const override { return context_.rank(); }
    int rank_count() const override { return context_.rank_count(); }
    uint32_t run() const override { return context_.run; }
    std::string node_directory() const override { return context_.tier.directory(context_.node); }
    uint64_t agent_bytes() const override { return background_->buffer_bytes_used(); }

    // What this rank knows at present. Nothing is read for it, so that a look changes nothing.
    const RankEpochs& epochs() const { return epochs_; }

  private:
    Begun begin_background(const SharedInventory& inventory, const Carriers& carriers) REQUIRES(save_mutex_);
    static Background::Deadline deadline_of(std::chrono::milliseconds longest);
    Status check_epoch(uint64_t epoch) const REQUIRES(save_mutex_);
    // What a capture takes: what is registered, and `more`.
    Result<std::vector<RegionSource>> sources_with(const std::vector<RegionSource>& more) const;
    Status check_regions(uint64_t epoch, const std::vector<RegionSource>& more) REQUIRES(save_mutex_);
    // What the others hear of this rank's next save, before anything was captured. It needs no
    // memory, so they hear of it whatever fails.
    Captured news_of(uint64_t epoch) const noexcept;
    PartHeader part_header(uint64_t epoch) const;
    void warn_of_newer_epochs(uint64_t epoch) const REQUIRES(save_mutex_);
    bool may_recycle() const REQUIRES(save_mutex_);
    // If `failure` is not ok, nothing is captured, and the others are told of the failure instead.
    Status save_or_fail(uint64_t epoch, Status failure, std::vector<RegionSource> more);
    void look_after_agent() REQUIRES(save_mutex_);
    // A copy of the regions. Without a part it has failed, and the info says why.
    struct Copy {
        Captured news;
        EpochInfo info;
        std::optional<OwnPart> part;
    };
    Status copy_regions(uint64_t epoch, const Result<std::vector<RegionSource>>& found, Copy& copy)
        REQUIRES(save_mutex_);
    // From here on the epoch is one of this session. `news` gets what the others are to hear.
    Status enter(Copy& copy, Captured& news) REQUIRES(save_mutex_);
    // If `failure` is not ok, the captured part is removed, and the copy says why.
    void take_held(const Status& failure, Copy& copy) REQUIRES(save_mutex_);
    Status wait_for_room(double& seconds) REQUIRES(save_mutex_);
    void drop_held() noexcept REQUIRES(save_mutex_);
    Status epoch_status(uint64_t epoch) const;
    // Common to wait and wait_all. The ranks may be in a collective call, so no rank may need memory before.
    Status wait_for(EpochRange epochs, std::chrono::milliseconds longest);

    Result<std::vector<EpochInfo>> list_candidates();

    // ---- closing.cc
    Status ask_agent_to_let_go(std::unique_ptr<AgentLink>& link);
    Status flush_rest();  // waits for the epochs that are under way, too
    Status flush_left_epochs();
    Status check_newest();
    Result<std::map<EpochKey, Status>> heard_of_newest() const;
    std::optional<EpochKey> newest_kept_local() const;
    Status flush_newest(Closed::Rest rest);
    Status flush_again(const JobContext& context, const std::vector<LocalEpoch>& epochs);

    // ---- restore.cc
    Status restore_regions(EpochReader& reader, const std::vector<Registered>& regions) const;
    void warn_of_unread_regions(EpochReader& reader) const;
    Status verify_share(EpochReader& reader) const;
    Status check_restores() const;
    // From now on, no save recycles a part that a reader may have open.
    Status expect_reader();

    AgentDoor* const door_;
    Mutex save_mutex_;    // held during a save
    JobContext context_;  // only close() changes it
    std::unique_ptr<DirectoryLock> local_lock_;
    std::unique_ptr<AgentLink> agent_ GUARDED_BY(save_mutex_);
    std::vector<KnownPart> old_parts_;
    Regions regions_;
    RankEpochs epochs_;
    std::unique_ptr<Background> background_;

    std::optional<Capture> capture_ GUARDED_BY(save_mutex_);  // empty once the session is closed
    std::optional<CapturedParts> parts_ GUARDED_BY(save_mutex_);
    std::optional<Copy> held_ GUARDED_BY(save_mutex_);  // of capture(), until it is saved or dropped
    std::optional<uint64_t> newest_saved_ GUARDED_BY(save_mutex_);
    bool reader_was_opened_ GUARDED_BY(save_mutex_) = false;
    Status close_status_ GUARDED_BY(save_mutex_);

    std::optional<EpochSearch> search_;
    bool opened_ = false;
    std::atomic<bool> closed_{false};
};

}  // namespace tailrace::internal
