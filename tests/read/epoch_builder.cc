#include "read/epoch_builder.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "array/hyperslab.h"
#include "base/crc32c.h"
#include "base/units.h"
#include "format/original_files.h"
#include "format/part_file.h"
#include "format/shared_file.h"

namespace tailrace::internal::testing_support {

namespace {

using Bytes = std::vector<std::byte>;

struct BuiltStream {
    StreamInfo info;
    uint64_t apart_bytes = 0;
    Bytes bytes;
};

Result<BuiltStream> build_stream(const BuiltEpoch& epoch, uint32_t rank) {
    PartManifest manifest;
    manifest.rank = rank;
    manifest.rank_count = static_cast<uint32_t>(epoch.ranks.size());
    manifest.has_checksums = epoch.has_checksums;
    for (const BuiltRegion& built : epoch.ranks[rank]) {
        Region region;
        region.name = built.name;
        region.bytes = built.data.size();
        region.array = built.array;
        manifest.files_apart |= region.name == original_files_region;
        manifest.regions.push_back(std::move(region));
    }
    TAILRACE_TRY(lay_out(manifest));
    BuiltStream stream;
    stream.bytes.resize(manifest.stream_bytes);
    for (size_t r = 0; r < manifest.regions.size(); ++r) {
        Region& region = manifest.regions[r];
        const std::span data(epoch.ranks[rank][r].data);
        for (size_t b = 0; b < region.block_crcs.size(); ++b) {
            const size_t from = b * check_block_bytes;
            region.block_crcs[b] =
                crc32c(data.subspan(from, std::min<size_t>(check_block_bytes, data.size() - from)));
        }
        if (!data.empty()) std::memcpy(stream.bytes.data() + region.stream_offset, data.data(), data.size());
    }
    const Bytes head = encode(manifest);
    std::copy(head.begin(), head.end(), stream.bytes.begin());
    stream.info = {rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(head)};
    stream.apart_bytes = apart_bytes(manifest);
    return stream;
}

struct Chunk {
    uint32_t rank = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
};

// The streams of ranks [first, last) into files [first_file, last_file).
Status write_group(Storage& storage, const std::string& directory, const BuiltEpoch& epoch,
                   const std::vector<BuiltStream>& streams, size_t first, size_t last, uint32_t first_file,
                   uint32_t last_file) {
    std::vector<Chunk> chunks;
    SegmentIndex empty_index;
    for (size_t r = first; r < last; ++r) {
        const StreamInfo info = shared_stream(streams[r].info, streams[r].apart_bytes);
        empty_index.streams.push_back(info);
        for (uint64_t at = 0; at < info.stream_bytes; at += epoch.chunk_bytes)
            chunks.push_back({static_cast<uint32_t>(r), at,
                              std::min<uint64_t>(epoch.chunk_bytes, info.stream_bytes - at)});
    }
    std::mt19937_64 random(epoch.seed + first);
    std::shuffle(chunks.begin(), chunks.end(), random);

    // Twice the chunks: a chunk is cut where a stripe ends.
    const uint64_t per_chunk = 2 + epoch.chunk_bytes / epoch.stripe_bytes;
    SharedHeader header;
    header.job = epoch.job;
    header.key = epoch.key;
    header.run_uid = epoch.run_uid;
    header.file_count = epoch.file_count;
    header.rank_count = static_cast<uint32_t>(epoch.ranks.size());
    header.leader_count = epoch.leaders_per_file;
    header.block_bytes = epoch.block_bytes;
    header.index_area_bytes =
        align_up(index_bytes_bound(last - first, chunks.size() * per_chunk), epoch.block_bytes);
    header.stripe_bytes = epoch.leaders_per_file > 1 ? epoch.stripe_bytes : 0;

    struct Segment {
        SegmentIndex index;
        uint64_t next = 0;
    };
    const uint32_t file_count = last_file - first_file;
    std::vector<std::unique_ptr<File>> files;
    std::vector<std::vector<Segment>> segments(file_count);
    for (uint32_t f = 0; f < file_count; ++f) {
        SharedFileName name{epoch.job, epoch.key, first_file + f, epoch.file_count, false};
        name.unfinished = epoch.last_slot_missing && first_file + f + 1 == epoch.file_count;
        TAILRACE_ASSIGN(auto file, storage.open(join_path(directory, to_string(name)), {Access::create_new}));
        files.push_back(std::move(file));
        segments[f].resize(epoch.leaders_per_file, Segment{empty_index, 0});
    }
    for (size_t c = 0; c < chunks.size(); ++c) {
        const auto f = static_cast<uint32_t>(c % file_count);
        const auto leader = static_cast<uint32_t>(random() % epoch.leaders_per_file);
        Segment& segment = segments[f][leader];
        Chunk chunk = chunks[c];
        while (chunk.bytes > 0) {
            const StripePlace place = place_in_stripes(header, leader, segment.next);
            const uint64_t bytes = std::min(chunk.bytes, place.run_bytes);
            TAILRACE_TRY(files[f]->write_at(
                std::span(streams[chunk.rank].bytes).subspan(chunk.stream_offset, bytes), place.file_offset));
            segment.index.extents.push_back({chunk.rank, chunk.stream_offset, bytes, place.file_offset});
            segment.next += align_up(bytes, epoch.block_bytes);
            chunk.stream_offset += bytes;
            chunk.bytes -= bytes;
        }
    }
    for (uint32_t f = 0; f < file_count; ++f) {
        header.file_index = first_file + f;
        TAILRACE_TRY(files[f]->write_at(encode(header), 0));
        for (uint32_t leader = 0; leader < epoch.leaders_per_file; ++leader) {
            SegmentIndex& index = segments[f][leader].index;
            uint64_t data_bytes = 0;
            for (const Extent& extent : index.extents) data_bytes += extent.bytes;
            normalize(index.extents);
            const Bytes encoded = encode(index);
            TAILRACE_TRY(files[f]->write_at(encoded, index_offset(header, leader)));
            if (epoch.last_slot_missing && header.file_index + 1 == epoch.file_count) continue;
            const LeaderSlot slot{leader,     encoded.size(),          crc32c(encoded),
                                  data_bytes, epoch.committed_unix_ms, epoch.run_uid,
                                  epoch.key};
            TAILRACE_TRY(files[f]->write_at(encode(slot, epoch.block_bytes), slot_offset(header, leader)));
        }
        TAILRACE_TRY(files[f]->sync());
        TAILRACE_TRY(files[f]->close());
    }
    return Status();
}

}  // namespace

std::vector<std::byte> pattern(uint64_t seed, uint64_t bytes) {
    std::mt19937_64 random(seed);
    Bytes data(bytes);
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = random();
        std::memcpy(data.data() + i, &word, std::min<uint64_t>(8, bytes - i));
    }
    return data;
}

BuiltRegion counting_array(const std::string& name, const std::vector<uint64_t>& global,
                           const std::vector<uint64_t>& offset, const std::vector<uint64_t>& local) {
    BuiltRegion built{name, {}, ArrayPiece{ElementType::int32, global, offset, local}};
    const Box whole{std::vector<uint64_t>(global.size(), 0), global};
    const Box piece{offset, local};
    built.data.resize(piece.elements() * 4);
    uint64_t at = 0;
    for_each_run(whole, piece, [&](uint64_t start, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i, at += 4) {
            const auto value = static_cast<uint32_t>(start + i);
            std::memcpy(built.data.data() + at, &value, 4);
        }
    });
    return built;
}

Status write_shared_files(Storage& storage, const std::string& directory, const BuiltEpoch& epoch) {
    TAILRACE_TRY(storage.make_directories(directory));
    std::vector<BuiltStream> streams;
    for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank) {
        TAILRACE_ASSIGN(auto stream, build_stream(epoch, rank));
        streams.push_back(std::move(stream));
    }
    const uint64_t ranks = streams.size();
    const uint64_t groups = std::min<uint64_t>(ranks, epoch.file_count);
    size_t first = 0;
    uint32_t first_file = 0;
    for (uint64_t g = 0; g < groups; ++g) {
        size_t last = first;
        while (last < ranks && last * groups / ranks == g) ++last;
        uint32_t last_file = first_file;
        while (last_file < epoch.file_count && last_file * groups / epoch.file_count == g) ++last_file;
        TAILRACE_TRY(write_group(storage, directory, epoch, streams, first, last, first_file, last_file));
        first = last;
        first_file = last_file;
    }
    return storage.sync_directory(directory);
}

Status write_captured_parts(Storage& storage, const std::string& directory, const BuiltEpoch& epoch) {
    TAILRACE_TRY(storage.make_directories(directory));
    for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank) {
        TAILRACE_ASSIGN(auto stream, build_stream(epoch, rank));
        PartHeader header;
        header.job = epoch.job;
        header.key = epoch.key;
        header.run_uid = epoch.run_uid;
        header.rank_count = static_cast<uint32_t>(epoch.ranks.size());
        header.stream = stream.info;
        header.apart_bytes = stream.apart_bytes;
        header.shared_dir = epoch.shared_dir;
        const std::string path =
            join_path(directory, to_string(PartFileName{epoch.job, epoch.key, rank, false}));
        TAILRACE_ASSIGN(auto file, storage.open(path, {Access::create_new}));
        TAILRACE_TRY(file->write_at(stream.bytes, part_header_bytes));
        TAILRACE_TRY(file->write_at(encode(header), 0));
        TAILRACE_TRY(file->close());
    }
    return Status();
}

}  // namespace tailrace::internal::testing_support
