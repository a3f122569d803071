// EpochSearch: finds the epoch that a restore takes, and the sources from which it is read. Every
// decision follows from what all ranks know alike, so that they stay in step.
//
//   1. Representatives say which captured parts they have, and rank 0 says which epochs lie in the
//      shared directory.
//   2. Candidates are tried newest first; those that the program has left behind come last
//      (catalog/lineage.h). If the captured parts serve the ranks as they are now, these are read,
//      and the shared directory is not touched. All ranks agree on the outcome.
//   3. Otherwise, or if that fails, the shared files are opened, once their flush has ended. Parts
//      that are at hand are still preferred.
//   4. If that fails as well, the next older epoch is tried.
//
// find(), load() and use_newest() are collective. The context and the background must outlive the
// search, and the search must outlive the readers that it opens.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/job_context.h"
#include "background/background.h"
#include "base/status.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {

class EpochSearch {
  public:
    struct Candidate {
        EpochKey key;
        std::optional<LocalEpoch> local;
        bool in_shared = false;          // the shared directory has files of it
        bool shared_unfinished = false;  // some of them have unfinished names
        bool shared_whole = false;       // whole_epochs() has it
        bool seems_whole() const { return shared_whole || (local && local->complete()); }
    };
    // What find() has found; the same on every rank.
    struct Candidates {
        // Epochs that were left behind come last (catalog/lineage.h).
        std::vector<Candidate> newest_first;
        Status unlisted;           // why the shared directory could not be listed, or ok
        std::string damaged_part;  // what is wrong with a captured part; empty: nothing
    };
    // What to do with an epoch's reader on this rank.
    using Use = std::function<Status(EpochReader&)>;

    // `refused`: captured epochs that are not candidates, because their arrays cannot be put
    // together. `epochs`: those that this session has saved. A copy that a rank holds until the program
    // has decided (Checkpointer::capture) is no candidate either.
    EpochSearch(const JobContext& context, const RankEpochs& epochs, Background& background,
                std::vector<EpochKey> refused)
        : context_(context), epochs_(epochs), background_(background), refused_(std::move(refused)) {}

    Result<Candidates> find();
    // Whether captured parts serve every rank: with what it saved itself, or with all that was
    // saved.
    bool local_serves_own_ranks(const Candidate& candidate) const;
    bool local_serves_any_rank(const Candidate& candidate) const;

    // Rank 0 reads the heads of the K files and tells the others. The outcome is the same
    // everywhere.
    Result<SharedEpoch> load(EpochKey key);

    // Finds the epoch with that number, or the newest one (before `before`, if given), that every
    // rank could open and use. `any_rank`: the reader must be able to give every rank what any rank
    // saved, at any time.
    Result<EpochKey> use_newest(std::optional<uint64_t> epoch, std::optional<uint64_t> before, bool any_rank,
                                const Use& use, std::unique_ptr<EpochReader>& reader);

  private:
    struct Attempt {
        enum class Outcome { used, nothing_there, damaged, refused } outcome = Outcome::nothing_there;
        Status why;
    };
    bool reachable(const KnownPart& part, int rank) const;
    std::vector<EpochKey> held_copies(const std::map<EpochKey, Candidate>& found) const;
    Result<SharedEpoch> load_here(EpochKey key) const;
    Attempt try_candidate(const Candidate& candidate, bool any_rank, const Use& use,
                          std::unique_ptr<EpochReader>& reader);
    Status try_sources(const Candidate& candidate, bool any_rank, std::optional<SharedEpoch> shared,
                       const Use& use, std::unique_ptr<EpochReader>& reader);
    Status agree_on_request(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                            bool any_rank) const;
    Status no_such_epoch(uint64_t epoch, const std::vector<Candidate>& candidates) const;
    Status nothing_to_restore(std::optional<uint64_t> epoch, std::optional<uint64_t> before,
                              const Candidates& candidates) const;
    std::string both_tiers() const;  // for sentences

    const JobContext& context_;
    const RankEpochs& epochs_;
    Background& background_;
    const std::vector<EpochKey> refused_;
};

}  // namespace tailrace::internal
