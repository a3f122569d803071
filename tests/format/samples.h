// Samples: manifests, captured parts and whole epochs for the tests of the format, for its golden files and
// for the seeds of the fuzz corpus. Everything follows from the arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "format/part_file.h"
#include "format/plan_record.h"
#include "format/shared_file.h"

namespace tailrace::internal {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

uint64_t below(Random& random, uint64_t limit);  // 0 to limit - 1

// Names, sizes and arrays of every kind, laid out, with checksums that belong to no data.
PartManifest random_manifest(Random& random);
ArrayPiece random_piece(Random& random);
PartHeader random_part_header(Random& random);
PlanRecord random_plan_record(Random& random);
SharedHeader random_shared_header(Random& random);

// A manifest with its data: checksums filled in, encoded, the data behind it.
struct Stream {
    PartManifest manifest;
    Bytes bytes;
    StreamInfo info() const;
};
// `manifest` needs names, sizes and arrays; byte i of region r of the rank gets a value that follows from
// rank, r and i.
Stream make_stream(PartManifest manifest);
Bytes region_data(uint32_t rank, size_t region, uint64_t bytes);

Bytes make_part(const Stream& stream, const PartHeader& about);

// How to write an epoch: rank r of R belongs to group floor(r * G / R), file k of K to floor(k * G / K), with
// G = min(R, K); chunks of a group's streams go to its files and their leaders in turn.
struct EpochPlan {
    std::string job = "sample";
    EpochKey key{12, 3};
    uint64_t run_uid = 0x1122334455667788;
    uint32_t file_count = 2;
    uint32_t leaders_per_file = 1;
    uint64_t block_bytes = 512;
    uint64_t stripe_bytes = 2048;  // where there are several leaders
    uint64_t chunk_bytes = 1024;
    uint64_t committed_unix_ms = 1700000000000;
    std::vector<Stream> streams;  // by rank
};
// What the files of the epoch hold, by finished name.
std::map<std::string, Bytes> write_epoch(const EpochPlan& plan);

// The epoch and the captured part of the golden files: version 1, three ranks, a plain region and a global
// array each.
EpochPlan golden_plan();
PartHeader golden_part_header();
// A captured part of epoch 13, whose file lies apart in the shared directory. Since version 1.2.
Bytes golden_part_with_files();
PlanRecord golden_plan_record();

// A few regions for `rank` of an epoch of `rank_count` ranks.
Stream small_stream(Random& random, uint32_t rank, uint32_t rank_count);
EpochPlan random_plan(Random& random);

// After a test changed a record: its size and checksum made right again.
void reseal(Bytes& bytes, uint64_t offset, uint64_t record_bytes);
template <class T>
void store(Bytes& bytes, uint64_t offset, T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
        bytes[offset + i] = static_cast<std::byte>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff);
}

}  // namespace tailrace::internal
