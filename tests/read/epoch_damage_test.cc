// Damaged epochs: that damage is found, named and read around, by reads and by verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/table.h"
#include "read/epoch_reader_fixture.h"
#include "read/epoch_reader_stream.h"

namespace tailrace::internal {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using namespace testing_support;

// ---- damage ---------------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, MismatchInTheCapturedPartIsReadFromTheSharedFilesAndNamed) {
    const BuiltEpoch epoch = one_region(3 * MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density") + MiB + 5;
    flip_in_local(epoch, 0, place);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_THAT(warnings_,
                Contains(AllOf(HasSubstr("/local/built.e000000001"), HasSubstr("checksum mismatch"),
                               HasSubstr("'density'"),
                               HasSubstr("offset " + std::to_string(part_header_bytes + place - 5)))));
}

TEST_F(EpochReaderTest, DamageInEveryTierIsCorruptWithEveryReason) {
    const BuiltEpoch epoch = one_region(MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density");
    flip_in_local(epoch, 0, place);
    flip_in_shared(epoch, 0, place + 100);
    Bytes memory(MiB);
    const Status status = read_one(*reader, 0, "density", memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("/local/"), HasSubstr("/shared/"), HasSubstr("'density'")));
}

TEST_F(EpochReaderTest, DifferentBlocksDamagedInTwoTiersStillReadBack) {
    const BuiltEpoch epoch = one_region(2 * MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density");
    flip_in_local(epoch, 0, place);
    flip_in_shared(epoch, 0, place + MiB);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
}

TEST_F(EpochReaderTest, DamageInALargeRegionIsFoundByTheSecondThread) {
    const BuiltEpoch epoch = one_region(second_thread_bytes + MiB);
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "density") + epoch.ranks[0][0].data.size() - 1);
    Bytes memory(epoch.ranks[0][0].data.size());
    EXPECT_EQ(read_one(*reader, 0, "density", memory).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, DamagedTableOfRegionsIsReadFromTheNextTier) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch, From::both);
    flip_in_local(epoch, 0, 20);
    EXPECT_TRUE(reader->manifest(0).ok());
    EXPECT_THAT(warnings_, Contains(HasSubstr("the table of regions of rank 0")));
}

TEST_F(EpochReaderTest, DamagedTableOfRegionsIsCorruptWhenItIsTheOnlyOne) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, 20);
    EXPECT_EQ(reader->manifest(0).status().code(), Code::corrupt);
}

TEST_F(EpochReaderTest, TheLengthOfATableOfRegionsIsNotBelievedBeforeItsChecksum) {
    const BuiltEpoch epoch = one_region(48 * MiB);
    write_and_open(epoch, From::both);
    auto claimed = sources(epoch, From::both);
    claimed.shared->streams[0].info.manifest_bytes = 32 * MiB;
    claimed.local_parts[0].header.stream.manifest_bytes = 32 * MiB;
    log_.clear();
    auto reader = EpochReader::open(counted_, counted_, std::move(claimed));
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    const Status status = (*reader)->manifest(0).status();
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("the captured part"), HasSubstr("the shared files")));
    ASSERT_FALSE(log_.calls.empty());
    for (const Call& call : log_.calls) EXPECT_LE(call.bytes, unconfirmed_table_bytes);
}

TEST_F(EpochReaderTest, ALargeTableOfRegionsIsReadBackFromTheNextTier) {
    BuiltEpoch epoch;
    auto& regions = epoch.ranks.emplace_back();
    for (int r = 0; r < 45000; ++r)
        regions.push_back({std::string(100, 'n') + std::to_string(r), pattern(1, 1), {}});
    auto reader = write_and_open(epoch, From::both);
    flip_in_local(epoch, 0, unconfirmed_table_bytes + 5);
    auto manifest = reader->manifest(0);
    ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
    EXPECT_GT((*manifest)->manifest_bytes, unconfirmed_table_bytes);
    EXPECT_EQ((*manifest)->regions.size(), regions.size());
    EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("the captured part"), HasSubstr("checksum"))));
}

class SparePartsTest : public EpochReaderTest {
  protected:
    // From captured parts, with the shared files to be found.
    std::unique_ptr<EpochReader> open_parts(const BuiltEpoch& epoch) {
        auto parts = sources(epoch, From::local);
        parts.find_shared = [this, &epoch]() -> Result<SharedEpoch> {
            ++searches_;
            if (!there_.ok()) return there_;
            auto found = *sources(epoch, From::shared).shared;
            if (of_another_run_) ++found.run_uid;
            return found;
        };
        auto reader = EpochReader::open(counted_, counted_, std::move(parts));
        EXPECT_TRUE(reader.ok()) << reader.status().to_string();
        return std::move(*reader);
    }
    int searches_ = 0;
    bool of_another_run_ = false;
    Status there_;
};

TEST_F(SparePartsTest, SoundPartsNeverAskForTheSharedFiles) {
    const BuiltEpoch epoch = random_epoch();
    write_and_open(epoch, From::both);
    auto reader = open_parts(epoch);
    for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank)
        ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, rank));
    EXPECT_EQ(searches_, 0);
}

TEST_F(SparePartsTest, ADamagedPartIsReadFromTheSharedFilesAndNamed) {
    const BuiltEpoch epoch = one_region(3 * MiB);
    write_and_open(epoch, From::both);
    auto reader = open_parts(epoch);
    flip_in_local(epoch, 0, place_of(*reader, 0, "density") + MiB);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_EQ(searches_, 1);
    EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("rank 0"), HasSubstr("is read from the shared files"))));
    EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("'density'"), HasSubstr("checksum mismatch"))));
    EXPECT_TRUE(reader->verify(0, {}).ok());
}

TEST_F(SparePartsTest, ADamagedTableOrAPartThatIsGoneIsReadFromTheSharedFiles) {
    const BuiltEpoch epoch = one_region(MiB);
    write_and_open(epoch, From::both);
    auto reader = open_parts(epoch);
    const auto part = sources(epoch, From::local).local_parts.front().path;
    flip_in_local(epoch, 0, 20);
    EXPECT_TRUE(reader->manifest(0).ok());
    ASSERT_TRUE(memory_.remove(part).ok());
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
}

TEST_F(SparePartsTest, WhatIsNotTheSameEpochDoesNotServe) {
    const BuiltEpoch epoch = one_region(MiB);
    write_and_open(epoch, From::both);
    auto reader = open_parts(epoch);
    flip_in_local(epoch, 0, place_of(*reader, 0, "density"));
    Bytes memory(MiB);
    of_another_run_ = true;
    EXPECT_EQ(read_one(*reader, 0, "density", memory).code(), Code::corrupt);
    there_ = Status(Code::not_found, "no files");
    EXPECT_EQ(read_one(*reader, 0, "density", memory).code(), Code::corrupt);
    of_another_run_ = false;
    there_ = Status();  // a flush has ended meanwhile
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
}

TEST_F(EpochReaderTest, FileCutOffAfterItWasOpenedIsNamed) {
    const BuiltEpoch epoch = one_region(3 * MiB);
    auto reader = write_and_open(epoch, From::local);
    ASSERT_TRUE(reader->manifest(0).ok());
    const auto part = sources(epoch, From::local).local_parts.front().path;
    ASSERT_TRUE((*memory_.open(part, {Access::write}))->truncate(2 * MiB).ok());
    Bytes memory(3 * MiB);
    const Status status = read_one(*reader, 0, "density", memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("truncated"), HasSubstr("offset 2097152"), HasSubstr(part)));
}

TEST_F(EpochReaderTest, FileThatWentAwayIsDamageAndTheOtherTierServes) {
    const BuiltEpoch epoch = one_region(1000);
    auto both = write_and_open(epoch, From::both);
    auto local_only = open(epoch, From::local);
    ASSERT_TRUE(memory_.remove(sources(epoch, From::local).local_parts.front().path).ok());
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*both, epoch, 0));
    EXPECT_EQ(local_only->manifest(0).status().code(), Code::corrupt);
}

TEST_F(EpochReaderTest, WithoutChecksumsBytesComeBackAsTheyLie) {
    BuiltEpoch epoch = one_region(500000);
    epoch.has_checksums = false;
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "density") + 7);
    Bytes memory(500000);
    ASSERT_EQ(read_one(*reader, 0, "density", memory).to_string(), "ok");
    EXPECT_NE(memory, epoch.ranks[0][0].data);
    memory[7] ^= std::byte{0x40};
    EXPECT_EQ(memory, epoch.ranks[0][0].data);
}

TEST_F(EpochReaderTest, PartOfAnotherRunIsPassedOverEvenWithTheSameBytes) {
    const BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_shared_files(memory_, "/shared", epoch).ok());
    BuiltEpoch other = epoch;
    other.run_uid = 0xbad;
    ASSERT_TRUE(write_captured_parts(memory_, "/local", other).ok());
    auto reader = open(epoch, From::both);
    log_.clear();
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    for (const Call& call : log_.calls) EXPECT_THAT(call.path, testing::StartsWith("/shared/"));
    EXPECT_THAT(warnings_, Contains(HasSubstr("passed over")));
}

TEST_F(EpochReaderTest, PartWithAnotherTableOfRegionsIsPassedOver) {
    const BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_shared_files(memory_, "/shared", epoch).ok());
    BuiltEpoch other = epoch;
    other.ranks[0][0].data = pattern(77, 1000);
    ASSERT_TRUE(write_captured_parts(memory_, "/local", other).ok());
    auto reader = open(epoch, From::both);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_THAT(warnings_, Contains(HasSubstr("passed over")));
}

TEST_F(EpochReaderTest, PartOfAnotherEpochIsRefused) {
    BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_captured_parts(memory_, "/local", epoch).ok());
    auto found = sources(epoch, From::local);
    found.key.epoch = 9;
    auto reader = EpochReader::open(memory_, memory_, found);
    EXPECT_EQ(reader.status().code(), Code::invalid_argument);
}

// ---- verify ---------------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, VerifyReadsEverythingInBoundedPieces) {
    BuiltEpoch epoch;
    epoch.chunk_bytes = 4 * MiB;
    epoch.ranks = {{{"a", pattern(1, 40 * MiB), {}}, {"b", pattern(2, 3000), {}}, {"c", pattern(3, 0), {}}}};
    auto reader = write_and_open(epoch);
    uint64_t seen = 0;
    ASSERT_EQ(reader->verify(0, [&](uint64_t bytes) { seen += bytes; }).to_string(), "ok");
    EXPECT_EQ(seen, (*reader->manifest(0))->stream_bytes);
    EXPECT_GE(log_.bytes(), 40 * MiB + 3000);
    for (const Call& call : log_.calls) EXPECT_LE(call.bytes, 10 * MiB + 8192);  // and a page at each end
}

TEST_F(EpochReaderTest, VerifyFindsAFlippedByteAnywhereInTheData) {
    BuiltEpoch epoch;
    epoch.ranks = {
        {{"a", pattern(1, 600000), {}}, {"b", pattern(2, 100), {}}, {"c", pattern(3, 2 * MiB), {}}}};
    auto reader = write_and_open(epoch);
    for (int round = 0; round < 60; ++round) {
        const BuiltRegion& region = epoch.ranks[0][random_() % 3];
        const uint64_t place = place_of(*reader, 0, region.name) + random_() % region.data.size();
        flip_in_shared(epoch, 0, place);
        const Status status = reader->verify(0, {});
        ASSERT_EQ(status.code(), Code::corrupt);
        ASSERT_THAT(status.message(), HasSubstr("'" + region.name + "'"));
        flip_in_shared(epoch, 0, place);
    }
    EXPECT_TRUE(reader->verify(0, {}).ok());
}

TEST_F(EpochReaderTest, VerifyReadsTheTableOfRegionsAgain) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->verify(0, {}).ok());
    flip_in_shared(epoch, 0, 100);
    EXPECT_EQ(reader->verify(0, {}).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, VerifyNamesEveryDamagedRegionInTheLog) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 40 * MiB), {}}, {"b", pattern(2, 100), {}}}};
    epoch.chunk_bytes = 8 * MiB;
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "a"));
    flip_in_shared(epoch, 0, place_of(*reader, 0, "b"));
    EXPECT_EQ(reader->verify(0, {}).code(), Code::corrupt);
    EXPECT_THAT(warnings_, Contains(HasSubstr("'a'")));
    EXPECT_THAT(warnings_, Contains(HasSubstr("'b'")));
}

// ---- verify_regions -------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, VerifyRegionsReadsThoseAloneAndTogetherWhatIsSmall) {
    BuiltEpoch epoch;
    epoch.chunk_bytes = 64 * MiB;
    epoch.ranks = {{{"large", pattern(1, 20 * MiB), {}}, {"other", pattern(2, 30 * MiB), {}}}};
    std::vector<std::string> names{"large"};
    for (int i = 0; i < 100; ++i) {
        names.push_back("small " + std::to_string(i));
        epoch.ranks[0].push_back({names.back(), pattern(3 + i, 1000), {}});
    }
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->manifest(0).ok());
    log_.clear();
    ASSERT_EQ(reader->verify_regions(0, names).to_string(), "ok");
    EXPECT_LT(log_.bytes(), 30 * MiB);
    EXPECT_LE(log_.calls.size(), 5u);
    EXPECT_EQ(log_.backward_steps(), 0u);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "other"));
    EXPECT_EQ(reader->verify_regions(0, names).to_string(), "ok");
    for (const char* damaged : {"small 99", "large"}) {
        const uint64_t at =
            place_of(*reader, 0, damaged) + find_region(**reader->manifest(0), damaged)->bytes - 1;
        flip_in_shared(epoch, 0, at);
        const Status status = reader->verify_regions(0, names);
        EXPECT_EQ(status.code(), Code::corrupt);
        EXPECT_THAT(status.message(), HasSubstr(std::string("'") + damaged + "'"));
        flip_in_shared(epoch, 0, at);
    }
}

TEST_F(EpochReaderTest, VerifyRegionsEndsWithTheFirstFailure) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 20 * MiB), {}}, {"b", pattern(2, 20 * MiB), {}}}};
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "a"));
    log_.clear();
    EXPECT_EQ(reader->verify_regions(0, std::vector<std::string>{"a", "b"}).code(), Code::corrupt);
    EXPECT_LT(log_.bytes(), 20 * MiB);
    log_.clear();
    EXPECT_EQ(reader->verify_regions(0, std::vector<std::string>{"b", "missing"}).code(), Code::not_found);
    EXPECT_EQ(log_.bytes(), 0u);
    EXPECT_TRUE(reader->verify_regions(0, {}).ok());
}

}  // namespace
}  // namespace tailrace::internal
