#include "bench/bench_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <type_traits>

#include "base/units.h"

namespace tailrace::internal::tool {

namespace {

constexpr uint64_t most_run_bytes = uint64_t{1} << 50;  // no sum of sizes overflows
constexpr std::array<std::string_view, 3> placement_names = {"append", "contiguous", "interleaved"};
constexpr std::array<std::string_view, 3> engine_names = {"auto", "posix", "io_uring"};
constexpr std::array<std::string_view, 4> direct_names = {"off", "auto", "on", "uncached"};

template <class Value, size_t count>
Result<Value> parse_name(std::string_view what, const std::array<std::string_view, count>& names,
                         const std::string& text) {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end())
        return Status(Code::invalid_argument, fmt::format("{} \"{}\" is not known: use one of {}", what, text,
                                                          fmt::join(names, ", ")));
    return static_cast<Value>(found - names.begin());
}

Status bad(std::string_view why) {
    return Status(Code::invalid_argument, std::string(why));
}

Status check_range(uint32_t value, CountRange range, std::string_view what) {
    if (value >= range.least && value <= range.most) return Status();
    return bad(fmt::format("{} {}: {} to {} are possible", value, what, range.least, range.most));
}

// All received chunks in the order of the plan: by rank, then by place in the stream.
std::vector<BenchChunk> received_chunks(const FlushPlan& plan) {
    std::vector<BenchChunk> chunks;
    for (const NodeOffer& offer : plan.offers) {
        if (offer.node == plan.leaders.front()) continue;
        for (const StreamInfo& stream : offer.streams)
            for (uint64_t at = 0; at < stream.stream_bytes; at += plan.chunk_bytes)
                chunks.push_back({stream.rank, at, std::min(plan.chunk_bytes, stream.stream_bytes - at)});
    }
    return chunks;
}

}  // namespace

std::string_view name_of(BenchPlacement placement) {
    return placement_names[static_cast<size_t>(placement)];
}
std::string_view name_of(IoEngine engine) {
    return engine_names[static_cast<size_t>(engine)];
}
std::string_view name_of(DirectIo direct) {
    return direct_names[static_cast<size_t>(direct)];
}
Result<BenchPlacement> parse_placement(const std::string& text) {
    return parse_name<BenchPlacement>("placement", placement_names, text);
}
Result<IoEngine> parse_engine(const std::string& text) {
    return parse_name<IoEngine>("engine", engine_names, text);
}
Result<DirectIo> parse_direct(const std::string& text) {
    return parse_name<DirectIo>("direct I/O", direct_names, text);
}

std::string text_of(const BenchCase& bench) {
    return fmt::format(
        "writers={} files={} placement={} buffer={}x{} fit={} block={} engine={} depth={} direct={} "
        "followers={} "
        "processes={} size={} imbalance={} seed={} local={} durable={}",
        bench.writers, bench.files, name_of(bench.placement), bench.buffers, bench.buffer_bytes,
        bench.fit_chunks, bench.block_bytes, name_of(bench.engine), bench.queue_depth, name_of(bench.direct),
        bench.followers, bench.processes, bench.process_bytes, bench.imbalance_percent, bench.seed,
        bench.local, bench.durable);
}

Status check_case(const BenchCase& bench) {
    TAILRACE_TRY(check_range(bench.writers, writer_range, "writers"));
    TAILRACE_TRY(check_range(bench.files, file_range, "files"));
    TAILRACE_TRY(check_range(bench.buffers, buffer_range, "buffers"));
    const uint64_t buffer = bench.buffer_bytes, block = bench.block_bytes;
    if (buffer == 0 || buffer % (256 * KiB) != 0 || buffer > GiB)
        return bad(fmt::format(
            "--buffer: a buffer of {} bytes: it must be a multiple of 256KiB, and at most 1GiB", buffer));
    if (block != 0 && (block < 4096 || (block & (block - 1)) != 0 || buffer % block != 0))
        return bad(fmt::format(
            "--block: a block of {} bytes and a buffer of {}: a block must be a power of two from 4KiB "
            "on that divides the buffer, or 0 for the file system's",
            block, buffer));
    TAILRACE_TRY(check_range(bench.queue_depth, queue_depth_range, "requests in flight"));
    TAILRACE_TRY(check_range(bench.processes, process_range, "processes"));
    TAILRACE_TRY(check_range(bench.followers, follower_range, "followers"));
    if (bench.followers == 0 && !bench.local)
        return bad("--followers 0 and --no-local: there is nothing to write");
    if (bench.process_bytes < 4096 || bench.process_bytes > (uint64_t{1} << 40))
        return bad(
            fmt::format("--size: processes of {} bytes: 4KiB to 1TiB are possible", bench.process_bytes));
    TAILRACE_TRY(check_range(bench.imbalance_percent, imbalance_range, "percent of imbalance"));
    if (bench.process_bytes > most_run_bytes / bench.processes / (bench.followers + uint64_t{1}))
        return bad(fmt::format("{} nodes with {} processes of {} bytes: a run may have 1PiB at most",
                               bench.followers + uint64_t{1}, bench.processes, bench.process_bytes));
    return Status();
}

std::vector<NodeOffer> offers_of(const BenchCase& bench) {
    std::mt19937_64 random(bench.seed);
    std::vector<NodeOffer> offers;
    const auto spread = static_cast<double>(bench.imbalance_percent) / 100;
    for (uint32_t node = 0; node <= bench.followers; ++node) {
        NodeOffer offer{static_cast<int>(node), {}};
        for (uint32_t process = 0; process < bench.processes; ++process) {
            // 2^53 steps from -1 to 1: the same numbers with every standard library.
            const double step = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
            const auto bytes =
                static_cast<uint64_t>(static_cast<double>(bench.process_bytes) * (1 + spread * step));
            if (node > 0 || bench.local)
                offer.streams.push_back(
                    {node * bench.processes + process, std::max<uint64_t>(1, bytes), 0, 0});
        }
        offers.push_back(std::move(offer));
    }
    return offers;
}

uint64_t received_bytes(const BenchCase& bench) {
    uint64_t bytes = 0;
    for (const NodeOffer& offer : offers_of(bench)) bytes += offer.node == 0 ? 0 : offer.bytes();
    return bytes;
}

uint64_t local_bytes(const BenchCase& bench) {
    return offers_of(bench).front().bytes();
}

uint64_t bytes_of(const BenchCase& bench) {
    return received_bytes(bench) + local_bytes(bench);
}

std::string_view end_text(const BenchCase& bench) {
    return bench.durable ? "until durable" : "until committed without syncs";
}

uint64_t block_of(const BenchCase& bench, uint64_t file_system_block) {
    uint64_t block = bench.block_bytes != 0 ? bench.block_bytes : file_system_block;
    while (bench.buffer_bytes % block != 0) block /= 2;
    return block;
}

Result<FlushPlan> plan_of(const BenchCase& bench, uint64_t block_bytes) {
    PlanSettings settings;
    settings.file_count = bench.files;
    settings.chunk_bytes = bench.buffer_bytes;
    settings.block_bytes = block_bytes;
    settings.placement =
        bench.placement == BenchPlacement::append ? Placement::append : Placement::contiguous;
    Group group;
    group.last_node = static_cast<int>(bench.followers) + 1;
    group.last_file = bench.files;
    TAILRACE_ASSIGN(auto plan,
                    make_plan(std::string(bench_job), {1, 1}, bench.seed,
                              (bench.followers + 1) * bench.processes, group, offers_of(bench), settings));
    plan.leaders = {0};  // the benchmark has one leader
    // The library would fit its chunks to so little data. A grid must measure the sizes that it
    // names.
    if (!bench.fit_chunks) plan.chunk_bytes = bench.buffer_bytes;
    TAILRACE_TRY(check_plan(plan));
    return plan;
}

uint64_t disk_bytes(const FlushPlan& plan) {
    uint64_t bytes = 0;
    for (uint32_t file = plan.group.first_file; file < plan.group.last_file; ++file)
        bytes += expected_file_bytes(plan, file);
    return bytes;
}

uint64_t used_buffer_bytes(const FlushPlan& plan) {
    uint64_t longest = 0;
    for (const NodeOffer& offer : plan.offers)
        for (const StreamInfo& stream : offer.streams) longest = std::max(longest, stream.stream_bytes);
    return std::min(plan.chunk_bytes, align_up(longest, plan.block_bytes));
}

std::vector<std::vector<BenchChunk>> deal_chunks(const BenchCase& bench, const FlushPlan& plan) {
    std::vector<std::vector<BenchChunk>> dealt(bench.writers);
    const std::vector<BenchChunk> chunks = received_chunks(plan);
    if (bench.placement == BenchPlacement::append) {
        dealt.front() = chunks;
        return dealt;
    }
    if (bench.placement == BenchPlacement::interleaved) {
        for (size_t i = 0; i < chunks.size(); ++i) dealt[i % dealt.size()].push_back(chunks[i]);
        return dealt;
    }
    // The chunks of a file, in the order of their places, go in equal runs to the writers of that
    // file. Writer t has file t mod files. If there are fewer writers than files, a writer has
    // several files, one after the other.
    for (uint32_t file = 0; file < bench.files; ++file) {
        std::vector<BenchChunk> of_file;
        for (const BenchChunk& chunk : chunks)
            if (chunk.stream_offset / plan.chunk_bytes % bench.files == file) of_file.push_back(chunk);
        std::vector<uint32_t> writers;
        for (uint32_t writer = file % bench.writers; writer < bench.writers; writer += bench.files)
            writers.push_back(writer);
        for (size_t i = 0; i < of_file.size(); ++i)
            dealt[writers[i * writers.size() / of_file.size()]].push_back(of_file[i]);
    }
    return dealt;
}

std::vector<BenchCase> make_grid(const BenchGrid& grid) {
    std::vector<BenchCase> cases;
    BenchCase bench = grid.common;
    for (uint32_t followers : grid.followers)
        for (BenchPlacement placement : grid.placements)
            for (uint32_t files : grid.files)
                for (uint32_t writers : grid.writers)
                    for (uint64_t buffer_bytes : grid.buffer_bytes)
                        for (uint32_t buffers : grid.buffers)
                            for (uint64_t block_bytes : grid.block_bytes)
                                for (DirectIo direct : grid.directs)
                                    for (IoEngine engine : grid.engines)
                                        for (uint32_t depth : grid.queue_depths) {
                                            bench.followers = followers;
                                            bench.placement = placement;
                                            bench.files = files;
                                            bench.writers = writers;
                                            bench.buffer_bytes = buffer_bytes;
                                            bench.buffers = buffers;
                                            bench.block_bytes = block_bytes;
                                            bench.direct = direct;
                                            bench.engine = engine;
                                            bench.queue_depth =
                                                engine == IoEngine::posix ? grid.queue_depths.front() : depth;
                                            if (std::find(cases.begin(), cases.end(), bench) == cases.end())
                                                cases.push_back(bench);
                                        }
    return cases;
}

}  // namespace tailrace::internal::tool
