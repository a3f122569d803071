#include "aggregate/epoch_ending.h"

#include "aggregate/segment_writer.h"

namespace tailrace::internal {

namespace {

class GroupEnding final : public EpochEnding {
  public:
    GroupEnding(NodeServices& services, int coordinator, EpochKey key)
        : services_(services), coordinator_(coordinator), key_(key) {}

    void failed(const Status& why) override { services_.tell(coordinator_, FailedMessage{key_, why}); }
    void segment_ended(const Status& failure, const WrittenChunks& written) override {
        services_.tell(coordinator_, SegmentMessage{key_, failure, failure.ok() ? written : WrittenChunks()});
    }
    bool needs_transport() const override { return true; }

  private:
    NodeServices& services_;
    const int coordinator_;
    const EpochKey key_;
};

class LoneEnding final : public EpochEnding {
  public:
    LoneEnding(NodeServices& services, std::shared_ptr<const FlushPlan> plan,
               std::function<void(const Status&)> end)
        : services_(services), plan_(std::move(plan)), end_(std::move(end)) {}

    void failed(const Status&) override {}
    // This node may not remove files that other leaders still write.
    void segment_ended(const Status& failure, const WrittenChunks&) override {
        if (failure.ok() || plan_->leaders.size() > 1) return end_(failure);
        services_.discard(plan_, [end = end_, failure] { end(failure); });
    }
    bool needs_transport() const override { return false; }

  private:
    NodeServices& services_;
    const std::shared_ptr<const FlushPlan> plan_;
    const std::function<void(const Status&)> end_;
};

}  // namespace

std::unique_ptr<EpochEnding> make_group_ending(NodeServices& services, int coordinator, EpochKey key) {
    return std::make_unique<GroupEnding>(services, coordinator, key);
}

std::unique_ptr<EpochEnding> make_lone_ending(NodeServices& services, std::shared_ptr<const FlushPlan> plan,
                                              std::function<void(const Status&)> end) {
    return std::make_unique<LoneEnding>(services, std::move(plan), std::move(end));
}

}  // namespace tailrace::internal
