// A record file never outgrows its bound, and says in whose session it was begun.
#include "record/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doubles/memory_storage.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::string content(Storage& storage, const std::string& path) {
    auto file = storage.open(path, {Access::read, DirectIo::off});
    if (!file.ok()) return "";
    std::string text((*file)->size().value(), ' ');
    EXPECT_TRUE((*file)->read_at(std::as_writable_bytes(std::span(text)), 0).ok());
    return text;
}

std::vector<std::string> names(Storage& storage, const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : storage.list(directory).value()) names.push_back(entry.name);
    return names;
}

TEST(RecordFileTest, AppendsToWhatEarlierSessionsLeft) {
    MemoryStorage storage;
    ASSERT_TRUE(RecordFile(storage, "/r/a.jsonl", 1000).append("one\n").ok());
    ASSERT_TRUE(RecordFile(storage, "/r/a.jsonl", 1000).append("two\n").ok());
    EXPECT_EQ(content(storage, "/r/a.jsonl"), "one\ntwo\n");
}

TEST(RecordFileTest, AnUnfinishedLineStaysALineOfItsOwn) {
    MemoryStorage storage;
    ASSERT_TRUE(RecordFile(storage, "/r/a.jsonl", 1000).append("whole\ncut sh").ok());
    RecordFile next(storage, "/r/a.jsonl", 1000);
    ASSERT_TRUE(next.append("head\n").ok());
    ASSERT_TRUE(next.append("line\n").ok());
    EXPECT_EQ(content(storage, "/r/a.jsonl"), "whole\ncut sh\nhead\nline\n");
}

TEST(RecordFileTest, BeginsAnewBeforeItOutgrowsItsBound) {
    MemoryStorage storage;
    RecordFile file(storage, "/r/a.jsonl", 20);
    file.set_head("head\n");
    for (const char* line : {"111111\n", "222222\n", "333333\n", "444444\n"})
        ASSERT_TRUE(file.append(line).ok());
    EXPECT_EQ(content(storage, "/r/a.jsonl.1"), "head\n111111\n222222\n");
    EXPECT_EQ(content(storage, "/r/a.jsonl"), "head\n333333\n444444\n");
    ASSERT_TRUE(file.append("555555\n").ok());
    EXPECT_EQ(content(storage, "/r/a.jsonl.1"), "head\n333333\n444444\n");
    EXPECT_EQ(content(storage, "/r/a.jsonl"), "head\n555555\n");
    EXPECT_THAT(names(storage, "/r"), ElementsAre("a.jsonl", "a.jsonl.1"));
}

TEST(RecordFileTest, ATextLongerThanTheBoundIsAFileOfItsOwn) {
    MemoryStorage storage;
    RecordFile file(storage, "/r/a.jsonl", 4);
    ASSERT_TRUE(file.append("far longer\n").ok());
    EXPECT_EQ(content(storage, "/r/a.jsonl"), "far longer\n");
}

TEST(RecordFileTest, ItsNameFollowsFromJobAndSharedDirectory) {
    EXPECT_EQ(record_path("/r", "job", "/a"), record_path("/r", "job", "/a"));
    EXPECT_NE(record_path("/r", "job", "/a"), record_path("/r", "job", "/b"));
    EXPECT_THAT(record_path("/r", "job", "/a"), testing::MatchesRegex("/r/job-[0-9a-f]+\\.jsonl"));
}

TEST(RecordFileTest, OldFilesGoAndOthersStay) {
    MemoryStorage storage;
    const std::string a = record_path("/r", "a", "/s"), b = record_path("/r", "b-c", "/s");
    const std::vector<std::string> theirs = {"mine.txt",
                                             "train.jsonl",
                                             "train.jsonl.1",
                                             "eval-0123456789abcdef.json",
                                             "eval-0123456789abcdefg.jsonl",
                                             "0123456789abcdef.jsonl"};
    std::vector<std::string> paths = {a, b, b + ".1"};
    for (const std::string& name : theirs) paths.push_back(join_path("/r", name));
    ASSERT_TRUE(storage.make_directories("/r").ok());
    for (const std::string& path : paths)
        ASSERT_TRUE(storage.open(path, {Access::create_new, DirectIo::off}).ok());
    drop_old_records(storage, "/r", 3);
    EXPECT_THAT(names(storage, "/r"), SizeIs(3 + theirs.size()));
    drop_old_records(storage, "/r", 1);
    EXPECT_THAT(names(storage, "/r"), SizeIs(1 + theirs.size()));
    for (const std::string& name : theirs) EXPECT_THAT(names(storage, "/r"), testing::Contains(name));
}

}  // namespace
}  // namespace tailrace::internal
