// NodeDrain: finishes, for one node, the epochs that its program has captured and not flushed before
// it died. It needs no other node and no MPI: the plan records beside the captured parts say what
// this node writes (format/plan_record.h).
//
// One pass over a node's directory:
//   1. Lock the node's directory. Its session holds this lock as long as it lives.
//   2. Take the shared directory's lock together with other nodes' drains. A session on any node
//      excludes them, and they exclude a session.
//   3. For each plan record, oldest epoch first: pass over what is committed, what newer epochs have made
//      pointless, and what stays in the node-local tier (need_of in drain/recorded_epochs.h). Compare the
//      captured parts with the record. Read them back, and write this node's segments (shared/takeover.h),
//      and before their commit the files as they were (shared/originals.h).
//   4. If asked to, also write the segments of a lost node, from the copy that this node keeps of what
//      that one has captured (drain/kept_share.h).
//   5. End the takeover of files that are complete. If all K files are, the epoch and its
//      original files get their names, and retention is applied as the session would have done.
//   6. Remove the records of epochs that are committed. The captured parts stay, for a restore.
//
// Whatever is interrupted, the next pass goes on with. Segments that are committed are not written
// again.
//
// One thread at a time calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "drain/awaited_nodes.h"
#include "drain/failed_shares.h"
#include "drain/lost_nodes.h"
#include "drain/recorded_epochs.h"
#include "format/epoch_key.h"
#include "format/plan_record.h"
#include "storage/storage.h"
#include "threads/throttle.h"

namespace tailrace::internal {

struct DrainedEpoch {
    enum class State {
        committed,  // all K files are complete and have their names
        waiting,    // this node has written its share; others have not yet
        // A later run has gone on without it; or keep_shared would remove it at once; or it was kept in
        // the node-local tier, or a part of it is missing or damaged, and a newer epoch is committed.
        superseded,
        failed,   // see why; captured parts stay as they are
        stopped,  // not begun, or given up in between, because stop() said so
    };
    std::string job;
    EpochKey key;
    std::string shared_dir;
    State state = State::waiting;
    Status why;                             // failed only
    std::vector<AwaitedNodes> waiting_for;  // waiting only
    uint64_t own_bytes = 0;                 // this node's share of the epoch
    bool wrote = false;                     // this pass has written this node's share
    // This pass has also written the shares of these nodes: "node 3 (host)".
    std::vector<std::string> wrote_for;
    uint64_t written_bytes = 0;  // by this pass, in all
    // A copy of what a missing node has captured lies here, and a later pass may write its share.
    bool may_write_more = false;
};

const char* name_of(DrainedEpoch::State state);  // "committed"

struct DrainPass {
    std::vector<DrainedEpoch> epochs;  // oldest first; without those that stay in the node-local tier
    // Why nothing was done although there is something to do: a session uses one of the two
    // directories, or another drain this node's. ok otherwise.
    Status busy;
};

class NodeDrain {
  public:
    // Of the configuration, writers, buffers, direct_io, bandwidth_cap and background_nice count.
    // Everything else is in the plan records.
    NodeDrain(Config config, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared);

    // Passes also write the shares of nodes that `lost` takes for lost. It must outlive the drain.
    // Without a lock that the file system keeps, no such share is written.
    void write_for(LostNodes& lost) { lost_ = &lost; }

    // Shares that have failed rest (drain/failed_shares.h), and so does a copy that cannot be read. It must
    // outlive the drain.
    void rest_after_failures(FailedShares& failed) { failed_ = &failed; }

    // The bandwidth cap counts what others have booked under it, in place of a cap of its own.
    void share(std::shared_ptr<BandwidthCap> cap) { cap_ = std::move(cap); }

    // Hears of a share, this node's or a lost one's, while it is written: when it begins, several times a
    // second, and when it has ended. `written_bytes` is at most `share_bytes`.
    using Watcher =
        std::function<void(const DrainedEpoch& epoch, uint64_t share_bytes, uint64_t written_bytes)>;
    void watch(Watcher watcher) { watcher_ = std::move(watcher); }

    // Asked before each epoch, from the pass's thread: whether it and the rest are to be left to another
    // pass (state `stopped`). The one under way is finished.
    void yield_if(std::function<bool()> asked) { yield_ = std::move(asked); }

    enum class Order { oldest_first, newest_first };
    // Returns a failure only if the node's directory cannot be listed or trusted. `stop` is asked
    // several times a second.
    Result<DrainPass> pass(const std::string& node_directory, const std::function<bool()>& stop,
                           Order order = Order::oldest_first);

    // What lies there, without any lock or change: `committed`, `superseded`, or `waiting` for the
    // nodes that have not written their share, this one included.
    Result<DrainPass> look(const std::string& node_directory);

  private:
    // Steps 2 to 6 for one epoch. Adds to `pass`. `usable`: as need_of() takes it. Returns whether the epoch
    // is usable itself.
    bool finish(const std::string& node_directory, const RecordedEpoch& recorded,
                const std::vector<EpochKey>& usable, const std::function<bool()>& stop, DrainPass& pass);

    Config config_;
    const std::shared_ptr<Storage> local_, shared_;
    std::shared_ptr<BandwidthCap> cap_;
    std::function<bool()> yield_ = [] { return false; };
    Watcher watcher_ = [](const DrainedEpoch&, uint64_t, uint64_t) {};
    LostNodes* lost_ = nullptr;
    FailedShares* failed_ = nullptr;
};

// The nodes' directories in `local_dir`, of any job: those with a plan record. Empty if local_dir
// is missing. `skipped`: sentences about what has such a name, but cannot be listed or is not trusted.
Result<std::vector<std::string>> directories_to_drain(Storage& local, const std::string& local_dir,
                                                      std::vector<std::string>& skipped);

}  // namespace tailrace::internal
