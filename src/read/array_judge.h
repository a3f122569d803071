// Judging arrays: finds out whether an epoch's arrays can be restored, by asking the ranks that
// hold the tables. The functions are pure, except those that read files (facts_of_parts,
// verify_parts) or communicate (judge_together).
//
//   1. Combine the digests of all ranks' tables. If the result equals that of an epoch that was
//      found good, this epoch is good.
//   2. Otherwise ask for a summary of all arrays (array_summary.h). If all arrays are well, the
//      epoch is good.
//   3. Otherwise ask for the pieces of the first array that is not, to make the sentence
//      (array_check.h). That is the last question.
//
// Facts of several ranks are merged on their way, in any order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/array_summary.h"
#include "base/status.h"
#include "format/part_file.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace tailrace::internal {

struct ArrayQuestion {
    bool of_one = false;  // asks for the pieces of the array `name`; else for a summary of all
    Residues name = {};
    uint64_t others = 0;  // how many more arrays are at fault
};

struct SavedPiece {
    uint32_t rank = 0;
    std::string name;
    ArrayPiece piece;
};

// The answer to a question, from one rank or merged from several.
struct ArrayFacts {
    Status failure;  // the first one, if a rank's table could not be read
    ArraySummary summary;
    std::vector<SavedPiece> pieces;
    void add(const ArrayPoints& points, const ArrayQuestion& question, uint32_t rank,
             std::span<const NamedPiece> table);
    void merge(ArrayFacts other);
};
std::vector<std::byte> encode(const ArrayFacts& facts);
Result<ArrayFacts> decode_array_facts(std::span<const std::byte> bytes);

// A captured part that a node knows.
struct PartPlace {
    EpochKey key;
    std::string path;
    uint64_t offset = 0;  // as in CapturedPart
};
// Reads the parts' tables of regions from their files, one after the other, and answers the
// question.
ArrayFacts facts_of_parts(Storage& local, const ArrayPoints& points, const ArrayQuestion& question,
                          std::span<const PartPlace> parts);

// Reads every byte of the parts and compares the checksums. Returns ok, or what is wrong with the
// first bad part. `memory_bytes`: as of EpochReader::verify.
Status verify_parts(Storage& local, std::span<const PartPlace> parts, uint64_t memory_bytes);

// What follows from all ranks' facts: the verdict (ok, or why the epoch is refused), or the next
// question.
struct ArrayAnswer {
    std::optional<Status> verdict;
    ArrayQuestion next = {};
};
ArrayAnswer judge_arrays(const ArrayQuestion& asked, ArrayFacts facts, uint32_t rank_count);

// The same for ranks that may communicate only in collective calls; collective. Allgather brings
// all facts to all ranks, `max_entries` arrays of all ranks at a time (of some 64 bytes each), and
// rank 0 judges. `facts` answers a question for this rank. The answer always has a verdict, the
// same on every rank. Fails only if a collective call fails.
inline constexpr size_t max_gathered_entries = 1 << 20;
Result<ArrayAnswer> judge_together(Transport& transport, uint32_t rank_count,
                                   const std::function<ArrayFacts(const ArrayQuestion&)>& facts,
                                   size_t max_entries = max_gathered_entries);

}  // namespace tailrace::internal
