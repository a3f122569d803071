// Coordinator: on the lowest node of a group, collects the offers, makes the plan, and decides from
// the leaders' reports how each epoch ends. It is a state machine without threads, files or
// communication: it acts through Effects.
//
//   collecting --all offered--> running --all segments committed--> ended (ok)
//       |                          |
//       |                          +--first failure--> aborting --all reported--> discarding
//       |                                                                     --> ended (failed)
//       +--first failure--> ended (failed): nobody has begun anything
//
// Invariants: every member gets exactly one RESULT per epoch; no file is removed before every
// leader has said that it touches none any more; the epoch's failure is the first one that came.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "aggregate/messages.h"
#include "flush/plan.h"
#include "flush/recent_keys.h"

namespace tailrace::internal {

class Coordinator {
  public:
    struct Effects {
        std::function<void(int node, const AggregatorMessage&)> tell;  // `node` may be this node
        // discarded() answers it later.
        std::function<void(std::shared_ptr<const FlushPlan>)> discard;
    };
    Coordinator(Group group, PlanSettings settings, Effects effects)
        : group_(group), settings_(settings), effects_(std::move(effects)) {}

    void take(int node, const OfferMessage& message);
    void take(int node, const SegmentMessage& message);
    void take(const FailedMessage& message);
    void discarded(EpochKey key);

    bool idle() const { return epochs_.empty(); }

  private:
    enum class Stage { collecting, running, aborting, discarding };
    struct Epoch {
        Stage stage = Stage::collecting;
        std::map<int, OfferMessage> offers;  // by node, until the plan is made
        std::shared_ptr<const FlushPlan> plan;
        std::set<int> working;  // leaders that have not reported yet
        WrittenChunks written;
        Status failure;
    };
    void fail(EpochKey key, Epoch& epoch, const Status& why);
    void make_plan_of(EpochKey key, Epoch& epoch);
    void check_all_reported(EpochKey key, Epoch& epoch);
    void end(EpochKey key, const Status& status);
    void tell_all(const AggregatorMessage& message);

    const Group group_;
    const PlanSettings settings_;
    const Effects effects_;
    std::map<EpochKey, Epoch> epochs_;
    RecentKeys ended_;  // late messages about these are ignored
};

}  // namespace tailrace::internal
