// RebuildPlan: which captured epochs have lost parts that other nodes can give back, and how. Pure;
// every rank comes to the same plan from the same findings.
//
// The job that looks for the parts need not be like the one that captured them: it may have other
// nodes, fewer, or its ranks in another order. So members of a set are known by their parts (rank and
// checksum of the manifest), not by where they were, and parts and objects count wherever they are.
//
// An epoch is planned whole or not at all. Where it cannot be, a sentence says what is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/local_tier.h"
#include "protect/coding.h"
#include "protect/protect_file.h"
#include "transport/topology.h"

namespace tailrace::internal {

// A protect object, as its node's representative found it. Its checksums stay with that node.
struct FoundObject {
    int node = 0;
    std::string path;
    ProtectHead head;
};

struct Findings {
    std::vector<KnownPart> parts;
    std::vector<FoundObject> objects;
    std::vector<EpochKey> committed;
};

// What is left of a set, for one epoch.
struct SetRemains {
    ProtectHead tables;  // of any of its objects: members and redundancy
    // By position, then as in the member's list. Empty: it is lost.
    std::vector<std::vector<std::optional<KnownPart>>> parts;
    std::vector<std::optional<FoundObject>> objects;  // by position
    bool has_all(uint32_t position) const;
};

// A part to be written again.
struct LostPart {
    size_t set = 0;
    uint32_t position = 0;  // of the member that had it
    StreamInfo stream;
    uint64_t logical_offset = 0;  // where it begins in the member's logical part
    int target = 0;               // the node that writes it
};

struct EpochRebuild {
    EpochIdentity identity;
    std::vector<SetRemains> sets;
    std::vector<LostPart> lost;  // ascending by rank
};

struct RebuildPlan {
    std::vector<EpochRebuild> epochs;   // newest first
    std::vector<std::string> refusals;  // of epochs that have protect objects and cannot be completed
};

// Whether a rebuild of this epoch could be of use, now or when parts of it turn out to be damaged: it is
// newer than the newest committed epoch, and is none that was left behind (catalog/lineage.h).
bool worth_keeping(const Findings& findings, const EpochIdentity& identity);

RebuildPlan plan_rebuild(const Findings& findings, const Topology& topology);

// How a run of bytes of a lost part comes about: the sum of the products. Each source is bytes
// [offset, offset + bytes) of the logical part of a member, or of a piece of an object. `bytes` is
// less than asked for where zeros follow.
struct RebuildTerm {
    uint8_t factor = 1;
    bool from_object = false;
    uint32_t position = 0;  // of the member, or of the object
    uint32_t piece = 0;     // of an object
    uint64_t offset = 0, bytes = 0;
};
// For `bytes` bytes at `offset` of the lost part. They must not reach over an end of run_end().
std::vector<RebuildTerm> terms_of(const SetRemains& set, const LostPart& lost, uint64_t offset,
                                  uint64_t bytes);
// Where the run that begins at `offset` must end at the latest: at a check block of every source, and
// at the end of the part.
uint64_t run_end(const SetRemains& set, const LostPart& lost, uint64_t offset);

}  // namespace tailrace::internal
