// Reader: implements EpochReader. epoch_streams knows where streams lie, and reads manifests and
// blocks (single blocks in epoch_reader_stream). epoch_arrays puts global arrays together. This
// file has four members that build on them:
//
//   read_regions    reads the regions' check blocks straight into the targets
//   read_in_pieces  reads a region piece by piece, through one bounded buffer
//   verify          reads the whole stream in batches, through one bounded buffer
//   verify_regions  does the same with some of its regions
#include "read/epoch_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/invariant.h"
#include "base/nearest.h"
#include "read/epoch_arrays.h"
#include "read/epoch_streams.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t scattered_bytes = 32 << 20;  // the most that read_scattered() holds

// So little is read without buffers, and memory of allocate() begins at no page. Such reads go through
// the page cache.
static_assert(EpochReader::mapped_memory_bytes <= second_thread_bytes);

class Reader final : public EpochReader {
  public:
    Reader(Storage& local, Storage& shared, EpochSources sources, DirectIo direct)
        : streams_(local, shared, std::move(sources), direct), arrays_(streams_) {}

    Status open_files() override { return streams_.open_files(); }

    EpochKey key() const override { return streams_.key(); }
    uint32_t rank_count() const override { return streams_.rank_count(); }

    Result<const PartManifest*> manifest(uint32_t rank) override;
    Result<std::vector<std::byte>> manifest_bytes(uint32_t rank) override {
        return streams_.manifest_bytes(rank);
    }
    Status keep_manifest(uint32_t rank, std::span<const std::byte> bytes) override {
        return streams_.keep_manifest(rank, bytes);
    }
    Result<uint64_t> region_bytes(uint32_t rank, std::string_view name) override;
    Status read_regions(uint32_t rank, std::span<const RegionTarget> targets) override;
    Status read_in_pieces(uint32_t rank, std::string_view name, uint64_t memory_bytes,
                          const TakePiece& take) override;
    Result<std::vector<std::optional<RegionPlace>>> places(uint32_t rank) override;
    Result<std::vector<GlobalArray>> arrays() override { return arrays_.list(); }
    Result<GlobalArray> array(std::string_view name) override { return arrays_.one(name); }
    Status read_boxes(std::span<const BoxTarget> boxes) override { return arrays_.read_boxes(boxes); }
    Status verify(uint32_t rank, const std::function<void(uint64_t)>& progress,
                  uint64_t memory_bytes) override;
    Status verify_regions(uint32_t rank, std::span<const std::string> names) override;

  private:
    // Gets what a batch came to, where it ends in the stream, and its bytes. A failure of its own ends
    // the reading.
    using AfterBatch =
        std::function<Status(const Status& outcome, uint64_t end, std::span<const std::byte> bytes)>;
    Result<uint32_t> region_number(const SavedRank& saved, std::string_view name) const;
    Status read_scattered(const SavedRank& saved, uint32_t number, const RegionTarget& target);
    Status read_pieces(const SavedRank& saved, uint32_t number, uint64_t memory_bytes, const TakePiece& take);
    Status read_batches(const SavedRank& saved, std::span<const uint32_t> numbers, uint64_t memory_bytes,
                        const AfterBatch& after);

    EpochStreams streams_;
    EpochArrays arrays_;
};

Result<const PartManifest*> Reader::manifest(uint32_t rank) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    return &saved->manifest;
}

Result<uint32_t> Reader::region_number(const SavedRank& saved, std::string_view name) const {
    auto found = saved.region_by_name.find(name);
    if (found != saved.region_by_name.end()) return found->second;
    const std::string missing =
        fmt::format("{} has no region '{}'", streams_.name_of(saved.manifest.rank), name);
    if (saved.manifest.regions.empty()) return Status(Code::not_found, missing + "; it saved none");
    std::vector<std::string_view> names;
    for (const Region& region : saved.manifest.regions) names.push_back(region.name);
    const std::string which =
        names.size() > 1 ? fmt::format("the nearest of its {} regions", names.size()) : "its only region";
    return Status(Code::not_found, fmt::format("{}; {} is '{}'", missing, which, nearest_name(name, names)));
}

Result<uint64_t> Reader::region_bytes(uint32_t rank, std::string_view name) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    TAILRACE_ASSIGN(const uint32_t number, region_number(*saved, name));
    return saved->manifest.regions[number].bytes;
}

Status Reader::read_regions(uint32_t rank, std::span<const RegionTarget> targets) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    std::vector<StreamBlock> blocks;
    std::vector<std::pair<uint32_t, const RegionTarget*>> scattered;
    for (const RegionTarget& target : targets) {
        TAILRACE_ASSIGN(const uint32_t number, region_number(*saved, target.name));
        const Region& region = saved->manifest.regions[number];
        if (region.bytes != target.memory.size())
            return Status(
                Code::invalid_argument,
                fmt::format("region '{}' of {} has {} bytes, but its memory has {}; nothing was read",
                            region.name, streams_.name_of(rank), region.bytes, target.memory.size()));
        if (!target.strides.one_block()) {
            scattered.emplace_back(number, &target);
            continue;
        }
        for (uint64_t b = 0; b < block_count(region); ++b)
            blocks.push_back(
                block_of(saved->manifest, number, b, target.memory.data() + b * check_block_bytes));
    }
    TAILRACE_TRY(streams_.read(*saved, std::move(blocks)));
    for (const auto& [number, target] : scattered) TAILRACE_TRY(read_scattered(*saved, number, *target));
    return {};
}

Result<std::vector<std::optional<RegionPlace>>> Reader::places(uint32_t rank) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    std::vector<std::optional<RegionPlace>> all;
    for (const Region& region : saved->manifest.regions) all.push_back(streams_.place_of(*saved, region));
    return all;
}

// Reads a region whose bytes do not lie one after another in memory.
Status Reader::read_scattered(const SavedRank& saved, uint32_t number, const RegionTarget& target) {
    return read_pieces(saved, number, scattered_bytes,
                       [&](uint64_t offset, std::span<const std::byte> piece) {
                           scatter(piece, target.memory.data(), target.strides, offset);
                           return Status();
                       });
}

Status Reader::read_in_pieces(uint32_t rank, std::string_view name, uint64_t memory_bytes,
                              const TakePiece& take) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    TAILRACE_ASSIGN(const uint32_t number, region_number(*saved, name));
    return read_pieces(*saved, number, memory_bytes, take);
}

Status Reader::read_pieces(const SavedRank& saved, uint32_t number, uint64_t memory_bytes,
                           const TakePiece& take) {
    uint64_t offset = 0;
    return read_batches(saved, {&number, 1}, memory_bytes,
                        [&](const Status& outcome, uint64_t, std::span<const std::byte> piece) {
                            TAILRACE_TRY(outcome);
                            TAILRACE_TRY(take(offset, piece));
                            offset += piece.size();
                            return Status();
                        });
}

Status Reader::verify(uint32_t rank, const std::function<void(uint64_t)>& progress, uint64_t memory_bytes) {
    // The kept table of regions will not do, because the table is part of what is checked.
    TAILRACE_ASSIGN(const auto fresh, streams_.read_saved(rank));
    const PartManifest& manifest = fresh->manifest;
    uint64_t reported = 0;
    const auto report_up_to = [&](uint64_t stream_offset) {
        if (progress && stream_offset > reported) progress(stream_offset - reported);
        reported = std::max(reported, stream_offset);
    };
    report_up_to(manifest.manifest_bytes);

    std::vector<uint32_t> all(manifest.regions.size());
    std::iota(all.begin(), all.end(), 0);
    Status first_failure;
    size_t failed_batches = 0;
    TAILRACE_TRY(read_batches(*fresh, all, memory_bytes, [&](const Status& outcome, uint64_t end, auto) {
        // Go on after a failure, so that the log names everything that is damaged.
        if (!outcome.ok() && failed_batches++ == 0) first_failure = outcome;
        report_up_to(end);
        return Status();
    }));
    report_up_to(manifest.stream_bytes);
    if (failed_batches > 1)
        return Status(first_failure.code(), fmt::format("{}; {} later stretches are damaged as well",
                                                        first_failure.message(), failed_batches - 1));
    return first_failure;
}

Status Reader::verify_regions(uint32_t rank, std::span<const std::string> names) {
    TAILRACE_ASSIGN(const SavedRank* saved, streams_.saved(rank));
    std::vector<uint32_t> numbers;
    for (const std::string& name : names) {
        TAILRACE_ASSIGN(const uint32_t number, region_number(*saved, name));
        numbers.push_back(number);
    }
    return read_batches(*saved, numbers, mapped_memory_bytes,
                        [](const Status& outcome, uint64_t, auto) { return outcome; });
}

// Reads these regions' check blocks, as many at a time as `memory_bytes` hold.
Status Reader::read_batches(const SavedRank& saved, std::span<const uint32_t> numbers, uint64_t memory_bytes,
                            const AfterBatch& after) {
    INVARIANT(memory_bytes >= check_block_bytes);
    const PartManifest& manifest = saved.manifest;
    uint64_t total = 0;
    for (const uint32_t number : numbers) total += manifest.regions[number].bytes;
    const uint64_t scratch_bytes = std::min(memory_bytes, total);
    TAILRACE_ASSIGN(auto scratch,
                    allocate(scratch_bytes, fmt::format("reading {}", streams_.name_of(manifest.rank))));
    std::vector<StreamBlock> batch;
    uint64_t batch_bytes = 0;
    const auto read_batch = [&] {
        const uint64_t end = batch.back().stream_offset + batch.back().memory.size();
        const Status outcome = streams_.read(saved, std::move(batch));
        batch.clear();
        return after(outcome, end, {scratch.get(), std::exchange(batch_bytes, 0)});
    };
    for (const uint32_t number : numbers) {
        for (uint64_t b = 0; b < block_count(manifest.regions[number]); ++b) {
            const uint64_t left = manifest.regions[number].bytes - b * check_block_bytes;
            if (batch_bytes + std::min<uint64_t>(left, check_block_bytes) > scratch_bytes)
                TAILRACE_TRY(read_batch());
            batch.push_back(block_of(manifest, number, b, scratch.get() + batch_bytes));
            batch_bytes += batch.back().memory.size();
        }
    }
    return batch.empty() ? Status() : read_batch();
}

}  // namespace

// ---- opening ------------------------------------------------------------------------------------

Result<std::unique_ptr<EpochReader>> EpochReader::open(Storage& local, Storage& shared, EpochSources sources,
                                                       DirectIo direct) {
    const std::string name = to_string(sources.key);
    if (sources.rank_count == 0 || sources.rank_count > max_ranks)
        return Status(Code::invalid_argument,
                      fmt::format("{} cannot be opened for {} ranks", name, sources.rank_count));
    for (const CapturedPart& part : sources.local_parts) {
        const PartHeader& header = part.header;
        if (header.key != sources.key || header.rank_count != sources.rank_count ||
            header.stream.rank >= sources.rank_count)
            return Status(
                Code::invalid_argument,
                fmt::format("captured part '{}' is rank {} of {} of {}, not one of the {} ranks of {}",
                            part.path, header.stream.rank, header.rank_count, to_string(header.key),
                            sources.rank_count, name));
    }
    if (sources.shared) {
        const SharedEpoch& epoch = *sources.shared;
        bool fits = epoch.key == sources.key && epoch.rank_count == sources.rank_count &&
                    epoch.streams.size() == sources.rank_count;
        for (size_t rank = 0; fits && rank < epoch.streams.size(); ++rank)
            fits = epoch.streams[rank].info.rank == rank;
        if (!fits)
            return Status(Code::invalid_argument,
                          fmt::format("the shared files given are {} with {} ranks, not {} with {}",
                                      to_string(epoch.key), epoch.streams.size(), name, sources.rank_count));
    }
    return std::unique_ptr<EpochReader>(std::make_unique<Reader>(local, shared, std::move(sources), direct));
}

}  // namespace tailrace::internal
