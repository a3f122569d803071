#include "protect/protect_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "format/hostile.h"
#include "format/manifest.h"
#include "format/map_storage.h"
#include "format/shared_file.h"
#include "protect/protect_object.h"
#include "protect/protect_samples.h"

namespace tailrace::internal {
namespace {

// Nodes 1, 4 and 7; ranks 0, 1 and 2 of 9; parity of 409600 bytes in two blocks.
ProtectHead sample_head() {
    ProtectHead head;
    head.identity = {"job", {12, 3}, 0x1122334455667788, 9, "/scratch"};
    head.redundancy = {Scheme::parity, 1};
    head.members = {{1, {{0, 8192, 4096, 17}, {2, 814000, 8192, 18}}}, {4, {{1, 4096, 4096, 19}}}, {7, {}}};
    head.block_crcs = {1, 2};
    return head;
}
Bytes sample() {
    return encode(sample_head());
}

TEST(ProtectHeadTest, EveryHeadComesBack) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 500; ++i) {
        const auto head = random_protect_head(random);
        const auto bytes = encode(head);
        ASSERT_EQ(bytes.size(), record_bytes(head));
        const auto decoded = decode_protect_head(bytes);
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, head);
    }
}

TEST(ProtectHeadTest, TruncatedHeadIsCorrupt) {
    expect_truncations_corrupt(sample(), decode_protect_head);
}

TEST(ProtectHeadTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(sample(), sample().size(), decode_protect_head);
}

TEST(ProtectHeadTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(sample(), sample().size(), decode_protect_head);
}

TEST(ProtectHeadTest, WrongFieldsAreCorrupt) {
    const auto decode_with = [&](uint64_t offset, auto value) {
        return decode_protect_head(with(sample(), sample().size(), offset, value));
    };
    expect_code(decode_with(44, uint32_t{0}), Code::corrupt, "number of ranks is 0");
    expect_code(decode_with(44, max_ranks + 1), Code::corrupt, "number of ranks");
    expect_code(decode_with(44, uint32_t{2}), Code::corrupt, "does not exist");
    expect_code(decode_with(56, uint32_t{0}), Code::corrupt, "scheme 0");
    expect_code(decode_with(56, uint32_t{4}), Code::corrupt, "scheme 4");
    expect_code(decode_with(56, uint32_t{1}), Code::corrupt, "position 0 of 3 keeps");  // nobody else's
    expect_code(decode_with(60, uint32_t{0}), Code::corrupt, "loss of 0");
    expect_code(decode_with(60, uint32_t{2}), Code::corrupt, "loss of 2");  // by XOR
    expect_code(decode_with(64, uint32_t{1}), Code::corrupt, "of 1 nodes");
    expect_code(decode_with(64, UINT32_MAX), Code::corrupt, "nodes");
    expect_code(decode_with(64, uint32_t{2}), Code::corrupt, "wrong");
    expect_code(decode_with(68, uint32_t{3}), Code::corrupt, "position 3 of 3");
    expect_code(decode_with(72, uint32_t{1}), Code::corrupt, "what position 1 has");  // XOR keeps parity only
    expect_code(decode_with(72, UINT32_MAX), Code::corrupt, "position");
    expect_code(decode_with(76, uint32_t{2}), Code::corrupt, "2 pieces");
    expect_code(decode_with(80, uint64_t{4096}), Code::corrupt, "pieces of 4096 bytes");
    expect_code(decode_with(88, uint64_t{4}), Code::corrupt, "belong to no node");
    expect_code(decode_with(88, uint64_t{2}), Code::corrupt, "more than there are");
    expect_code(decode_with(88, UINT64_MAX), Code::corrupt, "belong to no node");
    expect_code(decode_with(96, uint32_t{3889}), Code::corrupt, "shared directory");
    expect_code(decode_with(100, uint32_t{0}), Code::corrupt, "job name");
    expect_code(decode_with(104, uint8_t{'.'}), Code::corrupt, "job name");
    expect_code(decode_with(208, uint8_t{'d'}), Code::corrupt, "absolute path");
    expect_code(decode_with(216, uint32_t{4}), Code::corrupt, "in the set twice");
    expect_code(decode_with(216, max_ranks), Code::corrupt, "node 67108864");
    expect_code(decode_with(224, UINT64_MAX), Code::corrupt, "more than there are");
    // The first part, behind three nodes: rank, and stream bytes that no sum may overflow.
    expect_code(decode_with(264, uint32_t{2}), Code::corrupt, "out of order");
    expect_code(decode_with(264, uint32_t{1}), Code::corrupt, "listed for two nodes");
    expect_code(decode_with(264, uint32_t{9}), Code::corrupt, "does not exist");
    expect_code(decode_with(272, UINT64_MAX), Code::corrupt, "manifest");
    expect_code(decode_with(272, uint64_t{1} << 62), Code::corrupt, "too many bytes");
    expect_code(decode_with(272, uint64_t{1} << 61), Code::corrupt, "wrong");
}

TEST(ProtectHeadTest, SumsOfTheLargestPartsDoNotOverflow) {
    ProtectHead head = sample_head();
    head.members[0].parts = {{0, uint64_t{1} << 62, 4096, 17}, {2, uint64_t{1} << 62, 4096, 18}};
    head.members[1].parts = {{1, uint64_t{1} << 62, 4096, 17}};
    Bytes bytes = sample();
    store(bytes, 272, uint64_t{1} << 62);
    store(bytes, 296, uint64_t{1} << 62);
    reseal(bytes, 0, bytes.size());
    expect_code(decode_protect_head(bytes), Code::corrupt, "too many bytes");
}

TEST(ProtectFileNameTest, NamesComeBackAndOthersAreForeign) {
    const ProtectFileName name{"job", {12, 3}, 5, true};
    EXPECT_EQ(to_string(name), "job.e000000012.r0003.n00005.protect.unfinished");
    EXPECT_EQ(parse_protect_file_name(to_string(name)), name);
    for (const auto* text : {"job.e12.r0003.n00005.protect", "job.e000000012.r0003.p00005.protect",
                             "job.e000000012.r0003.n5.protect", "job.e000000012.r0003.n67108864.protect"})
        EXPECT_FALSE(parse_protect_file_name(text)) << text;
}

// ---- files --------------------------------------------------------------------------------------

TEST(ProtectObjectTest, WhatWasWrittenIsReadAndEveryFlippedByteIsNoticed) {
    MapStorage storage;
    const std::string path = "d/job.e000000012.r0003.n00001.protect";
    auto writer = ObjectWriter::create(storage, "d", sample_head(), true);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Random random(7);
    Bytes piece(piece_bytes(sample_head()));
    for (auto& byte : piece) byte = static_cast<std::byte>(random());
    ASSERT_TRUE((*writer)->write(0, 262144, std::span(piece).subspan(262144)).ok());
    ASSERT_TRUE((*writer)->write(0, 0, std::span(piece).first(1000)).ok());
    ASSERT_TRUE((*writer)->write(0, 1000, std::span(piece).subspan(1000, 261144)).ok());
    EXPECT_FALSE(storage.files.contains(path));
    ASSERT_TRUE((*writer)->finish().ok());
    ASSERT_TRUE(storage.files.contains(path));
    EXPECT_EQ(storage.files.size(), 1u);

    const auto head = ObjectReader::read_head(storage, path);
    ASSERT_TRUE(head.ok()) << head.status().to_string();
    auto reader = ObjectReader::open(storage, path, *head);
    ASSERT_TRUE(reader.ok());
    Bytes read(piece.size());
    ASSERT_TRUE((*reader)->read(0, 0, read).ok());
    EXPECT_TRUE(read == piece);
    EXPECT_TRUE((*reader)->verify().ok());
    auto& file = storage.files[path];
    for (const uint64_t at : {uint64_t{0}, uint64_t{262143}, uint64_t{262144}, piece.size() - 1}) {
        file[record_bytes(*head) + at] ^= std::byte{4};
        EXPECT_EQ((*reader)->verify().code(), Code::corrupt) << at;
        file[record_bytes(*head) + at] ^= std::byte{4};
    }
    EXPECT_TRUE((*reader)->verify().ok());
}

TEST(ProtectObjectTest, FilesThatAreCutOffOrLieAboutTheirLengthAreCorrupt) {
    MapStorage storage;
    const auto golden = golden_protect_objects().begin()->second;
    for (size_t bytes = 0; bytes < golden.size(); bytes += 97) {
        storage.files["d/file"] = Bytes(golden.begin(), golden.begin() + static_cast<ptrdiff_t>(bytes));
        EXPECT_EQ(ObjectReader::read_head(storage, "d/file").status().code(), Code::corrupt) << bytes;
    }
    auto claims = golden;
    store(claims, 24, uint64_t{1} << 60);
    storage.files["d/file"] = claims;
    EXPECT_EQ(ObjectReader::read_head(storage, "d/file").status().code(), Code::corrupt);
    // A file that is long enough for such a claim is read in pieces, and its checksum decides.
    claims.resize(40 << 20);
    store(claims, 24, uint64_t{40} << 20);
    storage.files["d/file"] = claims;
    expect_code(ObjectReader::read_head(storage, "d/file"), Code::corrupt, "its head's checksum");
}

TEST(ProtectObjectTest, ADiscardedObjectLeavesNothing) {
    MapStorage storage;
    auto writer = ObjectWriter::create(storage, "d", sample_head(), false);
    ASSERT_TRUE(writer.ok());
    (*writer)->discard();
    EXPECT_TRUE(storage.files.empty());
}

// A spare has the bytes of an older and larger object, whose head is sound.
TEST(ProtectObjectTest, ASpareGivesItsSpaceToTheNextObjectAndNothingElse) {
    MapStorage storage;
    const auto write = [&](const ProtectHead& head, std::byte value, const std::string& directory) {
        auto writer = ObjectWriter::create(storage, directory, head, false);
        ASSERT_TRUE(writer.ok());
        for (uint32_t piece = 0; piece < piece_count(head); ++piece)
            ASSERT_TRUE((*writer)->write(piece, 0, Bytes(piece_bytes(head), value)).ok());
        ASSERT_TRUE((*writer)->finish().ok());
    };
    auto older = sample_head(), newer = sample_head();
    for (auto& member : older.members)
        for (auto& part : member.parts) part.stream_bytes += 4096;
    newer.identity.key.epoch += 1;
    const auto path = [&](const ProtectHead& head, const std::string& directory) {
        return protect_path(directory, head.identity.job, head.identity.key,
                            static_cast<int>(head.members[head.position].node));
    };
    ASSERT_GT(file_bytes(older), file_bytes(newer));
    write(newer, std::byte{7}, "fresh");
    write(older, std::byte{9}, "d");
    ASSERT_TRUE(make_spare(storage, path(older, "d")).ok());
    EXPECT_EQ(make_spare(storage, path(older, "d")).code(), Code::not_found);
    EXPECT_FALSE(remove_spares(storage, "d", "another")) << "of another job";
    write(newer, std::byte{7}, "d");
    EXPECT_EQ(storage.files.size(), 2u) << "the spare was used";
    EXPECT_EQ(storage.files[path(newer, "d")], storage.files[path(newer, "fresh")]);
    ASSERT_TRUE(make_spare(storage, path(newer, "d")).ok());
    EXPECT_TRUE(remove_spares(storage, "d", newer.identity.job));
    EXPECT_EQ(storage.files.size(), 1u);
}

TEST(LogicalPartTest, PartsFollowEachOther) {
    MapStorage storage;
    storage.files["d/a"] = Bytes(10, std::byte{1});
    storage.files["d/b"] = Bytes(3, std::byte{2});
    storage.files["d/c"] = Bytes(50, std::byte{3});
    LogicalPart part(storage, {{"d/a", 7}, {"d/b", 3}, {"d/c", 20}});
    EXPECT_EQ(part.bytes(), 30u);
    Bytes all(30);
    ASSERT_TRUE(part.read(0, all).ok());
    for (uint64_t begin = 0; begin <= 30; ++begin)
        for (uint64_t end = begin; end <= 30; ++end) {
            Bytes some(end - begin);
            ASSERT_TRUE(part.read(begin, some).ok());
            ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + static_cast<ptrdiff_t>(begin)));
        }
    EXPECT_EQ(all[6], std::byte{1});
    EXPECT_EQ(all[7], std::byte{2});
    EXPECT_EQ(all[10], std::byte{3});
    storage.files["d/c"].resize(5);
    EXPECT_EQ(part.read(0, all).code(), Code::corrupt);
    LogicalPart missing(storage, {{"d/none", 7}});
    EXPECT_EQ(missing.read(0, std::span(all).first(1)).code(), Code::corrupt);
}

// ---- golden files -------------------------------------------------------------------------------

Bytes read_golden(const std::string& version, const std::string& name) {
    std::ifstream file(std::filesystem::path(TAILRACE_GOLDEN_DIR) / version / name, std::ios::binary);
    const std::vector<char> characters{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(characters));
    return {bytes.begin(), bytes.end()};
}

TEST(ProtectGoldenTest, SameValuesGiveTheSameBytes) {
    const auto objects = golden_protect_objects();
    ASSERT_EQ(objects.size(), 2u);
    for (const auto& [name, bytes] : objects) EXPECT_TRUE(read_golden("1.2", name) == bytes) << name;
}

TEST(ProtectGoldenTest, ObjectsOfVersion1_1StayReadable) {
    for (const auto& [name, bytes] : golden_protect_objects()) {
        const auto golden = read_golden("1.1", name);
        MapStorage storage;
        storage.files["d/file"] = Bytes(golden.begin(), golden.end());
        const auto head = ObjectReader::read_head(storage, "d/file");
        ASSERT_TRUE(head.ok()) << head.status().to_string();
        EXPECT_EQ(head->identity.shared_dir, "/scratch/run 7");
        EXPECT_EQ(head->identity.key, (EpochKey{12, 3}));
        ASSERT_EQ(head->members.size(), 3u);
        EXPECT_EQ(head->members[1].parts.front().rank, 1u);
        EXPECT_TRUE((*ObjectReader::open(storage, "d/file", *head))->verify().ok());
    }
}

}  // namespace
}  // namespace tailrace::internal
