// Coordinator: the lowest node of a group collects the offers, makes the plan, and decides the fate of each
// epoch from what the leaders report. A state machine without threads, files or communication: what it wants
// done goes through Effects.
//
//   collecting --all offered--> running --all segments committed--> over (ok)
//       |                          |
//       |                          +--first failure--> aborting --all reported--> discarding
//       |                                                                             --> over (failed)
//       +--first failure--> over (failed): nobody has begun anything
//
// Invariants: every member gets exactly one RESULT per epoch; no file is removed before every leader has said
// that it touches none any more; the first failure's sentence is the epoch's.
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
        std::function<void(int node, const AggregatorMessage&)> tell;   // also to this node itself
        std::function<void(std::shared_ptr<const FlushPlan>)> discard;  // answered later by discarded()
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
        std::map<int, OfferMessage> offers;  // by node; until the plan is made
        std::shared_ptr<const FlushPlan> plan;
        std::set<int> working;  // leaders that have not reported
        uint64_t data_bytes = 0;
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
    RecentKeys over_;  // late messages about these are no news
};

}  // namespace tailrace::internal
