#include "storage/conformance.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "storage/scratch.h"

namespace tailrace::internal::test {

namespace {

// Memory whose alignment is known: `shift` bytes behind a page's start.
class PageMemory {
  public:
    PageMemory(size_t bytes, size_t shift) : all_(bytes + shift + 4096) {
        const auto address = reinterpret_cast<uintptr_t>(all_.data());
        memory_ = std::span(all_).subspan((4096 - address % 4096) % 4096 + shift, bytes);
    }
    std::span<std::byte> span() { return memory_; }

  private:
    std::vector<std::byte> all_;
    std::span<std::byte> memory_;
};

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

}  // namespace

std::unique_ptr<File> StorageConformance::file_with(const std::string& name,
                                                    std::span<const std::byte> content) {
    auto file = open(name, Access::create_new);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    if (!file.ok()) return nullptr;
    TAILRACE_EXPECT_OK((*file)->write_at(content, 0));
    return std::move(*file);
}

void StorageConformance::expect_content(const std::string& name, std::span<const std::byte> content) {
    auto file = open(name, Access::read);
    TAILRACE_ASSERT_OK(file);
    std::vector<std::byte> found(content.size() + 10);
    auto count = (*file)->read_at(found, 0);
    TAILRACE_ASSERT_OK(count);
    found.resize(*count);
    EXPECT_EQ(found.size(), content.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), content.begin(), content.end()));
}

bool StorageConformance::exists(const std::string& name) {
    auto entries = storage().list(directory());
    EXPECT_TRUE(entries.ok()) << entries.status().to_string();
    return entries.ok() && std::any_of(entries->begin(), entries->end(),
                                       [&](const DirectoryEntry& entry) { return entry.name == name; });
}

TEST_P(StorageConformance, WhatWasWrittenIsRead) {
    const auto content = pattern(100'000, 1);
    auto file = file_with("a", content);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->path(), path("a"));
    TAILRACE_EXPECT_OK(file->sync());
    EXPECT_EQ(*file->size(), content.size());
    TAILRACE_EXPECT_OK(file->close());
    expect_content("a", content);
}

TEST_P(StorageConformance, AnyAlignmentOfMemoryOffsetAndLengthWorks) {
    const uint64_t seed = test_seed();
    SCOPED_TRACE(testing::Message() << "TAILRACE_SEED=" << seed);
    std::mt19937_64 random(seed);
    std::vector<std::byte> model;
    auto file = open("a", Access::write);
    TAILRACE_ASSERT_OK(file);
    for (int round = 0; round < 60; ++round) {
        auto any = [&](size_t bound) {  // often at a block's boundary, often beside one, often anywhere
            const size_t value = random() % bound;
            return random() % 3 == 0 ? value : value / 4096 * 4096 + (random() % 2 == 0 ? 0 : random() % 3);
        };
        const size_t bytes = any(40'000), offset = any(60'000),
                     shift = random() % 2 == 0 ? 0 : random() % 4096;
        PageMemory memory(bytes, shift);
        if (random() % 2 == 0) {
            const auto fresh = pattern(bytes, random());
            std::copy(fresh.begin(), fresh.end(), memory.span().begin());
            TAILRACE_ASSERT_OK((*file)->write_at(memory.span(), offset));
            if (bytes > 0) model.resize(std::max(model.size(), offset + bytes));
            std::copy(fresh.begin(), fresh.end(),
                      model.begin() + static_cast<std::ptrdiff_t>(bytes > 0 ? offset : 0));
        } else {
            auto count = (*file)->read_at(memory.span(), offset);
            TAILRACE_ASSERT_OK(count);
            const size_t expected = offset >= model.size() ? 0 : std::min(bytes, model.size() - offset);
            ASSERT_EQ(*count, expected)
                << "offset " << offset << " bytes " << bytes << " of " << model.size();
            ASSERT_TRUE(std::equal(memory.span().begin(),
                                   memory.span().begin() + static_cast<std::ptrdiff_t>(expected),
                                   model.begin() + static_cast<std::ptrdiff_t>(expected > 0 ? offset : 0)))
                << "offset " << offset << " bytes " << bytes;
        }
    }
    TAILRACE_EXPECT_OK((*file)->close());
    expect_content("a", model);
}

TEST_P(StorageConformance, ReadsEndWhereTheFileEnds) {
    auto file = file_with("a", pattern(5000, 2));
    ASSERT_NE(file, nullptr);
    std::vector<std::byte> target(10'000);
    EXPECT_EQ(*file->read_at(target, 0), 5000u);
    EXPECT_EQ(*file->read_at(target, 4096), 904u);
    EXPECT_EQ(*file->read_at(target, 5000), 0u);
    EXPECT_EQ(*file->read_at(target, uint64_t{1} << 40), 0u);
    EXPECT_EQ(*file->read_at(std::span(target).first(0), 0), 0u);
}

TEST_P(StorageConformance, PiecesAreFilledOneAfterTheOther) {
    const auto content = pattern(300'000, 3);
    auto file = file_with("a", content);
    ASSERT_NE(file, nullptr);
    PageMemory aligned(131'072, 0), odd(50'001, 7), rest(200'000, 0);
    const std::vector<Piece> pieces = {
        odd.span().first(1), aligned.span(), {}, odd.span().subspan(1), rest.span()};
    auto count = file->read_pieces(pieces, 95);
    TAILRACE_ASSERT_OK(count);
    EXPECT_EQ(*count, content.size() - 95);
    auto at = content.begin() + 95;
    for (const Piece& piece : pieces) {
        const auto part =
            std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(piece.size()), content.end() - at);
        EXPECT_TRUE(std::equal(at, at + part, piece.begin()));
        at += part;
    }
    EXPECT_EQ(at, content.end());
}

TEST_P(StorageConformance, ThousandsOfPiecesAreReadInOneCall) {
    const auto content = pattern(3000 * 13, 4);
    auto file = file_with("a", content);
    ASSERT_NE(file, nullptr);
    std::vector<std::byte> target(content.size());
    std::vector<Piece> pieces;
    for (size_t i = 0; i < 3000; ++i) pieces.push_back(std::span(target).subspan(i * 13, 13));
    EXPECT_EQ(*file->read_pieces(pieces, 0), content.size());
    EXPECT_EQ(target, content);
}

TEST_P(StorageConformance, LargeTransfersAreWhole) {
    const size_t bytes = (9 << 20) + 12'345;
    const auto content = pattern(bytes, 5);
    PageMemory memory(bytes, 0);
    std::copy(content.begin(), content.end(), memory.span().begin());
    auto file = open("a", Access::create_new);
    TAILRACE_ASSERT_OK(file);
    TAILRACE_ASSERT_OK((*file)->write_at(memory.span(), 4096));
    TAILRACE_ASSERT_OK((*file)->sync());
    std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
    EXPECT_EQ(*(*file)->read_at(memory.span(), 4096), bytes);
    EXPECT_TRUE(std::equal(content.begin(), content.end(), memory.span().begin()));
}

TEST_P(StorageConformance, HolesReadAsZeros) {
    auto file = file_with("a", bytes_of("x"));
    ASSERT_NE(file, nullptr);
    TAILRACE_EXPECT_OK(file->write_at(bytes_of("y"), 20'000));
    std::vector<std::byte> target(20'001, std::byte{7});
    EXPECT_EQ(*file->read_at(target, 0), 20'001u);
    EXPECT_TRUE(
        std::all_of(target.begin() + 1, target.end() - 1, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(target.back(), static_cast<std::byte>('y'));
}

TEST_P(StorageConformance, OffsetsBeyondFourGiBWork) {
    auto file = open("a", Access::create_new);
    TAILRACE_ASSERT_OK(file);
    const uint64_t offset = (uint64_t{5} << 30) + 123;
    const auto content = pattern(10'000, 6);
    TAILRACE_ASSERT_OK((*file)->write_at(content, offset));
    EXPECT_EQ(*(*file)->size(), offset + content.size());
    std::vector<std::byte> target(content.size());
    EXPECT_EQ(*(*file)->read_at(target, offset), content.size());
    EXPECT_EQ(target, content);
}

TEST_P(StorageConformance, OffsetsThatNoFileHasAreRefused) {
    auto file = file_with("a", bytes_of("x"));
    ASSERT_NE(file, nullptr);
    std::vector<std::byte> memory(10);
    TAILRACE_EXPECT_FAILS(file->write_at(memory, UINT64_MAX - 4), Code::invalid_argument,
                          "no file is that large");
    TAILRACE_EXPECT_FAILS(file->read_at(memory, uint64_t{1} << 63), Code::invalid_argument,
                          "no file is that large");
    TAILRACE_EXPECT_FAILS(file->truncate(UINT64_MAX), Code::invalid_argument, "no file is that large");
    TAILRACE_EXPECT_FAILS(file->reserve(UINT64_MAX - 4, 10), Code::invalid_argument, "no file is that large");
}

TEST_P(StorageConformance, OpenForReadingNeedsTheFile) {
    TAILRACE_EXPECT_FAILS(open("missing", Access::read), Code::not_found, path("missing"));
    EXPECT_FALSE(exists("missing"));
}

TEST_P(StorageConformance, OpenForWritingKeepsWhatIsThere) {
    file_with("a", bytes_of("hello"));
    auto file = open("a", Access::write);
    TAILRACE_ASSERT_OK(file);
    TAILRACE_EXPECT_OK((*file)->write_at(bytes_of("J"), 0));
    file->reset();
    expect_content("a", bytes_of("Jello"));
}

TEST_P(StorageConformance, AFileThatMustExistIsNotCreated) {
    TAILRACE_EXPECT_FAILS(open("a", Access::existing), Code::not_found, path("a"));
    EXPECT_FALSE(exists("a"));
    file_with("a", bytes_of("hello"));
    auto file = open("a", Access::existing);
    TAILRACE_ASSERT_OK(file);
    TAILRACE_EXPECT_OK((*file)->write_at(bytes_of("J"), 0));
    TAILRACE_EXPECT_OK((*file)->sync());
    file->reset();
    expect_content("a", bytes_of("Jello"));
}

TEST_P(StorageConformance, CreateNewRefusesAFileThatIsThere) {
    file_with("a", bytes_of("hello"));
    TAILRACE_EXPECT_FAILS(open("a", Access::create_new), Code::already_exists, path("a"));
    expect_content("a", bytes_of("hello"));
}

TEST_P(StorageConformance, AFileOpenForReadingCannotBeWritten) {
    file_with("a", bytes_of("hello"));
    auto file = open("a", Access::read);
    TAILRACE_ASSERT_OK(file);
    EXPECT_FALSE((*file)->write_at(bytes_of("J"), 0).ok());
    EXPECT_FALSE((*file)->truncate(0).ok());
    expect_content("a", bytes_of("hello"));
}

TEST_P(StorageConformance, OpeningInAMissingDirectoryNamesIt) {
    TAILRACE_EXPECT_FAILS(open("no/such/file", Access::write), Code::not_found, path("no"));
}

TEST_P(StorageConformance, AFileInPlaceOfADirectoryIsNamed) {
    file_with("a", bytes_of("x"));
    TAILRACE_EXPECT_FAILS(open("a/b", Access::write), Code::invalid_argument,
                          fmt::format("'{}' is not a directory", path("a")));
    TAILRACE_EXPECT_FAILS(storage().make_directories(path("a")), Code::invalid_argument, path("a"));
    EXPECT_FALSE(storage().make_directories(path("a/b/c")).ok());
    EXPECT_FALSE(storage().list(path("a")).ok());
    EXPECT_FALSE(storage().lock_directory(path("a")).ok());
}

TEST_P(StorageConformance, ADirectoryIsNoFile) {
    TAILRACE_ASSERT_OK(storage().make_directories(path("d")));
    TAILRACE_EXPECT_FAILS(open("d", Access::read), Code::invalid_argument, "directory");
    EXPECT_FALSE(open("d", Access::write).ok());
    EXPECT_FALSE(storage().remove(path("d")).ok());
    EXPECT_TRUE(exists("d"));
}

TEST_P(StorageConformance, TruncateCutsAndExtends) {
    auto file = file_with("a", pattern(10'000, 7));
    ASSERT_NE(file, nullptr);
    TAILRACE_ASSERT_OK(file->truncate(100));
    EXPECT_EQ(*file->size(), 100u);
    TAILRACE_ASSERT_OK(file->truncate(9000));
    auto expected = pattern(10'000, 7);
    std::fill(expected.begin() + 100, expected.end(), std::byte{0});
    expected.resize(9000);
    file.reset();
    expect_content("a", expected);
}

TEST_P(StorageConformance, ReserveExtendsAndKeepsContent) {
    auto file = file_with("a", bytes_of("hello"));
    ASSERT_NE(file, nullptr);
    const Status reserved = file->reserve(4096, (1 << 20) - 4096);
    if (reserved.code() == Code::unsupported) {
        EXPECT_EQ(*file->size(), 5u);
        return;  // allowed by the interface
    }
    TAILRACE_ASSERT_OK(reserved);
    EXPECT_EQ(*file->size(), uint64_t{1} << 20);
    TAILRACE_EXPECT_OK(file->reserve(0, 10));  // never shortens
    EXPECT_EQ(*file->size(), uint64_t{1} << 20);
    TAILRACE_EXPECT_OK(file->reserve(0, 0));
    std::vector<std::byte> target(6);
    EXPECT_EQ(*file->read_at(target, 0), 6u);
    EXPECT_EQ(target[4], static_cast<std::byte>('o'));
    EXPECT_EQ(target[5], std::byte{0});
}

TEST_P(StorageConformance, AMappingIsTheFileWhereItIsOffered) {
    auto file = file_with("a", bytes_of("hello"));
    ASSERT_NE(file, nullptr);
    auto mapping = file->map(10'000);
    if (!mapping.ok()) {
        TAILRACE_EXPECT_FAILS(mapping, Code::unsupported, path("a"));
        expect_content("a", bytes_of("hello"));
        return;
    }
    ASSERT_EQ(mapping->size(), 10'000u);
    EXPECT_EQ((*mapping)[4], static_cast<std::byte>('o'));
    EXPECT_EQ(*file->read_at({}, 0), 0u);  // nothing, into no memory
    (*mapping)[9'999] = std::byte{9};
    TAILRACE_EXPECT_OK(file->write_at(bytes_of("J"), 0));
    EXPECT_EQ((*mapping)[0], static_cast<std::byte>('J'));
    std::vector<std::byte> target(10'000);
    EXPECT_EQ(*file->read_at(target, 0), 10'000u);
    EXPECT_EQ(target.back(), std::byte{9});
    TAILRACE_EXPECT_OK(file->sync());
    TAILRACE_EXPECT_OK(file->close());
    auto again = open("a", Access::write);
    TAILRACE_ASSERT_OK(again);
    EXPECT_EQ(*(*again)->size(), 10'000u);
    auto second = (*again)->map(10'000);
    TAILRACE_ASSERT_OK(second);
    EXPECT_EQ((*second)[9'999], std::byte{9});
}

TEST_P(StorageConformance, AViewShowsTheFileAndOutlivesIt) {
    std::vector<std::byte> content(3 * 4096 + 10);
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i * 7 >> 3);
    ASSERT_NE(file_with("a", content), nullptr);
    auto opened = open("a", Access::read);
    TAILRACE_ASSERT_OK(opened);
    auto view = (*opened)->view(4096, 4096 + 10);
    if (!view.ok()) {
        TAILRACE_EXPECT_FAILS(view, Code::unsupported, path("a"));
        return;
    }
    auto inside = (*opened)->view(4100, 3);  // at no page
    TAILRACE_ASSERT_OK(inside);
    TAILRACE_EXPECT_OK((*opened)->close());
    TAILRACE_EXPECT_OK(storage().remove(path("a")));
    EXPECT_TRUE(std::equal(view->get(), view->get() + 4096 + 10, content.begin() + 4096));
    EXPECT_TRUE(std::equal(inside->get(), inside->get() + 3, content.begin() + 4100));
    // Bytes that are not there would be noticed too late: by whoever touches them.
    ASSERT_NE(file_with("a", content), nullptr);
    auto again = open("a", Access::read);
    TAILRACE_ASSERT_OK(again);
    TAILRACE_EXPECT_FAILS((*again)->view(8192, 4096 + 11), Code::io_error, path("a"));
    TAILRACE_EXPECT_FAILS((*again)->view(1 << 20, 1), Code::io_error, path("a"));
    TAILRACE_EXPECT_OK((*again)->view(content.size(), 0));
    TAILRACE_EXPECT_OK((*again)->close());
    TAILRACE_EXPECT_FAILS((*again)->view(0, 1), Code::failed_state, path("a"));
}

TEST_P(StorageConformance, RenameReplacesAndKeepsOpenFilesAlive) {
    auto old = file_with("new", bytes_of("old"));
    auto file = file_with("from", bytes_of("fresh"));
    ASSERT_NE(file, nullptr);
    TAILRACE_ASSERT_OK(storage().rename(path("from"), path("new")));
    EXPECT_FALSE(exists("from"));
    expect_content("new", bytes_of("fresh"));
    TAILRACE_EXPECT_OK(file->write_at(bytes_of("F"), 0));
    expect_content("new", bytes_of("Fresh"));
    std::vector<std::byte> target(3);
    EXPECT_EQ(*old->read_at(target, 0), 3u);
    EXPECT_EQ(target[0], static_cast<std::byte>('o'));
    TAILRACE_EXPECT_FAILS(storage().rename(path("from"), path("x")), Code::not_found, path("from"));
    EXPECT_FALSE(storage().rename(path("new"), path("no/such/x")).ok());
    expect_content("new", bytes_of("Fresh"));
}

TEST_P(StorageConformance, RemoveTakesTheNameAndSaysWhenThereIsNone) {
    auto file = file_with("a", bytes_of("x"));
    TAILRACE_ASSERT_OK(storage().remove(path("a")));
    EXPECT_FALSE(exists("a"));
    TAILRACE_EXPECT_OK(file->write_at(bytes_of("still there"), 0));
    TAILRACE_EXPECT_FAILS(storage().remove(path("a")), Code::not_found, path("a"));
}

TEST_P(StorageConformance, ADirectoryIsRenamedWithWhatItHolds) {
    TAILRACE_ASSERT_OK(storage().make_directories(path("d/e")));
    TAILRACE_ASSERT_OK(file_with("d/e/a", bytes_of("x"))->sync());
    file_with("other", bytes_of("y"));
    for (const char* directory : {"d/e", "d", ""})
        TAILRACE_ASSERT_OK(storage().sync_directory(*directory == 0 ? this->directory() : path(directory)));
    TAILRACE_ASSERT_OK(storage().rename(path("d"), path("f")));
    TAILRACE_ASSERT_OK(storage().sync_directory(directory()));
    EXPECT_FALSE(exists("d"));
    expect_content("f/e/a", bytes_of("x"));
    EXPECT_FALSE(storage().rename(path("f"), path("other")).ok());
    TAILRACE_ASSERT_OK(storage().make_directories(path("full")));
    file_with("full/a", bytes_of("z"));
    EXPECT_FALSE(storage().rename(path("f"), path("full")).ok());
    expect_content("full/a", bytes_of("z"));
    expect_content("f/e/a", bytes_of("x"));
}

TEST_P(StorageConformance, OnlyAnEmptyDirectoryIsRemoved) {
    TAILRACE_ASSERT_OK(storage().make_directories(path("d")));
    file_with("d/a", bytes_of("x"));
    EXPECT_FALSE(storage().remove_directory(path("d")).ok());
    expect_content("d/a", bytes_of("x"));
    TAILRACE_ASSERT_OK(storage().remove(path("d/a")));
    TAILRACE_EXPECT_OK(storage().remove_directory(path("d")));
    EXPECT_FALSE(exists("d"));
    TAILRACE_EXPECT_FAILS(storage().remove_directory(path("d")), Code::not_found, path("d"));
    file_with("b", bytes_of("x"));
    TAILRACE_EXPECT_FAILS(storage().remove_directory(path("b")), Code::invalid_argument, path("b"));
    expect_content("b", bytes_of("x"));
}

TEST_P(StorageConformance, ListIsSortedAndComplete) {
    TAILRACE_ASSERT_OK(storage().make_directories(path("m")));
    file_with("z", pattern(17, 1));
    file_with("a b \xc3\xa4", pattern(3, 1));
    file_with("m/inner", pattern(3, 1));
    auto entries = storage().list(directory());
    TAILRACE_ASSERT_OK(entries);
    ASSERT_EQ(entries->size(), 3u);
    EXPECT_EQ((*entries)[0].name, "a b \xc3\xa4");
    EXPECT_EQ((*entries)[0].bytes, 3u);
    EXPECT_EQ((*entries)[1].name, "m");
    EXPECT_TRUE((*entries)[1].is_directory);
    EXPECT_FALSE((*entries)[2].is_directory);
    EXPECT_EQ((*entries)[2].bytes, 17u);
    EXPECT_LT(std::chrono::system_clock::now() - (*entries)[2].modified, std::chrono::hours(1));
    TAILRACE_EXPECT_FAILS(storage().list(path("none")), Code::not_found, path("none"));
}

TEST_P(StorageConformance, DirectoriesComeWithParentsAndTwice) {
    TAILRACE_ASSERT_OK(storage().make_directories(path("x/y//z/")));
    TAILRACE_ASSERT_OK(storage().make_directories(path("x/y/z")));
    file_with("x/y/z/f", bytes_of("deep"));
    expect_content("x/y/z/f", bytes_of("deep"));
    TAILRACE_EXPECT_OK(storage().sync_directory(path("x/y/z")));
    EXPECT_FALSE(storage().sync_directory(path("none")).ok());
}

TEST_P(StorageConformance, SpaceIsSane) {
    auto space = storage().space(directory());
    TAILRACE_ASSERT_OK(space);
    EXPECT_GE(space->block_bytes, 512u);
    EXPECT_LE(space->block_bytes, uint64_t{1} << 20);
    EXPECT_EQ(space->block_bytes & (space->block_bytes - 1), 0u);
    EXPECT_GT(space->free_bytes, 0u);
    EXPECT_FALSE(space->file_system.empty());
    TAILRACE_EXPECT_FAILS(storage().space(path("none")), Code::not_found, path("none"));
}

TEST_P(StorageConformance, ADirectoryIsLockedOnce) {
    auto first = storage().lock_directory(directory());
    TAILRACE_ASSERT_OK(first);
    TAILRACE_EXPECT_FAILS(storage().lock_directory(directory()), Code::busy, directory());
    EXPECT_TRUE(storage().list(directory())->empty());  // it leaves no file behind
    first->reset();
    TAILRACE_EXPECT_OK(storage().lock_directory(directory()));
    TAILRACE_EXPECT_FAILS(storage().lock_directory(path("none")), Code::not_found, path("none"));
}

TEST_P(StorageConformance, SharedLocksExcludeExclusiveOnesAndNotEachOther) {
    auto first = storage().lock_directory(directory(), LockKind::shared);
    TAILRACE_ASSERT_OK(first);
    auto second = storage().lock_directory(directory(), LockKind::shared);
    TAILRACE_ASSERT_OK(second);
    first->reset();
    TAILRACE_EXPECT_FAILS(storage().lock_directory(directory()), Code::busy, directory());
    second->reset();
    auto alone = storage().lock_directory(directory());
    TAILRACE_ASSERT_OK(alone);
    TAILRACE_EXPECT_FAILS(storage().lock_directory(directory(), LockKind::shared), Code::busy, directory());
}

TEST_P(StorageConformance, ANumberIsLockedOnceByAFile) {
    auto first = storage().lock_number(path("lock"), 5);
    TAILRACE_ASSERT_OK(first);
    TAILRACE_EXPECT_FAILS(storage().lock_number(path("lock"), 5), Code::busy, path("lock"));
    TAILRACE_EXPECT_OK(storage().lock_number(path("lock"), 6));
    TAILRACE_EXPECT_OK(storage().lock_number(path("other"), 5));
    first->reset();
    auto again = storage().lock_number(path("lock"), 5);
    TAILRACE_ASSERT_OK(again);
    TAILRACE_EXPECT_OK(storage().remove(path("lock")));
    TAILRACE_EXPECT_OK(storage().lock_number(path("lock"), 5));  // by the file that has the name now
    TAILRACE_EXPECT_FAILS(storage().lock_number(path("none/lock"), 5), Code::not_found, "none");
}

TEST_P(StorageConformance, ClosingTwiceIsAllowedAndUsingAClosedFileIsNot) {
    auto file = file_with("a", bytes_of("x"));
    ASSERT_NE(file, nullptr);
    TAILRACE_EXPECT_OK(file->close());
    TAILRACE_EXPECT_OK(file->close());
    std::vector<std::byte> memory(1);
    EXPECT_EQ(file->read_at(memory, 0).status().code(), Code::failed_state);
    EXPECT_EQ(file->write_at(memory, 0).code(), Code::failed_state);
    EXPECT_EQ(file->sync().code(), Code::failed_state);
    EXPECT_EQ(file->size().status().code(), Code::failed_state);
}

TEST_P(StorageConformance, WishesDoNotHarm) {
    const auto content = pattern(50'000, 8);
    auto file = file_with("a", content);
    ASSERT_NE(file, nullptr);
    file->will_read(0, 50'000);
    file->drop_cache();
    file->will_read(100'000, UINT64_MAX);
    expect_content("a", content);
}

TEST_P(StorageConformance, AReadGoesByTheFilesRouteOrThroughTheCache) {
    const auto content = pattern(50'000, 12);
    ASSERT_NE(file_with("a", content), nullptr);
    auto opened = storage().open(
        path("a"), {.access = Access::read, .direct = GetParam().direct, .own = false, .unchanging = true});
    TAILRACE_ASSERT_OK(opened);
    const auto& file = *opened;
    for (int round = 0; round < 3; ++round) {
        for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, 50'000},
                                            {4096, 8192},
                                            {49'999, 1},
                                            {40'000, 20'000},
                                            {50'000, 4096},
                                            {0, 0},
                                            {UINT64_MAX, 1}}) {
            const Route route = file->read_route(offset, bytes);
            EXPECT_TRUE(route == file->route() || route == Route::cached);
        }
        std::vector<std::byte> found(content.size());
        EXPECT_EQ(*file->read_at(found, 0), content.size());
        EXPECT_EQ(found, content);
        if (round == 1) file->drop_cache();
    }
}

TEST_P(StorageConformance, SeveralThreadsWriteOneFile) {
    constexpr size_t threads = 4, pieces = 8, piece_bytes = 70'001;
    auto file = open("a", Access::create_new);
    TAILRACE_ASSERT_OK(file);
    const auto content = pattern(threads * pieces * piece_bytes, 9);
    {
        std::vector<std::jthread> writers;
        for (size_t thread = 0; thread < threads; ++thread) {
            writers.emplace_back([&, thread] {
                for (size_t piece = 0; piece < pieces; ++piece) {
                    const size_t at = (piece * threads + thread) * piece_bytes;
                    TAILRACE_EXPECT_OK((*file)->write_at(std::span(content).subspan(at, piece_bytes), at));
                }
                TAILRACE_EXPECT_OK((*file)->sync());
            });
        }
    }
    expect_content("a", content);
}

TEST_P(StorageConformance, RegisteredMemoryIsWrittenLikeAnyAndForgotten) {
    constexpr size_t bytes = 4 << 20;
    auto write_from = [&](const std::string& name, uint64_t salt, bool offer) {
        // Always the same address, if the system gives it again: what was registered before must not show.
        void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(mapping, MAP_FAILED);
        std::span<std::byte> memory(static_cast<std::byte*>(mapping), bytes);
        const auto content = pattern(bytes, salt);
        std::copy(content.begin(), content.end(), memory.begin());
        if (offer) storage().use_memory(memory);
        file_with(name, memory);
        if (offer) storage().forget_memory();
        munmap(mapping, bytes);
        expect_content(name, content);
    };
    write_from("a", 10, true);
    write_from("b", 11, true);
    write_from("c", 12, false);
}

}  // namespace tailrace::internal::test
