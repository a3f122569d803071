// EpochEnding: how the flush of an epoch comes to its end on a node. There are two ways:
//   - In a group, the coordinator hears of failures and of segments, and its RESULT ends the epoch.
//   - Alone, every node leads its own segment by a plan that all know, and sends nothing. Then the node
//     ends the epoch itself, and no other node hears of it.
//
// Belongs to the driving thread.
#pragma once

#include <functional>
#include <memory>

#include "aggregate/node_services.h"

namespace tailrace::internal {

class EpochEnding {
  public:
    virtual ~EpochEnding() = default;
    // This node has failed the epoch. Its leader or follower knows it already.
    virtual void failed(const Status& why) = 0;
    // This node has nothing of its segment under way any more. The segment is committed, or `failure`
    // says why not. Called once.
    virtual void segment_ended(const Status& failure, const WrittenChunks& written) = 0;
    // Whether the end comes by messages.
    virtual bool needs_transport() const = 0;
};

// The services must outlive what these make.
std::unique_ptr<EpochEnding> make_group_ending(NodeServices& services, int coordinator, EpochKey key);
// Calls `end` with how the epoch has ended, perhaps later.
std::unique_ptr<EpochEnding> make_lone_ending(NodeServices& services, std::shared_ptr<const FlushPlan> plan,
                                              std::function<void(const Status&)> end);

}  // namespace tailrace::internal
