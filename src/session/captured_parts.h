// CapturedParts: the parts of the node-local tier that this rank looks after, and when each may go. There are
// those that it captures itself, and, on a representative, those that earlier runs have left on its node.
//
// Which may go is a pure decision (choose_local_removals); this carries it out. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/job_context.h"
#include "agent/rank_epochs.h"
#include "capture/capture.h"
#include "session/background.h"
#include "session/old_epochs.h"

namespace tailrace::internal {

class CapturedParts {
  public:
    // All outlive it.
    CapturedParts(const JobContext& context, const RankEpochs& epochs, const Background& background)
        : context_(context), epochs_(epochs), background_(background) {}

    // What was found when the session began. Older epochs, beyond what the tier is to keep, go at once, but
    // for those that are being recovered.
    void take_over(std::vector<KnownPart> parts, const OldEpochs& old);
    void add(OwnPart part) { own_.push_back(std::move(part)); }

    // Removes what need not stay beside `keep` epochs. One part is given back in place of being removed, if
    // its space can be used again: it must not, if `recycle` is not set.
    std::optional<OwnPart> retire(uint32_t keep, bool recycle);
    void remove(const std::string& path);
    // The parts stay where they are, and are looked after no more.
    void clear() { own_.clear(); }

    // Epochs of earlier runs that could be restored when the session began, and are still kept.
    const std::vector<EpochKey>& safe_old_epochs() const { return safe_; }

  private:
    std::vector<LocalAge> ages() const;
    void add_old_ages(std::vector<LocalAge>& ages) const;
    void remove_old(EpochKey key);

    const JobContext& context_;
    const RankEpochs& epochs_;
    const Background& background_;
    std::vector<OwnPart> own_;    // ascending
    std::vector<KnownPart> old_;  // of earlier runs
    std::vector<EpochKey> safe_;
    std::optional<EpochKey> elsewhere_;  // the one of them that is in the shared tier only, if there is one
};

}  // namespace tailrace::internal
