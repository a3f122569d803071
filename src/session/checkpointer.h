// Checkpointer: the interface of a session, which captures epochs, flushes them and restores them.
//
// Threads: any thread of the rank may call register, unregister, save, state and wait. There is one
// save at a time; a second one waits. open, close, list, restore and open_epoch are collective:
// every rank of the transport calls them, in the same order. If the transport is not concurrent,
// save, capture, give_up, wait, wait_all, should_save and should_stop are collective, too.
//
// A representative rank runs the node agent: one thread that drives messages and the Aggregator.
// Other ranks have no thread. They hear how their epochs ended when they call state, wait, save or
// close.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/agent_link.h"
#include "array/strides.h"
#include "base/status.h"
#include "capture/region_copy.h"
#include "config/config.h"
#include "ledger/epoch_state.h"
#include "read/epoch_reader.h"
#include "session/resizable_memory.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace tailrace::internal {

class Checkpointer {
  public:
    // Opens a session. `config` must have gone through complete_config. Recovers what earlier runs
    // have left: removes unfinished files, and starts to flush captured epochs that are complete
    // and newer than the newest committed one. Returns busy if another session holds the shared
    // directory, which one session at a time may use. `agents` leads to the agent processes of the
    // nodes (null: there are none); it must outlive the session. Collective.
    static Result<std::unique_ptr<Checkpointer>> open(Config config, std::shared_ptr<Transport> transport,
                                                      std::shared_ptr<Storage> local,
                                                      std::shared_ptr<Storage> shared,
                                                      AgentDoor* agents = nullptr);
    virtual ~Checkpointer() = default;  // closes the session; failures are logged

    // Registers a region. The memory stays the caller's, and must be valid during save and restore.
    // A name that is registered already gives already_exists; to change a region, use update_region
    // or unregister it. If bytes is 0, memory may be null. For an array, only the piece's elements
    // are read and written; the layout says where they lie in the memory.
    virtual Status register_region(std::string_view name, void* memory, uint64_t bytes) = 0;
    virtual Status register_array(std::string_view name, void* memory, const ArrayPiece& piece,
                                  const MemoryLayout& layout = {}) = 0;
    // Registers a region whose memory the program moves and resizes. The functions are called in
    // the thread that saves or restores, and must not call the session.
    virtual Status register_resizable(std::string_view name, ResizableMemory memory) = 0;
    // The same for this rank's items of a list: the whole is the ranks' items one after another, in the
    // order of ranks. A restore on another number of ranks gives each an even share.
    virtual Status register_list(std::string_view name, const ListItem& item, ResizableMemory memory) = 0;
    // Says which rank gets which item in place of that. Called in the thread that restores, for every item,
    // and must not call the session.
    virtual Status set_list_owner(std::string_view name, ListOwner owner) = 0;
    // Changes place and size of a region that is registered.
    virtual Status update_region(std::string_view name, void* memory, uint64_t bytes) = 0;
    virtual Status update_array(std::string_view name, void* memory, const ArrayPiece& piece,
                                const MemoryLayout& layout = {}) = 0;
    virtual Status unregister(std::string_view name) = 0;

    // Captures the registered regions as `epoch`. The number must be greater than that of every
    // epoch saved before in this session, and the same on every rank for its n-th save. When this
    // returns ok, the copy is complete and checksummed, and the memory is the caller's again. When
    // it fails, this epoch will not exist, and everything before it stays.
    Status save(uint64_t epoch) { return save_with(epoch, {}); }
    // Captures `more` beside them: for this epoch alone, nothing of it is registered. With a copy that
    // capture() holds, the epoch fails: what the ranks save would be of different times.
    virtual Status save_with(uint64_t epoch, std::vector<RegionSource> more) = 0;
    // The first half of save: copies the registered regions, and tells nobody. save or give_up with
    // the same number then takes or drops the copy. Another capture, a save of another number, and
    // close drop it, too. A capture that fails leaves no copy, and the number may be tried again.
    virtual Status capture(uint64_t epoch) = 0;
    // Called in place of save, on a rank that cannot put together what it was to save, or does not
    // want what it has captured. The epoch fails with `why`, on the other ranks as well, and `why` is
    // returned. The next save is again the same one on all ranks. The epoch's number is used up,
    // like that of a save that failed.
    virtual Status give_up(uint64_t epoch, const Status& why) = 0;

    virtual Result<EpochInfo> state(uint64_t epoch) = 0;
    // Waits until the epoch is committed, kept local, or failed. Returns ok for the first two, and
    // the epoch's failure for the third. Returns timeout if the time runs out first. Zero or less
    // waits for ever.
    virtual Status wait(uint64_t epoch, std::chrono::milliseconds longest) = 0;
    virtual Status wait_all(std::chrono::milliseconds longest) = 0;

    // Whether it is time to save; whether it is time to stop, and why. The n-th call of one of them has the
    // same answer on all ranks (when/schedule.h), though ranks may make it at different times. Collective if
    // the transport is not concurrent. Once should_stop has a reason, it keeps it.
    virtual Result<bool> should_save() = 0;
    virtual Result<std::optional<std::string>> should_stop() = 0;
    // This rank was asked to stop: should_stop will have this reason on all ranks, unless it has
    // another. Any rank may call it.
    virtual void ask_to_stop(const std::string& why) = 0;

    // The epochs that a restore could return, newest first. Collective.
    virtual Result<std::vector<EpochInfo>> list() = 0;

    // Restores this rank's registered regions from `epoch`, or from the newest epoch for which
    // every rank can read and verify all its regions. Restores the regions in `names`, or all if it
    // is empty. Arrays are put together for the piece that is registered now, whatever the
    // decomposition was. Plain regions come from the same rank number. Sizes must match what is
    // registered.
    //
    // If a tier fails, the other one is tried, and (without `epoch`) then older epochs; the log
    // says why. Returns not_found if there is nothing to restore, otherwise the epoch's number.
    // After a failure the content of the registered memory is undefined. Collective.
    virtual Result<uint64_t> restore(std::optional<uint64_t> epoch, std::span<const std::string> names) = 0;

    // Opens `epoch`, or the newest epoch (older than `before`, if given), for programs that must
    // learn sizes first, or read other ranks' regions. With `verify` all ranks together first read
    // and check every byte. The reader must be destroyed before the session. Collective.
    virtual Result<std::unique_ptr<EpochReader>> open_epoch(std::optional<uint64_t> epoch,
                                                            std::optional<uint64_t> before, bool verify) = 0;
    // What a rank does with an epoch that was opened, before it counts as the one that is found. If
    // this fails on any rank because the epoch is damaged there (corrupt, io_error, aborted), other
    // sources and older epochs are tried, so it may be called again, with another reader. A rank's own
    // failure (invalid_argument, failed_state, out_of_memory, no_space) ends the search. The reader is valid
    // until it returns.
    using UseEpoch = std::function<Status(EpochReader&)>;
    // Like open_epoch, for callers that fill their memory by themselves. Retention hears of the damage
    // that they find. Collective.
    virtual Result<std::unique_ptr<EpochReader>> open_and_use(std::optional<uint64_t> epoch,
                                                              std::optional<uint64_t> before,
                                                              const UseEpoch& use) = 0;

    // Restores what is registered, as restore does without names, and then uses the epoch for more.
    // `any_rank`: the reader must be able to give what any rank saved, and all ranks together first
    // read and check every byte. Without it, the reader may give only what this rank saved.
    // Collective.
    virtual Result<std::unique_ptr<EpochReader>> restore_and_use(std::optional<uint64_t> epoch, bool any_rank,
                                                                 const UseEpoch& use) = 0;

    // Waits for all flushes, also flushes the newest epoch if it was kept local (flush_at_close), returns
    // the first failure, and frees everything. Collective; idempotent.
    virtual Status close() = 0;

    virtual const Config& config() const = 0;
    virtual int rank() const = 0;
    virtual int rank_count() const = 0;
    // The number of this session among those of the directory.
    virtual uint32_t run() const = 0;
    // This node's directory in the node-local tier. Its path is absolute.
    virtual std::string node_directory() const = 0;
    // The most bytes of buffers that this rank's agent has ever used at once; 0 without an agent. A
    // buffer counts as a whole, though only the pages of it that were touched take memory.
    virtual uint64_t agent_bytes() const = 0;
};

}  // namespace tailrace::internal
