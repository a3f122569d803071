#include "format/samples.h"

#include <algorithm>
#include <stdexcept>

#include "base/crc32c.h"
#include "base/units.h"
#include "format/file_table.h"
#include "format/frame.h"
#include "format/original_files.h"

namespace tailrace::internal {

namespace {

// The samples' arguments are the tests' own: what does not fit is a mistake in a test.
void must(const Status& status) {
    if (!status.ok()) throw std::logic_error(status.to_string());
}

std::string random_name(Random& random, size_t number) {
    static const std::string pieces[] = {"x",        "velocity.", "grid/", "Dichte \xc3\xa4 ",
                                         "\xff\xfe", "layers.0.w"};
    std::string name = pieces[below(random, 6)];
    if (below(random, 50) == 0) name += std::string(below(random, 4000), 'n');
    return name + std::to_string(number);
}

std::string random_job(Random& random) {
    static constexpr std::string_view characters = "abcXYZ019-_";
    std::string job(1 + below(random, 100), 'j');
    for (char& c : job) c = characters[below(random, characters.size())];
    return job;
}

uint64_t random_size(Random& random) {
    switch (below(random, 6)) {
        case 0:
            return 0;
        case 1:
            return below(random, 100);
        case 2:
            return below(random, 100000);
        case 3:
            return check_block_bytes * below(random, 4);
        case 4:
            return large_region_bytes - 1 + below(random, 3);
        default:
            return below(random, 40 * MiB);
    }
}

}  // namespace

uint64_t below(Random& random, uint64_t limit) {
    return random() % limit;
}

ArrayPiece random_piece(Random& random) {
    ArrayPiece piece;
    piece.type = static_cast<ElementType>(below(random, element_type_count));
    size_t dimensions = 1 + below(random, below(random, 4) == 0 ? max_dimensions : 3);
    uint64_t most = dimensions > 3 ? 2 : 40;
    for (size_t d = 0; d < dimensions; ++d) {
        uint64_t whole = below(random, most + 1);
        uint64_t offset = below(random, whole + 1);
        piece.global_shape.push_back(whole);
        piece.offset.push_back(offset);
        piece.local_shape.push_back(below(random, whole - offset + 1));
    }
    piece.may_have_gaps = below(random, 4) == 0;
    piece.may_overlap = below(random, 4) == 0;
    if (below(random, 4) == 0) {
        piece.offset.assign(dimensions, 0);
        piece.global_shape = piece.local_shape;
        piece.may_have_gaps = piece.may_overlap = false;
        piece.is_list = true;
    }
    return piece;
}

PartManifest random_manifest(Random& random) {
    PartManifest manifest;
    manifest.rank_count = 1 + static_cast<uint32_t>(below(random, 1000));
    manifest.rank = static_cast<uint32_t>(below(random, manifest.rank_count));
    manifest.has_checksums = below(random, 4) != 0;
    manifest.files_apart = below(random, 4) == 0;
    size_t count = below(random, 8) == 0 ? below(random, 200) : below(random, 8);
    for (size_t i = 0; i < count; ++i) {
        Region region;
        region.name = random_name(random, i);
        region.bytes = random_size(random);
        if (below(random, 3) == 0) {
            region.array = random_piece(random);
            region.bytes = array_bytes(*region.array);
        }
        manifest.regions.push_back(std::move(region));
    }
    must(lay_out(manifest));
    for (auto& region : manifest.regions)
        for (auto& crc : region.block_crcs) crc = static_cast<uint32_t>(random());
    return manifest;
}

PartHeader random_part_header(Random& random) {
    PartHeader header;
    header.job = random_job(random);
    header.key = {random(), static_cast<uint32_t>(random())};
    header.run_uid = random();
    header.rank_count = 1 + static_cast<uint32_t>(below(random, max_ranks));
    header.sequence = random();
    header.for_shared = below(random, 2) == 0;
    header.stream.rank = static_cast<uint32_t>(below(random, header.rank_count));
    header.stream.manifest_bytes = stream_alignment * (1 + below(random, 100));
    header.stream.stream_bytes = header.stream.manifest_bytes + below(random, uint64_t{1} << 50);
    header.stream.manifest_crc = static_cast<uint32_t>(random());
    if (below(random, 2) == 0)
        header.apart_bytes = below(random, header.stream.stream_bytes - header.stream.manifest_bytes + 1);
    if (below(random, 4) != 0) {
        header.shared_dir.assign(1 + below(random, max_part_directory_bytes), 'd');
        header.shared_dir.front() = '/';
    }
    return header;
}

PlanRecord random_plan_record(Random& random) {
    PlanRecord record;
    record.job = random_job(random);
    record.key = {random(), static_cast<uint32_t>(random())};
    record.run_uid = random();
    record.shared_dir.assign(1 + below(random, 100), 'd');
    record.shared_dir.front() = '/';
    const auto nodes = static_cast<uint32_t>(1 + below(random, 9));
    record.first_node = static_cast<uint32_t>(below(random, 20));
    record.node_count = record.first_node + nodes + static_cast<uint32_t>(below(random, 20));
    record.node = record.first_node + static_cast<uint32_t>(below(random, nodes));
    record.file_count = 1 + static_cast<uint32_t>(below(random, 100));
    record.keep_shared = static_cast<uint32_t>(below(random, 5));
    record.file_rights = static_cast<uint32_t>(below(random, 0777 + 1));
    record.block_bytes = uint64_t{512} << below(random, 8);
    record.buffer_bytes = record.block_bytes * (1 + below(random, 1000));
    record.stripe_align = record.block_bytes * below(random, 3);
    record.index_area_bytes = record.block_bytes * (1 + below(random, 9));
    record.stripe_bytes = nodes == 1 ? 0 : record.block_bytes * (1 + below(random, 9));
    uint32_t rank = 0;
    for (uint32_t i = 0; i < nodes; ++i) {
        PlannedNode node{(i + 1) % nodes, "host" + std::to_string(i), {}};
        for (uint64_t ranks = below(random, 4); ranks > 0; --ranks) {
            const uint64_t manifest_bytes = stream_alignment * (1 + below(random, 3));
            node.streams.push_back({rank++, manifest_bytes + below(random, 1 << 20), manifest_bytes,
                                    static_cast<uint32_t>(random())});
        }
        record.nodes.push_back(node);
    }
    record.rank_count = std::max(rank, record.node_count) + static_cast<uint32_t>(below(random, 9));
    return record;
}

SharedHeader random_shared_header(Random& random) {
    SharedHeader header;
    header.job = random_job(random);
    header.key = {random(), static_cast<uint32_t>(random())};
    header.run_uid = random();
    header.file_count = 1 + static_cast<uint32_t>(below(random, max_files));
    header.file_index = static_cast<uint32_t>(below(random, header.file_count));
    header.rank_count = 1 + static_cast<uint32_t>(below(random, max_ranks));
    header.leader_count = below(random, 2) == 0 ? 1 : 1 + static_cast<uint32_t>(below(random, 8));
    header.block_bytes = uint64_t{512} << below(random, 8);
    header.index_area_bytes = header.block_bytes * (1 + below(random, 9));
    header.stripe_bytes = header.leader_count == 1 ? 0 : header.block_bytes * (1 + below(random, 9));
    return header;
}

StreamInfo Stream::info() const {
    return {manifest.rank, manifest.stream_bytes, manifest.manifest_bytes,
            crc32c(std::span(bytes).first(manifest.manifest_bytes))};
}

Bytes region_data(uint32_t rank, size_t region, uint64_t bytes) {
    Bytes data(bytes);
    for (uint64_t i = 0; i < bytes; ++i)
        data[i] = static_cast<std::byte>((rank * 83 + region * 29 + i * 7 + (i >> 8) * 13) & 0xff);
    return data;
}

Stream make_stream(PartManifest manifest) {
    must(lay_out(manifest));
    Bytes bytes(manifest.stream_bytes);
    for (size_t r = 0; r < manifest.regions.size(); ++r) {
        auto& region = manifest.regions[r];
        auto data = region_data(manifest.rank, r, region.bytes);
        for (size_t block = 0; block < region.block_crcs.size(); ++block) {
            auto rest = std::span(data).subspan(block * check_block_bytes);
            region.block_crcs[block] = crc32c(rest.first(std::min<size_t>(rest.size(), check_block_bytes)));
        }
        std::copy(data.begin(), data.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(region.stream_offset));
    }
    auto head = encode(manifest);
    std::copy(head.begin(), head.end(), bytes.begin());
    return {std::move(manifest), std::move(bytes)};
}

Bytes make_part(const Stream& stream, const PartHeader& about) {
    PartHeader header = about;
    header.stream = stream.info();
    header.apart_bytes = apart_bytes(stream.manifest);
    header.rank_count = stream.manifest.rank_count;
    Bytes part = encode(header);
    part.insert(part.end(), stream.bytes.begin(), stream.bytes.end());
    return part;
}

namespace {

void put(Bytes& file, uint64_t offset, std::span<const std::byte> bytes) {
    file.resize(std::max<size_t>(file.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(offset));
}

// One file while it is being written: each leader's next position and index.
struct FileInWork {
    SharedHeader header;
    Bytes bytes;
    std::vector<uint64_t> next;
    std::vector<SegmentIndex> indexes;

    // Writes as much of `chunk` as goes without a gap; returns how much that was.
    uint64_t append(uint32_t leader, uint32_t rank, uint64_t stream_offset,
                    std::span<const std::byte> chunk) {
        auto place = place_in_stripes(header, leader, next[leader]);
        uint64_t count = std::min<uint64_t>(chunk.size(), place.run_bytes);
        put(bytes, place.file_offset, chunk.first(count));
        indexes[leader].extents.push_back({rank, stream_offset, count, place.file_offset});
        next[leader] += align_up(count, header.block_bytes);
        return count;
    }

    void commit(uint64_t committed_unix_ms) {
        put(bytes, 0, encode(header));
        for (uint32_t leader = 0; leader < header.leader_count; ++leader) {
            auto& index = indexes[leader];
            normalize(index.extents);
            auto encoded = encode(index);
            if (encoded.size() > header.index_area_bytes) throw std::logic_error("index area too small");
            put(bytes, index_offset(header, leader), encoded);
            LeaderSlot slot;
            slot.leader = leader;
            slot.index_bytes = encoded.size();
            slot.index_crc = crc32c(encoded);
            for (const auto& extent : index.extents) slot.data_bytes += extent.bytes;
            slot.committed_unix_ms = committed_unix_ms + leader;
            slot.run_uid = header.run_uid;
            slot.key = header.key;
            put(bytes, slot_offset(header, leader), encode(slot, header.block_bytes));
        }
        bytes.resize(align_up(std::max<uint64_t>(bytes.size(), data_offset(header)), header.block_bytes));
    }
};

}  // namespace

std::map<std::string, Bytes> write_epoch(const EpochPlan& plan) {
    uint64_t rank_count = plan.streams.size();
    uint64_t group_count = std::min<uint64_t>(rank_count, plan.file_count);
    std::map<std::string, Bytes> written;
    for (uint64_t group = 0; group < group_count; ++group) {
        std::vector<const Stream*> streams;
        uint64_t bytes = 0;
        for (uint64_t r = 0; r < rank_count; ++r)
            if (r * group_count / rank_count == group) {
                streams.push_back(&plan.streams[r]);
                bytes += plan.streams[r].bytes.size();
            }
        std::vector<FileInWork> files;
        for (uint32_t k = 0; k < plan.file_count; ++k) {
            if (k * group_count / plan.file_count != group) continue;
            auto& file = files.emplace_back();
            file.header.job = plan.job;
            file.header.key = plan.key;
            file.header.run_uid = plan.run_uid;
            file.header.file_index = k;
            file.header.file_count = plan.file_count;
            file.header.rank_count = static_cast<uint32_t>(rank_count);
            file.header.leader_count = plan.leaders_per_file;
            file.header.block_bytes = plan.block_bytes;
            uint64_t most_extents =
                bytes / std::min(plan.chunk_bytes, plan.stripe_bytes) * 3 + streams.size() * 4;
            file.header.index_area_bytes =
                align_up(index_bytes_bound(streams.size(), most_extents), plan.block_bytes);
            file.header.stripe_bytes = plan.leaders_per_file == 1 ? 0 : plan.stripe_bytes;
            file.next.resize(plan.leaders_per_file);
            file.indexes.resize(plan.leaders_per_file);
            for (auto& index : file.indexes)
                for (const auto* stream : streams) index.streams.push_back(stream->info());
        }
        uint64_t turn = 0;
        for (const auto* stream : streams)
            for (uint64_t at = 0; at < stream->bytes.size(); ++turn) {
                uint64_t end = std::min<uint64_t>(at + plan.chunk_bytes, stream->bytes.size());
                auto& file = files[turn % files.size()];
                auto leader = static_cast<uint32_t>(turn / files.size() % plan.leaders_per_file);
                while (at < end)
                    at += file.append(leader, stream->manifest.rank, at,
                                      std::span(stream->bytes).subspan(at, end - at));
            }
        for (auto& file : files) {
            file.commit(plan.committed_unix_ms);
            SharedFileName name{plan.job, plan.key, file.header.file_index, plan.file_count, false};
            written[to_string(name)] = std::move(file.bytes);
        }
    }
    return written;
}

EpochPlan golden_plan() {
    EpochPlan plan;
    plan.job = "golden";
    plan.leaders_per_file = 2;
    for (uint32_t rank = 0; rank < 3; ++rank) {
        PartManifest manifest;
        manifest.rank = rank;
        manifest.rank_count = 3;
        Region plain;
        plain.name = "particles";
        plain.bytes = 100 + 10 * rank;
        Region grid;
        grid.name = "grid";
        grid.array = ArrayPiece{ElementType::uint16, {6, 5}, {2 * rank, 0}, {2, 5}};
        grid.bytes = 20;
        Region halo = grid;
        halo.name = "halo";
        halo.array->may_have_gaps = true;
        halo.array->may_overlap = true;
        manifest.regions = {plain, grid, halo};
        plan.streams.push_back(make_stream(manifest));
    }
    return plan;
}

PartHeader golden_part_header() {
    PartHeader header;
    header.job = "golden";
    header.key = {12, 3};
    header.run_uid = 0x1122334455667788;
    header.sequence = 4;
    header.shared_dir = "/scratch/run 7";
    return header;
}

Bytes golden_part_with_files() {
    PartManifest manifest;
    manifest.rank = 1;
    manifest.rank_count = 3;
    manifest.files_apart = true;
    for (const auto& [name, bytes] : {std::pair<std::string, uint64_t>{"particles", 100},
                                      {std::string(original_files_region), 0},
                                      {file_region("out.bin"), 300},
                                      {file_region("none"), 0}}) {
        Region region;
        region.name = name;
        region.bytes = bytes;
        manifest.regions.push_back(region);
    }
    auto header = golden_part_header();
    header.key.epoch = 13;
    return make_part(make_stream(manifest), header);
}

PlanRecord golden_plan_record() {
    PlanRecord record;
    record.job = "golden";
    record.key = {12, 3};
    record.run_uid = 0x1122334455667788;
    record.rank_count = 3;
    record.shared_dir = "/scratch/run 7";
    record.node = 1;
    record.node_count = 2;
    record.keep_shared = 5;
    record.file_rights = 0640;
    record.buffer_bytes = 1 << 20;
    record.index_area_bytes = 8192;
    record.stripe_bytes = 1 << 20;
    record.nodes = {{1, "first", {{0, 4196, 4096, 7}, {1, 4206, 4096, 8}}},
                    {0, "second", {{2, 9999, 8192, 9}}}};
    return record;
}

Stream small_stream(Random& random, uint32_t rank, uint32_t rank_count) {
    PartManifest manifest;
    manifest.rank = rank;
    manifest.rank_count = rank_count;
    size_t count = below(random, 4);
    for (size_t i = 0; i < count; ++i) {
        Region region;
        region.name = "region " + std::to_string(i);
        region.bytes = below(random, 5000);
        manifest.regions.push_back(region);
    }
    return make_stream(manifest);
}

EpochPlan random_plan(Random& random) {
    EpochPlan plan;
    auto ranks = static_cast<uint32_t>(1 + below(random, 9));
    plan.file_count = static_cast<uint32_t>(1 + below(random, 6));
    plan.leaders_per_file = below(random, 2) == 0 ? 1 : static_cast<uint32_t>(1 + below(random, 4));
    plan.block_bytes = uint64_t{512} << below(random, 3);
    plan.stripe_bytes = plan.block_bytes * (1 + below(random, 5));
    plan.chunk_bytes = plan.block_bytes * (1 + below(random, 8));
    for (uint32_t rank = 0; rank < ranks; ++rank) plan.streams.push_back(small_stream(random, rank, ranks));
    return plan;
}

void reseal(Bytes& bytes, uint64_t offset, uint64_t record_bytes) {
    store(bytes, offset + 24, record_bytes);
    store(bytes, offset + 20, format::record_crc(std::span(bytes).subspan(offset, record_bytes)));
}

}  // namespace tailrace::internal
