// The shared tier's catalog over epochs of every shape, whole and spoiled.
#include <algorithm>
#include <functional>

#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "format/hostile.h"
#include "format/map_storage.h"

namespace tailrace::internal {
namespace {

const std::string directory = "dir";

class SharedCatalogTest : public testing::Test {
  protected:
    void put_epoch(const EpochPlan& plan) {
        for (auto& [name, bytes] : write_epoch(plan)) storage.files[join_path(directory, name)] = bytes;
    }
    // Of the only epoch there is.
    Result<SharedEpoch> load() {
        auto epochs = list_shared(storage, directory, "");
        if (!epochs.ok()) return epochs.status();
        if (epochs->size() != 1) return Status(Code::invalid_argument, "not one epoch");
        return load_shared_epoch(storage, epochs->front());
    }
    static std::string path_of(const EpochPlan& plan, uint32_t index, bool unfinished = false) {
        return join_path(directory,
                         to_string(SharedFileName{plan.job, plan.key, index, plan.file_count, unfinished}));
    }
    // The streams as the epoch's map leads to them.
    std::vector<Bytes> read_streams(const SharedEpoch& epoch) {
        std::vector<Bytes> streams;
        for (const auto& stream : epoch.streams) {
            auto& bytes = streams.emplace_back(stream.info.stream_bytes);
            for (const auto& extent : stream.extents) {
                const auto& file = storage.files.at(epoch.paths[extent.file]);
                auto piece = std::span(file).subspan(extent.file_offset, extent.bytes);
                std::copy(piece.begin(), piece.end(),
                          bytes.begin() + static_cast<std::ptrdiff_t>(extent.stream_offset));
            }
        }
        return streams;
    }
    // Changes the index of one leader, and what its slot says of it.
    void edit_index(const EpochPlan& plan, uint32_t file, uint32_t leader,
                    const std::function<void(SegmentIndex&)>& change) {
        auto path = path_of(plan, file);
        auto head = read_shared_head(storage, path);
        ASSERT_TRUE(head.ok()) << head.status().to_string();
        auto index = **head->indexes[leader];
        change(index);
        auto slot = *head->slots[leader];
        auto encoded = encode(index);
        slot.index_bytes = encoded.size();
        slot.index_crc = crc32c(encoded);
        slot.data_bytes = 0;
        for (const auto& extent : index.extents) slot.data_bytes += extent.bytes;
        auto opened = storage.open(path, {Access::write, DirectIo::off});
        ASSERT_TRUE((*opened)->write_at(encoded, index_offset(head->header, leader)).ok());
        ASSERT_TRUE((*opened)
                        ->write_at(encode(slot, head->header.block_bytes), slot_offset(head->header, leader))
                        .ok());
    }
    // Changes a file's header and every slot with it.
    void edit_header(const EpochPlan& plan, uint32_t file, const std::function<void(SharedHeader&)>& change) {
        auto path = path_of(plan, file);
        auto head = read_shared_head(storage, path);
        ASSERT_TRUE(head.ok()) << head.status().to_string();
        change(head->header);
        auto opened = storage.open(path, {Access::write, DirectIo::off});
        ASSERT_TRUE((*opened)->write_at(encode(head->header), 0).ok());
        for (auto& slot : head->slots) {
            slot->key = head->header.key;
            slot->run_uid = head->header.run_uid;
            ASSERT_TRUE((*opened)
                            ->write_at(encode(*slot, head->header.block_bytes),
                                       slot_offset(head->header, slot->leader))
                            .ok());
        }
    }

    MapStorage storage;
};

TEST_F(SharedCatalogTest, EveryEpochComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 200; ++i) {
        storage.files.clear();
        auto plan = random_plan(random);
        put_epoch(plan);
        auto epoch = load();
        ASSERT_TRUE(epoch.ok()) << epoch.status().to_string();
        EXPECT_EQ(epoch->key, plan.key);
        EXPECT_EQ(epoch->job, plan.job);
        EXPECT_EQ(epoch->run_uid, plan.run_uid);
        EXPECT_EQ(epoch->rank_count, plan.streams.size());
        EXPECT_EQ(epoch->paths.size(), plan.file_count);
        EXPECT_EQ(epoch->committed_unix_ms, plan.committed_unix_ms + plan.leaders_per_file - 1);
        uint64_t stream_bytes = 0, file_bytes = 0;
        auto streams = read_streams(*epoch);
        ASSERT_EQ(streams.size(), plan.streams.size());
        for (size_t rank = 0; rank < streams.size(); ++rank) {
            EXPECT_EQ(epoch->streams[rank].info, plan.streams[rank].info());
            ASSERT_EQ(streams[rank], plan.streams[rank].bytes) << "rank " << rank;
            stream_bytes += streams[rank].size();
        }
        for (const auto& [path, bytes] : storage.files) file_bytes += bytes.size();
        EXPECT_EQ(epoch->stream_bytes, stream_bytes);
        EXPECT_EQ(epoch->file_bytes, file_bytes);
    }
}

TEST_F(SharedCatalogTest, HeadsBeyondTheFirstReadAreRead) {
    auto plan = golden_plan();
    plan.block_bytes = 64 << 10;
    plan.stripe_bytes = plan.chunk_bytes = plan.block_bytes;
    put_epoch(plan);
    ASSERT_TRUE(load().ok()) << load().status().to_string();
    plan.block_bytes = 4 << 20;  // and beyond what is buffered
    plan.stripe_bytes = plan.chunk_bytes = plan.block_bytes;
    plan.leaders_per_file = 1;
    storage.files.clear();
    put_epoch(plan);
    ASSERT_TRUE(load().ok()) << load().status().to_string();
}

// ---- listing -----------------------------------------------------------------------------------------

TEST_F(SharedCatalogTest, ListsEpochsOfAJobInOrderAndPassesOverForeignNames) {
    auto plan = golden_plan();
    for (EpochKey key : {EpochKey{20, 4}, EpochKey{3, 4}, EpochKey{20, 1}}) {
        plan.key = key;
        put_epoch(plan);
    }
    plan.job = "another";
    put_epoch(plan);
    storage.files["dir/README"] = Bytes(10);
    storage.files["dir/golden.e3.r4.1of2.tailrace"] = Bytes(10);
    auto golden = list_shared(storage, directory, "golden");
    ASSERT_TRUE(golden.ok());
    ASSERT_EQ(golden->size(), 3u);
    EXPECT_EQ((*golden)[0].key, (EpochKey{3, 4}));
    EXPECT_EQ((*golden)[1].key, (EpochKey{20, 1}));
    EXPECT_EQ((*golden)[2].key, (EpochKey{20, 4}));
    ASSERT_EQ((*golden)[2].files.size(), 2u);
    EXPECT_EQ((*golden)[2].files[1].name.index, 1u);
    EXPECT_EQ((*golden)[2].files[1].bytes, storage.files.at((*golden)[2].files[1].path).size());
    const auto one = find_shared(storage, directory, "golden", {20, 4});
    ASSERT_TRUE(one.ok() && one->has_value());
    EXPECT_EQ((**one).files.size(), 2u);
    const auto none = find_shared(storage, directory, "golden", {20, 3});
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->has_value()) << "there is no such file";
    auto all = list_shared(storage, directory, "");
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(all->size(), 4u);
    EXPECT_EQ(all->front().job, "another");
}

TEST_F(SharedCatalogTest, DirectoryUnderAFilesNameIsPassedOver) {
    auto plan = golden_plan();
    put_epoch(plan);
    storage.files.erase(path_of(plan, 1));
    storage.subdirectory = path_of(plan, 1);
    expect_code(load(), Code::not_found, "2of2.tailrace is missing");
}

TEST_F(SharedCatalogTest, NoDirectoryIsNotFoundAndAnEmptyOneHasNoEpochs) {
    expect_code(list_shared(storage, "nowhere", ""), Code::not_found, "nowhere");
    expect_code(find_shared(storage, "nowhere", "golden", {1, 1}), Code::not_found, "nowhere");
    storage.empty_directory = directory;
    auto none = list_shared(storage, directory, "");
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none->empty());
}

// ---- names and completeness --------------------------------------------------------------------------

TEST_F(SharedCatalogTest, FilesThatWereNotRenamedYetCountAsComplete) {
    auto plan = golden_plan();
    put_epoch(plan);
    for (uint32_t file : {0u, 1u}) {
        ASSERT_TRUE(storage.rename(path_of(plan, file), path_of(plan, file, true)).ok());
        auto epoch = load();
        ASSERT_TRUE(epoch.ok()) << epoch.status().to_string();
        EXPECT_EQ(epoch->paths[file], path_of(plan, file, true));
    }
}

TEST_F(SharedCatalogTest, OfTwoNamesTheFinishedOneCounts) {
    auto plan = golden_plan();
    put_epoch(plan);
    storage.files[path_of(plan, 0, true)] = Bytes(100);
    auto epoch = load();
    ASSERT_TRUE(epoch.ok()) << epoch.status().to_string();
    EXPECT_EQ(epoch->paths[0], path_of(plan, 0));
}

TEST_F(SharedCatalogTest, MissingFileIsNotFoundAndNamed) {
    auto plan = golden_plan();
    for (uint32_t file : {0u, 1u}) {
        put_epoch(plan);
        storage.files.erase(path_of(plan, file));
        expect_code(load(), Code::not_found, std::to_string(file + 1) + "of2.tailrace is missing");
    }
    expect_code(load_shared_epoch(storage, {"golden", {12, 3}, {}}), Code::not_found, "has no files");
}

TEST_F(SharedCatalogTest, SlotNobodyWroteIsNotFound) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto& file = storage.files.at(path_of(plan, 1));
    std::fill_n(file.begin() + 2 * 512, 512, std::byte{0});
    expect_code(load(), Code::not_found, path_of(plan, 1) + ": leader 2 of 2 has not committed");
}

TEST_F(SharedCatalogTest, UnfinishedFileWithoutHeaderIsNotFoundAndAFinishedOneCorrupt) {
    auto plan = golden_plan();
    for (size_t bytes : {0, 100, 5000}) {
        put_epoch(plan);
        storage.files[path_of(plan, 1)] = Bytes(bytes);
        expect_code(load(), Code::corrupt, path_of(plan, 1));
        storage.files.erase(path_of(plan, 1));
        storage.files[path_of(plan, 1, true)] = Bytes(bytes);
        expect_code(load(), Code::not_found, path_of(plan, 1, true) + ": it has no header yet");
        storage.files.clear();
    }
}

TEST_F(SharedCatalogTest, FilesOfDifferentNumbersAreCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    plan.file_count = 3;
    put_epoch(plan);
    expect_code(load(), Code::corrupt, "is one of 2 files, and");
    storage.files.erase(path_of(plan, 0));
    plan.file_count = 2;
    storage.files.erase(path_of(plan, 1));
    expect_code(load(), Code::corrupt, "is one of 2 files, and");
}

TEST_F(SharedCatalogTest, AStrayFileOfAnotherNumberDoesNotHideAWholeEpoch) {
    auto plan = golden_plan();
    put_epoch(plan);
    plan.file_count = 3;
    storage.files[path_of(plan, 0)] = Bytes(10);
    storage.files[path_of(plan, 2, true)] = Bytes(10);
    const auto epoch = load();
    ASSERT_TRUE(epoch.ok()) << epoch.status().to_string();
    EXPECT_EQ(epoch->paths.size(), 2u);
}

TEST_F(SharedCatalogTest, MillionFilesByNameCostNothing) {
    SharedFileName name{"golden", {12, 3}, max_files - 1, max_files, false};
    storage.files[join_path(directory, to_string(name))] = Bytes(10);
    expect_code(load(), Code::not_found, "1of1048576.tailrace is missing");
}

// ---- damage ------------------------------------------------------------------------------------------

TEST_F(SharedCatalogTest, TruncatedFileNeverPasses) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto path = path_of(plan, 0);
    auto whole = storage.files.at(path);
    auto epoch = load();
    ASSERT_TRUE(epoch.ok());
    uint64_t data_end = 0;  // behind it there is only padding
    for (const auto& stream : epoch->streams)
        for (const auto& extent : stream.extents)
            if (extent.file == 0) data_end = std::max(data_end, extent.file_offset + extent.bytes);
    for (size_t bytes = 0; bytes < data_end; bytes += bytes < 6000 ? 1 : 97) {
        storage.files[path] = Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        auto cut = load();
        ASSERT_FALSE(cut.ok()) << bytes;
        ASSERT_TRUE(cut.status().code() == Code::corrupt || cut.status().code() == Code::not_found);
        ASSERT_THAT(cut.status().message(), testing::HasSubstr(path));
    }
}

// Any bit of the head: the epoch is refused, or what it gives is the same.
TEST_F(SharedCatalogTest, FlippedBitsOfTheHeadAreNoticedOrChangeNothing) {
    auto plan = golden_plan();
    plan.file_count = 1;
    put_epoch(plan);
    auto path = path_of(plan, 0);
    auto head = read_shared_head(storage, path);
    ASSERT_TRUE(head.ok());
    size_t noticed = 0;
    for (size_t byte = 0; byte < data_offset(head->header); ++byte) {
        auto mask = static_cast<std::byte>(1u << (byte * 5 % 8));
        storage.files[path][byte] ^= mask;
        auto epoch = load();
        if (!epoch.ok()) {
            ++noticed;
            ASSERT_EQ(epoch.status().code(), Code::corrupt) << byte << epoch.status().to_string();
            ASSERT_THAT(epoch.status().message(), testing::HasSubstr(path));
        } else {
            ASSERT_EQ(read_streams(*epoch)[1], plan.streams[1].bytes) << byte;
        }
        storage.files[path][byte] ^= mask;
    }
    EXPECT_GE(noticed, 3u * 512);  // header and both slots at least
}

TEST_F(SharedCatalogTest, FileOfAnotherEpochUnderThisNameIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto other = plan;
    other.key.epoch = 11;
    storage.files[path_of(plan, 1)] = write_epoch(other).rbegin()->second;
    expect_code(load(), Code::corrupt,
                path_of(plan, 1) + ": its header says that it is golden.e000000011.r0003.2of2");
}

TEST_F(SharedCatalogTest, SwappedFilesAreCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    std::swap(storage.files[path_of(plan, 0)], storage.files[path_of(plan, 1)]);
    expect_code(load(), Code::corrupt,
                path_of(plan, 0) + ": its header says that it is golden.e000000012.r0003.2of2");
}

TEST_F(SharedCatalogTest, FileOfAnotherJobUnderThisNameIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto other = plan;
    other.job = "other";
    storage.files[path_of(plan, 0)] = write_epoch(other).begin()->second;
    expect_code(load(), Code::corrupt, "its header says that it is other.e000000012");
}

TEST_F(SharedCatalogTest, ForeignFileUnderThisNameIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto& file = storage.files[path_of(plan, 1)];
    std::fill(file.begin(), file.end(), std::byte{'x'});
    expect_code(load(), Code::corrupt, path_of(plan, 1) + ": the shared file's header does not start with");
}

TEST_F(SharedCatalogTest, NamesakeOfAnotherRunIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto other = plan;
    other.run_uid = 5;
    storage.files[path_of(plan, 1)] = write_epoch(other).rbegin()->second;
    expect_code(load(), Code::corrupt, "it was written by another run (0000000000000005)");
}

TEST_F(SharedCatalogTest, FilesOfDifferentRankCountsAreCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    edit_header(plan, 1, [](SharedHeader& header) { header.rank_count = 4; });
    expect_code(load(), Code::corrupt, path_of(plan, 1) + ": it names 4 ranks");
}

TEST_F(SharedCatalogTest, RankInNoFileIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    for (uint32_t file : {0u, 1u})
        edit_header(plan, file, [](SharedHeader& header) { header.rank_count = max_ranks; });
    expect_code(load(), Code::corrupt, "holds rank 3 of 67108864");
}

TEST_F(SharedCatalogTest, RankMissingBetweenOthersIsCorruptAndNamed) {
    auto plan = golden_plan();
    put_epoch(plan);
    for (uint32_t leader : {0u, 1u})
        edit_index(plan, 0, leader, [](SegmentIndex& index) {
            index.streams.erase(index.streams.begin() + 1);
            std::erase_if(index.extents, [](const Extent& extent) { return extent.rank == 1; });
        });
    expect_code(load(), Code::corrupt, "holds rank 1 of 3");
}

TEST_F(SharedCatalogTest, StreamsLargerThanAnyStorageAreCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    for (uint32_t leader : {0u, 1u})
        edit_index(plan, 0, leader, [](SegmentIndex& index) {
            for (auto& stream : index.streams) stream.stream_bytes = uint64_t{1} << 62;
        });
    expect_code(load(), Code::corrupt, "the streams up to rank 1 are impossibly large");
}

// A slot may speak of an index of 2^47 bytes where the header's area is that large; no memory is taken for
// it.
TEST_F(SharedCatalogTest, IndexBehindTheEndOfTheFileTakesNoMemory) {
    auto plan = golden_plan();
    plan.leaders_per_file = 1;
    put_epoch(plan);
    auto path = path_of(plan, 0);
    auto head = read_shared_head(storage, path);
    ASSERT_TRUE(head.ok());
    head->header.index_area_bytes = uint64_t{1} << 48;
    auto slot = *head->slots[0];
    slot.index_bytes = uint64_t{1} << 47;
    auto file = *storage.open(path, {Access::write, DirectIo::off});
    ASSERT_TRUE(file->write_at(encode(head->header), 0).ok());
    ASSERT_TRUE(file->write_at(encode(slot, 512), 512).ok());
    expect_code(load(), Code::corrupt, path + ": the index of leader 1 is cut off");
    ASSERT_TRUE(file->truncate(1024).ok());
    expect_code(load(), Code::corrupt, path + ": the index of leader 1 is cut off: it has 0 bytes");
}

TEST_F(SharedCatalogTest, IndexAreaBehindTheEndOfTheFileTakesNoMemory) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto path = path_of(plan, 0);
    auto head = read_shared_head(storage, path);
    ASSERT_TRUE(head.ok());
    head->header.index_area_bytes = uint64_t{1} << 48;
    auto slot = *head->slots[1];
    slot.index_bytes = uint64_t{1} << 47;
    auto file = *storage.open(path, {Access::write, DirectIo::off});
    ASSERT_TRUE(file->write_at(encode(head->header), 0).ok());
    ASSERT_TRUE(file->write_at(encode(slot, 512), 1024).ok());
    ASSERT_TRUE(file->truncate(1536).ok());
    auto again = read_shared_head(storage, path);
    ASSERT_TRUE(again.ok());
    expect_code(*again->indexes[1], Code::corrupt, "cut off: it has 0 bytes");
}

TEST_F(SharedCatalogTest, ReadErrorsArePassedOn) {
    auto plan = golden_plan();
    plan.block_bytes = 16 << 10;  // so that the head is larger than the first read
    plan.stripe_bytes = plan.chunk_bytes = plan.block_bytes;
    put_epoch(plan);
    storage.failing_path = path_of(plan, 1);
    for (uint64_t offset : {0, 64 << 10}) {
        storage.failing_offset = offset;
        expect_code(load(), Code::io_error, path_of(plan, 1));
    }
}

TEST_F(SharedCatalogTest, LeadersThatDisagreeAboutStreamsAreCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    edit_index(plan, 0, 1, [](SegmentIndex& index) { index.streams[0].manifest_crc ^= 1; });
    expect_code(load(), Code::corrupt, path_of(plan, 0) + ": its leaders 1 and 2 disagree");
}

TEST_F(SharedCatalogTest, FilesThatDisagreeAboutAStreamAreCorrupt) {
    auto plan = golden_plan();
    plan.file_count = 5;  // the groups' streams are listed in several files
    plan.leaders_per_file = 1;
    put_epoch(plan);
    ASSERT_TRUE(load().ok());
    edit_index(plan, 1, 0, [](SegmentIndex& index) { index.streams[0].manifest_crc ^= 1; });
    expect_code(load(), Code::corrupt, path_of(plan, 1) + " disagree about the stream of rank 0");
}

TEST_F(SharedCatalogTest, GapInAStreamIsCorrupt) {
    auto plan = golden_plan();
    auto without = [&](uint32_t rank, auto which) {
        put_epoch(plan);
        edit_index(plan, 0, 0, [&](SegmentIndex& index) {
            auto found = std::find_if(index.extents.begin(), index.extents.end(), [&](const Extent& extent) {
                return extent.rank == rank && which(extent);
            });
            ASSERT_NE(found, index.extents.end());
            index.extents.erase(found);
        });
        return load();
    };
    expect_code(without(0, [](const Extent& extent) { return extent.stream_offset == 0; }), Code::corrupt,
                "nothing holds the stream of rank 0 from byte 0 on");
    expect_code(without(1, [](const Extent& extent) { return extent.stream_offset > 0; }), Code::corrupt,
                path_of(plan, 0) + ": nothing holds the stream of rank 1 from byte");
}

TEST_F(SharedCatalogTest, MissingEndOfAStreamIsCorrupt) {
    auto plan = golden_plan();
    plan.leaders_per_file = 1;
    put_epoch(plan);
    edit_index(plan, 0, 0, [](SegmentIndex& index) { index.extents.back().bytes -= 1; });
    expect_code(load(), Code::corrupt, "nothing holds the stream of rank 1 from byte");
}

TEST_F(SharedCatalogTest, ByteHeldTwiceIsCorrupt) {
    auto plan = golden_plan();
    put_epoch(plan);
    edit_index(plan, 0, 0, [](SegmentIndex& index) {
        ASSERT_GT(index.extents.back().stream_offset, 0u);
        index.extents.back().stream_offset -= 64;
    });
    auto epoch = load();
    expect_code(epoch, Code::corrupt, "both hold byte");
    EXPECT_THAT(epoch.status().message(), testing::HasSubstr(path_of(plan, 0)));
}

// ---- head, for tools ---------------------------------------------------------------------------------

TEST_F(SharedCatalogTest, HeadShowsWhatIsValidAndWhatIsNot) {
    auto plan = golden_plan();
    put_epoch(plan);
    auto path = path_of(plan, 0);
    auto& file = storage.files[path];
    auto whole = read_shared_head(storage, path);
    ASSERT_TRUE(whole.ok());
    ASSERT_EQ(whole->slots.size(), 2u);
    ASSERT_TRUE(whole->indexes[1]->ok());

    file[index_offset(whole->header, 1)] ^= std::byte{1};
    std::fill_n(file.begin() + 512, 512, std::byte{0});
    auto head = read_shared_head(storage, path);
    ASSERT_TRUE(head.ok());
    expect_code(head->slots[0], Code::not_found, "has not committed");
    EXPECT_FALSE(head->indexes[0].has_value());
    EXPECT_TRUE(head->slots[1].ok());
    ASSERT_TRUE(head->indexes[1].has_value());
    expect_code(*head->indexes[1], Code::corrupt, "checksum");

    expect_code(read_shared_head(storage, "dir/none"), Code::not_found, "dir/none");
    file[0] ^= std::byte{1};
    expect_code(read_shared_head(storage, path), Code::corrupt, path);
}

}  // namespace
}  // namespace tailrace::internal
