// CarriedNode: carries one node of a session in an agent process. A NodeAgent does the work, as in a
// program. Ranks reach it by lines. The node's representative is a rank like the others.
//
// It lives in a thread of its own:
//   1. It waits until the representative has sent the recovered epochs.
//   2. It carries epochs until every rank of the node has said goodbye or has died. A rank that has died
//      saves no more. So epochs that all ranks have captured are finished, and the others have failed.
//   3. When its epochs have ended, it tells the other nodes' agents, and waits until all of them have
//      done so. So no node's agent ends while another one needs it.
//   4. It lets go of the session's locks. It tells the representative, if that is still there.
// Steps 3 and 4 follow at once if the background ends (node_agent_failed.cc), if it is given up, or after
// an exception in step 1 or 2. The captured parts and plan records stay. A program that dies in step 1
// may have begun on other nodes. So the background ends there, and no node waits for this one.
//
// Both the program and this process hold the session's locks, so the kernel frees them when both are
// gone.
//
// The serving thread calls the members.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/node_agent.h"
#include "carrier/carried_job.h"
#include "carrier/carried_transport.h"
#include "carrier/line_sender.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

// For `tailrace agent status`.
struct CarriedStatus {
    std::string job, shared_dir;
    uint32_t run = 0, node = 0, nodes = 0, ranks = 0;
    uint32_t connected = 0;  // ranks of this node that are alive
    uint32_t epochs = 0;     // not ended
    bool ending = false;
};

class CarriedNode final : private OwnRank {
  public:
    struct Locks {
        std::shared_ptr<DirectoryLock> local, shared;  // null: the program has none
    };
    // `changed` is called when has_ended() has become true.
    static Result<std::unique_ptr<CarriedNode>> create(CarriedJob job, std::shared_ptr<AgentWorld> world,
                                                       std::shared_ptr<Storage> local,
                                                       std::shared_ptr<Storage> shared, Locks locks,
                                                       std::function<void()> changed);
    // Gives up what has not ended.
    ~CarriedNode() override;

    uint64_t session() const { return context_.run_uid; }
    uint32_t node() const { return static_cast<uint32_t>(context_.node); }
    int representative() const { return context_.rank(); }
    // Without links.
    const std::string& shared_dir() const { return context_.tier.shared_text; }

    // A rank of the node joins. Refused if it is none, or has joined already.
    Status connect(int rank, std::shared_ptr<LineSender> line);
    Status begin(std::vector<FlushJob> recovered);
    // A rank has sent mail. Fails if a rank may not say that.
    Status mail_from(int rank, std::span<const std::byte> mail);
    void found_damaged(EpochKey key);
    void close_asked();
    // The line has ended, after a goodbye or by death.
    void left(int rank, bool goodbye);
    void give_up(const Status& why);

    bool has_ended() const;
    bool program_lives() const;
    // Whether nobody will capture more: the program has ended, or its epochs have been given up.
    bool ends() const;
    CarriedStatus status() const;

  private:
    CarriedNode(CarriedJob job, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared, Locks locks,
                std::function<void()> changed);

    // ---- what the representative hears of its epochs
    Status hear(const AgentMessage& news) override;
    void background_ended(const Status& why) noexcept override;
    void recovered(const EpochEnded& ended) override { (void)hear(AgentMessage(ended)); }

    // ---- the life
    void live();
    void carry();                       // steps 1 and 2, until no epoch is left
    void end_agent(const Status& why);  // returns when the ranks have been told
    void end_before_begin() REQUIRES(mutex_);
    bool over() const REQUIRES(mutex_);
    void tell_idle();
    void wait_for_other_nodes() noexcept;
    void say_ended();
    void from_representative(const AgentMessage& news) REQUIRES(mutex_);

    JobContext context_;
    Locks locks_;
    const std::function<void()> changed_;
    std::shared_ptr<CarriedTransport> transport_;  // context_.transport; only the life resets both

    std::atomic<bool> hurry_{false};  // waits for no other node
    mutable Mutex mutex_;
    Condition woken_;
    std::unique_ptr<NodeAgent> agent_ GUARDED_BY(mutex_);  // only the life resets it
    std::shared_ptr<LineSender> line_ GUARDED_BY(mutex_);  // the representative's, for the farewell
    std::map<int, uint64_t> saves_ GUARDED_BY(mutex_);     // of each rank that has joined
    std::set<int> connected_ GUARDED_BY(mutex_);
    bool begun_ GUARDED_BY(mutex_) = false, close_asked_ GUARDED_BY(mutex_) = false;
    bool somebody_died_ GUARDED_BY(mutex_) = false;
    bool background_ended_ GUARDED_BY(mutex_) = false;
    bool ended_ GUARDED_BY(mutex_) = false;
    Worker life_;
};

}  // namespace tailrace::internal
