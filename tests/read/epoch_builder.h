// EpochBuilder: writes epochs straight with the format library, without a session, a transport or threads.
// For tests of what reads epochs: the reader and the command-line tool.
//
// Chunks of the streams of a group are dealt in random order to the group's files and leaders, as a flush
// with several writers would leave them: file order is not stream order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/catalog.h"
#include "format/manifest.h"
#include "storage/storage.h"

namespace tailrace::internal::testing_support {

struct BuiltRegion {
    std::string name;
    std::vector<std::byte> data;
    std::optional<ArrayPiece> array;
};

struct BuiltEpoch {
    std::string job = "built";
    EpochKey key{1, 1};
    uint64_t run_uid = 0x5eed;
    uint32_t file_count = 2;
    uint32_t leaders_per_file = 1;
    uint64_t block_bytes = 4096;
    uint64_t chunk_bytes = 64 << 10;
    uint64_t stripe_bytes = 128 << 10;  // used when there are several leaders
    uint64_t committed_unix_ms = 1700000000000;
    bool has_checksums = true;
    uint64_t seed = 1;  // of the order of chunks
    // Leaders of the last file that have written data and index but no slot: an epoch that was cut off.
    bool last_slot_missing = false;
    std::string shared_dir;  // that captured parts name
    std::vector<std::vector<BuiltRegion>> ranks;
};

// Bytes that differ from region to region and place to place.
std::vector<std::byte> pattern(uint64_t seed, uint64_t bytes);

// The piece [offset, offset + local) of a global array whose element i (row-major) is i, as int32.
BuiltRegion counting_array(const std::string& name, const std::vector<uint64_t>& global,
                           const std::vector<uint64_t>& offset, const std::vector<uint64_t>& local);

// The K files, into `directory` (made when missing). All must succeed; a failure is the status.
Status write_shared_files(Storage& storage, const std::string& directory, const BuiltEpoch& epoch);

// One captured part per rank.
Status write_captured_parts(Storage& storage, const std::string& directory, const BuiltEpoch& epoch);

}  // namespace tailrace::internal::testing_support
