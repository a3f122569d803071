// Judging arrays: how whoever must say that an epoch's arrays can be restored comes to know it from ranks
// that hold the tables. Pure, but for judge_together.
//
//   1. Everybody's digests of their tables, combined. Equal to those of an epoch that was found good: it is
//   good.
//   2. Else a summary of all arrays (array_summary.h). All well: it is good.
//   3. Else the pieces of the first array that is not, for the sentence (array_check.h). That is the last
//   question.
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
    bool of_one = false;  // the pieces of the array with this name; else a summary of all
    Residues name = {};
    uint64_t others = 0;  // further arrays that are at fault
};

struct SavedPiece {
    uint32_t rank = 0;
    std::string name;
    ArrayPiece piece;
};

// What answers a question, of one rank or of several.
struct ArrayFacts {
    Status failure;  // the first of a rank whose table could not be read
    ArraySummary summary;
    std::vector<SavedPiece> pieces;
    void add(const ArrayPoints& points, const ArrayQuestion& question, uint32_t rank,
             std::span<const NamedPiece> table);
    void merge(ArrayFacts other);
};
std::vector<std::byte> encode(const ArrayFacts& facts);
Result<ArrayFacts> decode_array_facts(std::span<const std::byte> bytes);

// A captured part of which a node knows.
struct PartPlace {
    EpochKey key;
    std::string path;
};
// Of the parts' tables of regions, read from their files one after the other.
ArrayFacts facts_of_parts(Storage& local, const ArrayPoints& points, const ArrayQuestion& question,
                          std::span<const PartPlace> parts);

// Reads every byte of the parts and compares the checksums: ok, or what is wrong with the first bad one.
Status verify_parts(Storage& local, std::span<const PartPlace> parts);

// What follows from everybody's facts: the verdict (ok, or why the epoch is refused), or the next question.
struct ArrayAnswer {
    std::optional<Status> verdict;
    ArrayQuestion next = {};
};
ArrayAnswer judge_arrays(const ArrayQuestion& asked, ArrayFacts facts, uint32_t rank_count);

// Collective, where ranks may only communicate in collective calls: facts go through allgather, which brings
// everybody's to everybody, `most_entries` arrays of all ranks at a time (of some 64 bytes each); rank 0
// judges. `facts` says what this rank knows. The answer has a verdict, the same on every rank; a failed
// collective is the status.
inline constexpr size_t most_gathered_entries = 1 << 20;
Result<ArrayAnswer> judge_together(Transport& transport, uint32_t rank_count,
                                   const std::function<ArrayFacts(const ArrayQuestion&)>& facts,
                                   size_t most_entries = most_gathered_entries);

}  // namespace tailrace::internal
