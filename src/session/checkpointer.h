// Checkpointer: a session. Capture, node-local tier, node agent, life cycle of epochs, restore.
//
// Threads: register, unregister, save, state, wait may be called from any thread of the rank, one save at a
// time (a second one waits). open, close, list, restore and open_epoch are collective: every rank of the
// transport, same order. When the transport is not concurrent, save, wait and wait_all are collective too.
//
// A representative rank runs the node agent: one thread that drives messages and the Aggregator. Other ranks
// have no thread; they hear of the fate of their epochs when they call state, wait, save or close.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/epoch_state.h"
#include "array/strides.h"
#include "base/status.h"
#include "config/config.h"
#include "read/epoch_reader.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace tailrace::internal {

class Checkpointer {
  public:
    // Collective. `config` must have gone through complete_config. Recovers what earlier runs left: removes
    // unfinished files, starts flushing captured epochs that are complete and newer than the newest
    // committed one. busy when another session holds the
    // shared directory: one session at a time.
    static Result<std::unique_ptr<Checkpointer>> open(Config config, std::shared_ptr<Transport> transport,
                                                      std::shared_ptr<Storage> local,
                                                      std::shared_ptr<Storage> shared);
    virtual ~Checkpointer() = default;  // closes; failures are logged

    // The memory stays the caller's and must be valid during save and restore. A name registered again is
    // already_exists; to change a region, use update_region or unregister it. bytes may be 0, then memory
    // may be null. Of an array's memory only the piece's elements are read and written, which lie in it as
    // the layout says.
    virtual Status register_region(std::string_view name, void* memory, uint64_t bytes) = 0;
    virtual Status register_array(std::string_view name, void* memory, const ArrayPiece& piece,
                                  const MemoryLayout& layout = {}) = 0;
    // New place and size of a region that exists.
    virtual Status update_region(std::string_view name, void* memory, uint64_t bytes) = 0;
    virtual Status update_array(std::string_view name, void* memory, const ArrayPiece& piece,
                                const MemoryLayout& layout = {}) = 0;
    virtual Status unregister(std::string_view name) = 0;

    // Captures the registered regions as `epoch` (greater than every epoch saved before in this session, and
    // the same on every rank for its n-th save). When it returns ok the copy is complete and checksummed and
    // the memory is the caller's again. When it fails, this epoch will not exist; everything before stays.
    virtual Status save(uint64_t epoch) = 0;
    // In place of save, on a rank that cannot put together what it was to save: the epoch fails with `why`,
    // on the other ranks as well, and the next save is the same one on all of them again. Its number is used
    // up, as that of a save that failed.
    virtual Status give_up(uint64_t epoch, const Status& why) = 0;

    virtual Result<EpochInfo> state(uint64_t epoch) = 0;
    // Waits until the epoch is committed, kept local, or failed. The status is the epoch's: ok for the first
    // two. timeout when the time is over first; zero or less than zero waits for ever.
    virtual Status wait(uint64_t epoch, std::chrono::milliseconds longest) = 0;
    virtual Status wait_all(std::chrono::milliseconds longest) = 0;

    // Epochs that a restore could return, newest first. Collective.
    virtual Result<std::vector<EpochInfo>> list() = 0;

    // Restores the registered regions of this rank from `epoch`, or the newest there is: the newest epoch for
    // which every rank could read and verify all of its regions. Regions saved as arrays are assembled for
    // the piece now registered, whatever the decomposition was; plain regions come from the same rank
    // number. `names` empty: all. Sizes must match what is registered. Falls back to the other tier and
    // (without `epoch`) to older epochs, saying why. not_found when there is nothing to restore.
    // Returns the epoch. Collective. After a failure the registered memory is undefined.
    virtual Result<uint64_t> restore(std::optional<uint64_t> epoch, std::span<const std::string> names) = 0;

    // For programs that must learn sizes first, or read other ranks' regions: opens `epoch`, or the newest
    // (older than `before`, if given). With `verify` every byte is read and checked first, by all ranks
    // together. The reader must be destroyed before the session. Collective.
    virtual Result<std::unique_ptr<EpochReader>> open_epoch(std::optional<uint64_t> epoch,
                                                            std::optional<uint64_t> before, bool verify) = 0;

    // Waits for all flushes, reports the first that failed, frees everything. Collective; idempotent.
    virtual Status close() = 0;

    virtual const Config& config() const = 0;
    virtual int rank() const = 0;
    virtual int rank_count() const = 0;
    // At most so many bytes of buffers has the agent of this rank ever used at once; 0 without one. A buffer
    // counts as a whole, though only its pages that were touched take memory.
    virtual uint64_t agent_bytes() const = 0;
};

}  // namespace tailrace::internal
