#include "catalog/catalog.h"
#include "format/hostile.h"
#include "format/map_storage.h"

namespace tailrace::internal {
namespace {

class LocalCatalogTest : public testing::Test {
  protected:
    // A captured part of the golden epoch's stream of that rank; returns its path.
    std::string put_part(uint32_t rank, EpochKey key = {12, 3}, const std::string& job = "golden") {
        auto about = golden_part_header();
        about.key = key;
        about.job = job;
        auto path = join_path("dir", to_string(PartFileName{job, key, rank, false}));
        storage.files[path] = make_part(golden_plan().streams[rank], about);
        return path;
    }
    LocalListing list(const std::string& job = "golden") {
        auto listing = list_local(storage, "dir", job);
        EXPECT_TRUE(listing.ok()) << listing.status().to_string();
        return listing.ok() ? *listing : LocalListing();
    }
    void expect_leftover(const std::string& path, Code code, const std::string& part_of_sentence) {
        auto listing = list();
        EXPECT_TRUE(listing.parts.empty());
        ASSERT_EQ(listing.leftovers.size(), 1u);
        EXPECT_EQ(listing.leftovers[0].path, path);
        EXPECT_EQ(listing.leftovers[0].why.code(), code);
        EXPECT_THAT(listing.leftovers[0].why.message(), testing::HasSubstr(path));
        EXPECT_THAT(listing.leftovers[0].why.message(), testing::HasSubstr(part_of_sentence));
    }

    MapStorage storage;
};

TEST_F(LocalCatalogTest, CompletePartsAreListedByKeyAndRank) {
    put_part(2, {5, 1});
    put_part(1, {12, 3});
    put_part(0, {12, 3});
    put_part(1, {12, 3}, "another");
    storage.files["dir/notes.txt"] = Bytes(3);
    auto listing = list();
    ASSERT_EQ(listing.parts.size(), 3u);
    EXPECT_TRUE(listing.leftovers.empty());
    EXPECT_EQ(listing.parts[0].header.key, (EpochKey{5, 1}));
    EXPECT_EQ(listing.parts[1].header.stream.rank, 0u);
    EXPECT_EQ(listing.parts[2].header.stream.rank, 1u);
    EXPECT_EQ(listing.parts[2].header.stream, golden_plan().streams[1].info());
    EXPECT_EQ(list("").parts.size(), 4u);
}

TEST_F(LocalCatalogTest, DirectoryUnderAPartsNameIsPassedOver) {
    put_part(0);
    storage.subdirectory = join_path("dir", to_string(PartFileName{"golden", {12, 3}, 1, false}));
    auto listing = list();
    EXPECT_EQ(listing.parts.size(), 1u);
    EXPECT_TRUE(listing.leftovers.empty());
}

TEST_F(LocalCatalogTest, PartThatCannotBeReadIsALeftover) {
    auto path = put_part(0);
    storage.failing_path = path;
    expect_leftover(path, Code::io_error, "reading");
}

TEST_F(LocalCatalogTest, NoDirectoryIsNotFound) {
    expect_code(list_local(storage, "nowhere", ""), Code::not_found, "nowhere");
}

TEST_F(LocalCatalogTest, UnfinishedPartIsALeftover) {
    auto path = put_part(1);
    ASSERT_TRUE(storage.rename(path, path + ".unfinished").ok());
    expect_leftover(path + ".unfinished", Code::aborted, "never finished");
}

TEST_F(LocalCatalogTest, PartCutOffAnywhereIsALeftover) {
    auto path = put_part(1);
    auto whole = storage.files[path];
    for (size_t bytes : {size_t{0}, size_t{4095}, size_t{4096}, whole.size() - 1}) {
        storage.files[path] = Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        expect_leftover(path, Code::corrupt, "cut off");
    }
    whole.resize(whole.size() + 100);  // space that was reserved is no harm
    storage.files[path] = whole;
    EXPECT_EQ(list().parts.size(), 1u);
}

TEST_F(LocalCatalogTest, DamagedHeaderIsALeftover) {
    auto path = put_part(1);
    storage.files[path][50] ^= std::byte{4};
    expect_leftover(path, Code::corrupt, "checksum");
}

TEST_F(LocalCatalogTest, RenamedPartIsALeftover) {
    auto path = put_part(1);
    auto other = join_path("dir", to_string(PartFileName{"golden", {12, 3}, 2, false}));
    ASSERT_TRUE(storage.rename(path, other).ok());
    expect_leftover(other, Code::corrupt,
                    "its header says that it is golden.e000000012.r0003.p00001.capture");
}

}  // namespace
}  // namespace tailrace::internal
