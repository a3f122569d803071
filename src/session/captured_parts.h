// CapturedParts: the captured parts for which this rank is responsible, and when they may be removed.
// These are the parts that the rank captures itself and, on a representative, those that earlier runs
// have left on its node. When the parts of an epoch are removed, so are the node's protect object and its
// plan record of that epoch.
//
// choose_local_removals decides, as a pure function, which parts are removed. This class carries it out.
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/job_context.h"
#include "background/background.h"
#include "capture/capture.h"
#include "ledger/rank_epochs.h"
#include "session/old_epochs.h"

namespace tailrace::internal {

class CapturedParts {
  public:
    // All arguments must outlive it.
    CapturedParts(const JobContext& context, const RankEpochs& epochs, const Background& background)
        : context_(context), epochs_(epochs), background_(background) {}

    // Takes over the parts that were found when the session began. Old epochs beyond what the tier
    // is to keep are removed at once, except those that are being recovered.
    void take_over(std::vector<KnownPart> parts, const OldEpochs& old);
    void add(OwnPart&& part) { own_.push_back(std::move(part)); }

    // Removes the parts that need not stay beside `keep` epochs. If `recycle` is set, one part
    // whose space can be used again is returned instead of removed.
    std::optional<OwnPart> retire(uint32_t keep, bool recycle);
    void remove(const std::string& path);
    // Frees what waits to be used by the next protect object. Returns whether there was something.
    bool give_spares_back();
    // Forgets the parts. They stay where they are.
    void clear();

    // The epochs of earlier runs that could be restored when the session began, and are still kept.
    const std::vector<EpochKey>& safe_old_epochs() const { return safe_; }

  private:
    std::vector<LocalAge> ages() const;
    void add_old_ages(std::vector<LocalAge>& ages) const;
    void remove_old(EpochKey key);
    void find_objects();
    void remove_objects(EpochKey key);
    void remove_plan(EpochKey key);

    const JobContext& context_;
    const RankEpochs& epochs_;
    const Background& background_;
    std::vector<OwnPart> own_;    // ascending
    std::vector<KnownPart> old_;  // parts of earlier runs
    // What earlier runs' nodes kept for each other here (protect/protect_file.h). Only
    // representatives have some.
    std::vector<std::pair<EpochKey, std::string>> old_objects_;
    std::vector<EpochKey> safe_;
    std::optional<EpochKey> elsewhere_;  // the one of safe_ that only the shared tier has, if any
};

}  // namespace tailrace::internal
