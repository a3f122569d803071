// Rebuild: writes the captured parts that were lost with a node again, from what other nodes keep
// for it, when a session is opened. What comes after (judging, restore, flush) then finds ordinary
// captured parts.
//
//   1. Representatives look for protect objects. All ranks learn of those that could be of use.
//   2. All ranks make the same plan (rebuild_plan.h). Every part and object that it uses is read and
//      checked where it lies. What is damaged counts as lost, and a second plan is made.
//   3. The parts come about under unfinished names, in rounds of exchange(). Each is checked: its
//      header is that of the epoch and of the table, and all its checksums are right.
//   4. All ranks agree. Then the parts of the epoch get their final names; otherwise none does, and
//      the epoch is left as it is.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "capture/local_tier.h"
#include "protect/rebuild_plan.h"
#include "storage/storage.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

struct RebuildContext {
    Transport& transport;
    Storage& local;
    const LocalTier& tier;
    const Topology& topology;
    const std::vector<std::string>& hosts;  // by rank
    std::string job;
    bool sync = false;  // setting local_sync
};

struct Rebuilt {
    KnownParts known;              // what was known, with what was rebuilt, without what was damaged
    std::vector<KnownPart> added;  // what was rebuilt
};

// Collective; the outcome is the same on every rank. `known` is what all ranks know of captured
// parts, `committed` the epochs in the shared directory. An epoch that cannot be rebuilt is no
// failure: the log says why. Not ok: the transport failed; no_space: the newest epoch was not rebuilt.
Result<Rebuilt> rebuild_lost_parts(const RebuildContext& context, KnownParts known,
                                   const std::vector<EpochKey>& committed);

// The protect objects of a job in a directory, by name, ascending. Nothing is opened.
struct ListedObject {
    std::string path;
    ProtectFileName name;
};
Result<std::vector<ListedObject>> list_objects(Storage& storage, const std::string& directory,
                                               const std::string& job);

}  // namespace tailrace::internal
