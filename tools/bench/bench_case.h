// What one run of the benchmark does, and what follows from it: the streams, which writer writes
// which chunk, the grid of runs. Pure.
//
// The benchmark plays one leader. `followers` nodes with `processes` processes each have sent it
// their data, which lie in prepared buffers. The data of its own processes lie in files of its
// node-local tier. Source of the method: M. Gossman, B. Nicolae, J. Calhoun et al., "Multithreaded
// aggregated I/O" (ISPDC 2023), sections III and IV.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flush/plan.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

// Which writer takes which received chunk, and where it writes it.
enum class BenchPlacement {
    append,       // as the library does: the next free writer takes the next chunk and appends it
    contiguous,   // eq. 1 of the paper: each writer has one contiguous part of a file
    interleaved,  // eq. 2: chunk by chunk, in turn
};

struct BenchCase {
    uint32_t writers = 4;
    uint32_t files = 1;
    BenchPlacement placement = BenchPlacement::append;
    uint64_t buffer_bytes = 64 << 20;  // also the size of a chunk
    bool fit_chunks = false;           // use the chunk that the library chooses for so little data
    uint32_t buffers = 8;
    uint64_t block_bytes = 0;  // 0: as the file system prefers
    IoEngine engine = IoEngine::automatic;
    uint32_t queue_depth = 32;  // only for io_uring
    DirectIo direct = DirectIo::automatic;
    uint32_t followers = 1;
    uint32_t processes = 8;
    uint64_t process_bytes = 64 << 20;
    uint32_t imbalance_percent = 20;  // sizes differ by up to this much in both directions
    uint64_t seed = 1;
    bool local = true;    // the leader has data of its own
    bool durable = true;  // synced at the end, as the library does
    bool operator==(const BenchCase&) const = default;
};

std::string_view name_of(BenchPlacement placement);
std::string_view name_of(IoEngine engine);
std::string_view name_of(DirectIo direct);
Result<BenchPlacement> parse_placement(const std::string& text);
Result<IoEngine> parse_engine(const std::string& text);
Result<DirectIo> parse_direct(const std::string& text);

// What the numbers of a case may be.
struct CountRange {
    uint32_t least, most;
};
inline constexpr CountRange writer_range{1, 1024}, file_range{1, 1024}, buffer_range{1, 65536},
    queue_depth_range{1, 4096}, process_range{1, 4096}, follower_range{0, 4096}, imbalance_range{0, 90};

// invalid_argument says what is wrong and what is allowed.
Status check_case(const BenchCase& bench);

// Everything in which runs can differ, in one line: "writers=4 files=1 ...".
std::string text_of(const BenchCase& bench);

// Node 0 is the leader. Process p of node n is rank n * processes + p. Equal seeds give equal
// offers.
std::vector<NodeOffer> offers_of(const BenchCase& bench);
uint64_t received_bytes(const BenchCase& bench);
uint64_t local_bytes(const BenchCase& bench);
uint64_t bytes_of(const BenchCase& bench);  // both
// "until durable", or words that say it is not durable.
std::string_view end_text(const BenchCase& bench);

// The block size of a run on a file system that prefers `file_system_block`.
uint64_t block_of(const BenchCase& bench, uint64_t file_system_block);
// The library's plan for it. The names of its files begin with the job's name.
constexpr std::string_view bench_job = "bench";
Result<FlushPlan> plan_of(const BenchCase& bench, uint64_t block_bytes);
// The most that its files take on a disk. The library reserves as much for each file as can go to
// it, so the sum may be well above the data.
uint64_t disk_bytes(const FlushPlan& plan);
// The part of a buffer that is used. No chunk is longer than the longest stream.
uint64_t used_buffer_bytes(const FlushPlan& plan);

struct BenchChunk {
    uint32_t rank = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
};
// The received chunks that each writer writes, in its order. With append all are in the first list,
// and the next free writer takes the next one.
std::vector<std::vector<BenchChunk>> deal_chunks(const BenchCase& bench, const FlushPlan& plan);

// Every combination, in a fixed order. Combinations that differ only in a setting without effect
// (the queue depth of an engine that has none) occur once.
struct BenchGrid {
    std::vector<uint32_t> writers{4}, files{1}, buffers{8}, queue_depths{32}, followers{1};
    std::vector<BenchPlacement> placements{BenchPlacement::append};
    std::vector<uint64_t> buffer_bytes{64 << 20}, block_bytes{0};
    std::vector<IoEngine> engines{IoEngine::automatic};
    std::vector<DirectIo> directs{DirectIo::automatic};
    BenchCase common;  // everything else
};
std::vector<BenchCase> make_grid(const BenchGrid& grid);

}  // namespace tailrace::internal::tool
