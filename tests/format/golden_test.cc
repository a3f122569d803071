// The golden files of a version were written when the version was made, and stay. The codec reads all of
// them, and it writes the same bytes as the newest ones from the same values. They are never made anew.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "format/file_table.h"
#include "format/hostile.h"
#include "format/map_storage.h"
#include "format/original_files.h"

namespace tailrace::internal {
namespace {

Bytes read_golden(const std::string& version, const std::string& name) {
    auto path = std::filesystem::path(TAILRACE_GOLDEN_DIR) / version / name;
    std::ifstream file(path, std::ios::binary);
    std::vector<char> characters{std::istreambuf_iterator<char>(file), {}};
    auto bytes = std::as_bytes(std::span(characters));
    EXPECT_FALSE(bytes.empty()) << path;
    return {bytes.begin(), bytes.end()};
}
const std::string first_name = "golden.e000000012.r0003.1of2.tailrace";
const std::string second_name = "golden.e000000012.r0003.2of2.tailrace";
const std::string part_name = "golden.e000000012.r0003.p00001.capture";
const std::string part_with_files_name = "golden.e000000013.r0003.p00001.capture";
const std::string plan_name = "golden.e000000012.r0003.n00001.plan";

// `region_count`: version 1.1 has a third region, with declarations about its array.
void expect_epoch(const std::string& version, size_t region_count) {
    MapStorage storage;
    for (const auto& name : {first_name, second_name})
        storage.files["d/" + name] = read_golden(version, name);
    auto listed = list_shared(storage, "d", "golden");
    ASSERT_TRUE(listed.ok() && listed->size() == 1);
    auto epoch = load_shared_epoch(storage, listed->front());
    ASSERT_TRUE(epoch.ok()) << epoch.status().to_string();
    EXPECT_EQ(epoch->key, (EpochKey{12, 3}));
    EXPECT_EQ(epoch->run_uid, 0x1122334455667788u);
    EXPECT_EQ(epoch->rank_count, 3u);
    EXPECT_EQ(epoch->committed_unix_ms, 1700000000001u);
    for (uint32_t rank = 0; rank < 3; ++rank) {
        const auto& map = epoch->streams[rank];
        Bytes stream(map.info.stream_bytes);
        for (const auto& extent : map.extents) {
            auto& file = storage.files.at(epoch->paths[extent.file]);
            std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(extent.file_offset), extent.bytes,
                        stream.begin() + static_cast<std::ptrdiff_t>(extent.stream_offset));
        }
        auto head = std::span(stream).first(map.info.manifest_bytes);
        EXPECT_EQ(crc32c(head), map.info.manifest_crc);
        auto manifest = decode_manifest(head);
        ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
        EXPECT_EQ(manifest->rank, rank);
        ASSERT_EQ(manifest->regions.size(), region_count);
        const auto& particles = manifest->regions[0];
        EXPECT_EQ(particles.name, "particles");
        EXPECT_EQ(particles.bytes, 100u + 10 * rank);
        auto data = std::span(stream).subspan(particles.stream_offset, particles.bytes);
        EXPECT_EQ(Bytes(data.begin(), data.end()), region_data(rank, 0, particles.bytes));
        EXPECT_EQ(particles.block_crcs, std::vector<uint32_t>{crc32c(data)});
        const auto& grid = manifest->regions[1];
        EXPECT_EQ(grid.array, (ArrayPiece{ElementType::uint16, {6, 5}, {2 * rank, 0}, {2, 5}}));
        if (region_count < 3) continue;
        EXPECT_EQ(manifest->regions[2].array,
                  (ArrayPiece{ElementType::uint16, {6, 5}, {2 * rank, 0}, {2, 5}, true, true}));
    }
}

void expect_part(const std::string& version, const std::string& shared_dir) {
    auto bytes = read_golden(version, part_name);
    auto header = decode_part_header(bytes);
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    EXPECT_EQ(header->job, "golden");
    EXPECT_EQ(header->key, (EpochKey{12, 3}));
    EXPECT_EQ(header->sequence, 4u);
    EXPECT_TRUE(header->for_shared);
    EXPECT_EQ(header->rank_count, 3u);
    EXPECT_EQ(header->shared_dir, shared_dir);
    auto manifest =
        decode_manifest(std::span(bytes).subspan(part_header_bytes, header->stream.manifest_bytes));
    ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
    EXPECT_EQ(manifest->rank, 1u);
    EXPECT_EQ(header->apart_bytes, 0u);
    EXPECT_FALSE(manifest->files_apart);
}

TEST(GoldenTest, EpochOfVersion1_0StaysReadable) {
    expect_epoch("1.0", 2);
}

TEST(GoldenTest, EpochOfVersion1_1StaysReadable) {
    expect_epoch("1.1", 3);
}

TEST(GoldenTest, EpochOfVersion1_2StaysReadable) {
    expect_epoch("1.2", 3);
}

TEST(GoldenTest, PartOfVersion1_0StaysReadable) {
    expect_part("1.0", "");
}

TEST(GoldenTest, PartOfVersion1_1StaysReadable) {
    expect_part("1.1", "/scratch/run 7");
}

TEST(GoldenTest, PartOfVersion1_2StaysReadable) {
    expect_part("1.2", "/scratch/run 7");
}

// The last regions are files that lie apart in the shared directory: one of 300 bytes and an empty one.
TEST(GoldenTest, PartWithFilesApartOfVersion1_2StaysReadable) {
    const auto bytes = read_golden("1.2", part_with_files_name);
    const auto header = decode_part_header(bytes);
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    const auto manifest =
        decode_manifest(std::span(bytes).subspan(part_header_bytes, header->stream.manifest_bytes));
    ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
    EXPECT_TRUE(manifest->files_apart);
    ASSERT_EQ(manifest->regions.size(), 4u);
    EXPECT_EQ(first_region_apart(*manifest), 2u);
    EXPECT_EQ(file_of_region(manifest->regions[2]), "out.bin");
    EXPECT_EQ(header->apart_bytes, manifest->stream_bytes - manifest->regions[2].stream_offset);
    EXPECT_EQ(apart_bytes(*manifest), header->apart_bytes);
}

TEST(GoldenTest, PlanRecordsStayReadable) {
    for (const char* version : {"1.1", "1.2"}) {
        const auto record = decode_plan_record(read_golden(version, plan_name));
        ASSERT_TRUE(record.ok()) << record.status().to_string();
        EXPECT_EQ(*record, golden_plan_record());
    }
}

TEST(GoldenTest, SameValuesGiveTheSameBytes) {
    auto written = write_epoch(golden_plan());
    ASSERT_EQ(written.size(), 2u);
    EXPECT_TRUE(written.at(first_name) == read_golden("1.2", first_name));
    EXPECT_TRUE(written.at(second_name) == read_golden("1.2", second_name));
    EXPECT_TRUE(make_part(golden_plan().streams[1], golden_part_header()) == read_golden("1.2", part_name));
    EXPECT_TRUE(golden_part_with_files() == read_golden("1.2", part_with_files_name));
    EXPECT_TRUE(encode(golden_plan_record()) == read_golden("1.2", plan_name));
}

}  // namespace
}  // namespace tailrace::internal
