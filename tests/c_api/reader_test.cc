// Readers, with and without a session.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "c_api/fixture.h"

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

class ReaderTest : public CApiTest {
  protected:
    // Epochs 10 and 20: a plain region, an empty one, and a 4 x 5 array.
    void save_two() {
        tailrace_session* session = open(settings_);
        const uint64_t shape[] = {4, 5}, zero[] = {0, 0};
        const tailrace_array array = array_of(TAILRACE_INT32, 2, shape, zero, shape);
        ASSERT_TRUE(ok(tailrace_register(session, "plain", plain_.data(), plain_.size())));
        ASSERT_TRUE(ok(tailrace_register(session, "empty", nullptr, 0)));
        ASSERT_TRUE(ok(tailrace_register_array(session, "plate", plate_.data(), &array)));
        for (uint64_t epoch : {10, 20}) {
            plain_[0] = static_cast<char>('0' + epoch / 10);
            ASSERT_TRUE(ok(tailrace_save(session, epoch)));
        }
        ASSERT_TRUE(ok(tailrace_close(session)));
    }

    void SetUp() override {
        std::iota(plate_.begin(), plate_.end(), 100);
        save_two();
        session_ = open(settings_);
        ASSERT_TRUE(ok(tailrace_reader_open(session_, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader_)));
    }
    void TearDown() override {
        tailrace_reader_close(reader_);
        EXPECT_TRUE(ok(tailrace_close(session_)));
    }

    Settings settings_;
    std::string plain_ = std::string(70000, 'p');
    std::vector<int> plate_ = std::vector<int>(20);
    tailrace_session* session_ = nullptr;
    tailrace_reader* reader_ = nullptr;
};

TEST_F(ReaderTest, TellsSizesBeforeMemoryIsProvided) {
    EXPECT_EQ(tailrace_reader_epoch(reader_), 20u);
    EXPECT_EQ(tailrace_reader_rank_count(reader_), 1u);
    size_t count = 0;
    ASSERT_TRUE(ok(tailrace_reader_region_count(reader_, 0, &count)));
    EXPECT_EQ(count, 3u);
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        tailrace_region_info info;
        ASSERT_TRUE(ok(tailrace_reader_region_at(reader_, 0, i, &info)));
        names.push_back(info.name);
    }
    EXPECT_THAT(names, testing::UnorderedElementsAre("plain", "empty", "plate"));
    tailrace_region_info info;
    ASSERT_TRUE(ok(tailrace_reader_region(reader_, 0, "plain", &info)));
    EXPECT_STREQ(info.name, "plain");
    EXPECT_EQ(info.bytes, plain_.size());
    EXPECT_EQ(info.is_array, 0);
    ASSERT_TRUE(ok(tailrace_reader_region(reader_, 0, "plate", &info)));
    EXPECT_EQ(info.bytes, 80u);
    EXPECT_EQ(info.is_array, 1);
    EXPECT_EQ(info.type, TAILRACE_INT32);
    EXPECT_EQ(info.dimensions, 2);
    EXPECT_EQ(info.global_shape[0], 4u);
    EXPECT_EQ(info.global_shape[1], 5u);
    EXPECT_EQ(info.offset[1], 0u);
    EXPECT_EQ(info.local_shape[0], 4u);
}

TEST_F(ReaderTest, ReadsRegions) {
    std::string back(plain_.size(), '\0');
    ASSERT_TRUE(ok(tailrace_reader_read(reader_, 0, "plain", back.data(), back.size())));
    EXPECT_EQ(back, plain_);
    ASSERT_TRUE(ok(tailrace_reader_read(reader_, 0, "empty", nullptr, 0)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_read(reader_, 0, "plain", back.data(), 7)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_read(reader_, 0, "plain", nullptr, 7), "memory"));
    EXPECT_TRUE(
        fails(TAILRACE_NOT_FOUND, tailrace_reader_read(reader_, 0, "plian", back.data(), 7), "\"plain\""));
    EXPECT_TRUE(
        fails(TAILRACE_NOT_FOUND, tailrace_reader_read(reader_, 1, "plain", back.data(), 7), "rank 1"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_read(reader_, 0, nullptr, back.data(), 7)));
}

TEST_F(ReaderTest, ReadsBoxes) {
    int box[4] = {};
    const uint64_t offset[] = {1, 2}, shape[] = {2, 2}, beyond[] = {3, 4};
    ASSERT_TRUE(ok(tailrace_reader_read_box(reader_, "plate", 2, offset, shape, box, sizeof box)));
    EXPECT_THAT(box, testing::ElementsAre(107, 108, 112, 113));
    EXPECT_FALSE(ok(tailrace_reader_read_box(reader_, "plate", 2, beyond, shape, box, sizeof box)));
    EXPECT_FALSE(ok(tailrace_reader_read_box(reader_, "plate", 2, offset, shape, box, 4)));
    EXPECT_FALSE(ok(tailrace_reader_read_box(reader_, "plate", 1, offset, shape, box, 8)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND,
                      tailrace_reader_read_box(reader_, "plates", 2, offset, shape, box, sizeof box)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_read_box(reader_, nullptr, 2, offset, shape, box, sizeof box), "name"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_read_box(reader_, "plate", 2, nullptr, shape, box, sizeof box),
                      "offset"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_read_box(reader_, "plate", 2, offset, nullptr, box, sizeof box),
                      "shape"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_read_box(reader_, "plate", 2, offset, shape, nullptr, 16), "memory"));
    for (int dimensions : {0, -1, TAILRACE_MAX_DIMENSIONS + 1})
        EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                          tailrace_reader_read_box(reader_, "plate", dimensions, offset, shape, box, 16),
                          "dimensions"));
}

TEST_F(ReaderTest, GoesBackToOlderEpochs) {
    tailrace_reader* older = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session_, TAILRACE_NEWEST, 20, TAILRACE_VERIFY, &older)));
    EXPECT_EQ(tailrace_reader_epoch(older), 10u);
    char first = 0;
    std::string back(plain_.size(), '\0');
    ASSERT_TRUE(ok(tailrace_reader_read(older, 0, "plain", back.data(), back.size())));
    first = back[0];
    EXPECT_EQ(first, '1');
    tailrace_reader_close(older);
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_reader_open(session_, TAILRACE_NEWEST, 10, 0, &older)));
    EXPECT_EQ(older, nullptr);
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_open(session_, 15, TAILRACE_NEWEST, 0, &older)));
}

TEST_F(ReaderTest, MisuseIsRefused) {
    tailrace_region_info info;
    size_t count = 0;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open(session_, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, nullptr),
                      "reader"));
    tailrace_reader* none = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open(session_, TAILRACE_NEWEST, TAILRACE_NEWEST, 8, &none), "0x8"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open(nullptr, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &none), "session"));
    EXPECT_EQ(none, nullptr);
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_region_count(reader_, 0, nullptr), "count"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_reader_region_count(reader_, 1, &count), "rank 1"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_region_at(reader_, 0, 0, nullptr), "info"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_reader_region_at(reader_, 0, 3, &info), "region 3"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_reader_region_at(reader_, UINT32_MAX, 0, &info)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_region(reader_, 0, "plain", nullptr), "info"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_region(reader_, 0, nullptr, &info), "name"));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_reader_region(nullptr, 0, "plain", &info), "reader"));
    EXPECT_EQ(tailrace_reader_epoch(nullptr), TAILRACE_NEWEST);
    EXPECT_EQ(tailrace_reader_rank_count(nullptr), 0u);
}

TEST_F(ReaderTest, AClosedReaderIsRecognised) {
    tailrace_reader_close(reader_);
    tailrace_reader_close(reader_);
    tailrace_reader_close(nullptr);
    tailrace_region_info info;
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_reader_region(reader_, 0, "plain", &info), "reader"));
    EXPECT_EQ(tailrace_reader_epoch(reader_), TAILRACE_NEWEST);
}

TEST_F(ReaderTest, AReaderEndsWithItsSession) {
    ASSERT_TRUE(ok(tailrace_close(session_)));
    tailrace_region_info info;
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_reader_region(reader_, 0, "plain", &info), "session"));
    EXPECT_EQ(tailrace_reader_rank_count(reader_), 0u);
    session_ = open(settings_);
}

// Whichever comes first: there is no reader, or it ends with its session.
TEST_F(ReaderTest, AReaderThatIsOpenedWhileItsSessionIsClosedEndsWithIt) {
    for (int round = 0; round < 40; ++round) {
        std::vector<tailrace_reader*> readers;
        std::atomic<bool> began{false};
        std::thread opener([&, session = session_] {
            tailrace_reader* reader = nullptr;
            while (tailrace_reader_open(session, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader) ==
                   TAILRACE_OK) {
                readers.push_back(reader);
                began = true;
            }
        });
        while (!began) std::this_thread::yield();
        ASSERT_TRUE(ok(tailrace_close(session_)));
        opener.join();
        for (tailrace_reader* reader : readers) {
            tailrace_region_info info;
            EXPECT_TRUE(
                fails(TAILRACE_FAILED_STATE, tailrace_reader_region(reader, 0, "plain", &info), "session"));
            tailrace_reader_close(reader);
        }
        session_ = open(settings_);
    }
}

TEST_F(ReaderTest, ADirectoryIsReadWithoutASession) {
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader)))
        << "beside a running session";
    EXPECT_EQ(tailrace_reader_epoch(reader), 20u);
    std::string back(plain_.size(), '\0');
    ASSERT_TRUE(ok(tailrace_reader_read(reader, 0, "plain", back.data(), back.size())));
    EXPECT_EQ(back, plain_);
    tailrace_reader_close(reader);
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), "tailrace", 10, &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 10u);
    tailrace_reader_close(reader);
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND,
                      tailrace_reader_open_directory(shared_.c_str(), nullptr, 11, &reader), "epoch 11"));
    EXPECT_EQ(reader, nullptr);
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND,
                      tailrace_reader_open_directory(shared_.c_str(), "other", TAILRACE_NEWEST, &reader)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND,
                      tailrace_reader_open_directory("/no/such dir", nullptr, TAILRACE_NEWEST, &reader),
                      "/no/such dir"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open_directory(nullptr, nullptr, TAILRACE_NEWEST, &reader),
                      "shared_dir"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, nullptr),
                      "reader"));
}

TEST_F(ReaderTest, ADirectoryOfTwoJobsNeedsAName) {
    ASSERT_TRUE(ok(tailrace_close(session_)));
    settings_ = {{"name", "second"}};
    save_two();
    session_ = open(settings_);
    tailrace_reader* reader = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader),
                      "second, tailrace"));
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), "second", TAILRACE_NEWEST, &reader)));
    tailrace_reader_close(reader);
}

TEST_F(ReaderTest, ADamagedEpochInADirectoryIsPassedOver) {
    std::filesystem::resize_file(shared_ + "/tailrace.e000000020.r0001.1of1.tailrace", 6000);
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 10u);
    EXPECT_THAT(logged(), HasSubstr("e000000020"));
    tailrace_reader_close(reader);
    EXPECT_TRUE(fails(TAILRACE_CORRUPT, tailrace_reader_open_directory(shared_.c_str(), nullptr, 20, &reader),
                      "e000000020"));
}

TEST_F(ReaderTest, AnEpochThatHasLostAFileIsPassedOverAloud) {
    ASSERT_TRUE(ok(tailrace_close(session_)));
    settings_ = {{"files", "2"}};
    session_ = open(settings_);
    ASSERT_TRUE(ok(tailrace_register(session_, "plain", plain_.data(), plain_.size())));
    ASSERT_TRUE(ok(tailrace_save(session_, 30)));
    ASSERT_TRUE(ok(tailrace_close(session_)));
    session_ = nullptr;
    const std::string lost = shared_ + "/tailrace.e000000030.r0002.2of2.tailrace";
    ASSERT_TRUE(std::filesystem::remove(lost));
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 20u);
    EXPECT_THAT(logged(), HasSubstr("tailrace.e000000030.r0002.2of2.tailrace is missing"));
    EXPECT_THAT(tailrace_reader_passed_over(reader),
                AllOf(HasSubstr("epoch 30 of run 2"), HasSubstr("2of2.tailrace is missing")));
    tailrace_reader_close(reader);

    // As a run that was killed while it flushed leaves it: nothing that was ever an epoch.
    const std::string kept = shared_ + "/tailrace.e000000030.r0002.1of2.tailrace";
    std::filesystem::rename(kept, kept + ".unfinished");
    const auto before = logged();
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 20u);
    EXPECT_EQ(logged(), before);
    EXPECT_STREQ(tailrace_reader_passed_over(reader), "");
    tailrace_reader_close(reader);
    EXPECT_STREQ(tailrace_reader_passed_over(reader), "");
}

TEST_F(ReaderTest, ASessionsReaderTellsWhatWasPassedOver) {
    EXPECT_STREQ(tailrace_reader_passed_over(reader_), "");
    std::filesystem::remove_all(directory_ + "/local dir");
    std::filesystem::resize_file(shared_ + "/tailrace.e000000020.r0001.1of1.tailrace", 6000);
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session_, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 10u);
    EXPECT_THAT(tailrace_reader_passed_over(reader), HasSubstr("epoch 20 of run 1: "));
    tailrace_reader_close(reader);
}

// What another process does while a directory is looked at: after the newest attempt at epoch 20, unfinished
// still, was passed over, it commits that one and removes the attempt before.
TEST_F(ReaderTest, AnEpochThatIsReplacedMeanwhileIsFound) {
    namespace fs = std::filesystem;
    struct Replacement {
        fs::path old, unfinished, committed, held;
        bool done = false;
    } next;
    next.old = shared_ + "/tailrace.e000000020.r0001.1of1.tailrace";
    next.committed = shared_ + "/tailrace.e000000020.r0002.1of1.tailrace";
    next.unfinished = next.committed.string() + ".unfinished";
    next.held = directory_ + "/held";
    const fs::path copy = directory_ + "/copy of the old one";
    fs::copy_file(next.old, copy);

    ASSERT_TRUE(ok(tailrace_close(session_)));
    session_ = open(settings_);
    std::string newer(100, 'n');
    ASSERT_TRUE(ok(tailrace_register(session_, "plain", newer.data(), newer.size())));
    ASSERT_TRUE(ok(tailrace_save(session_, 20)));
    ASSERT_TRUE(ok(tailrace_wait(session_, 20, -1)));
    ASSERT_TRUE(ok(tailrace_close(session_)));  // its background would log, too
    session_ = nullptr;
    fs::rename(next.committed, next.held);
    tailrace_set_log_level(TAILRACE_LOG_INFO);
    tailrace_set_log(
        [](tailrace_log_level, const char* message, void* user) {
            auto& replacement = *static_cast<Replacement*>(user);
            if (replacement.done || std::string(message).find("is passed over") == std::string::npos) return;
            replacement.done = true;
            fs::copy_file(replacement.held, replacement.committed);
            fs::remove(replacement.unfinished);
            fs::remove(replacement.old);
        },
        &next);
    for (const uint64_t epoch : {uint64_t{20}, TAILRACE_NEWEST}) {  // nothing else is tried, or epoch 10 is
        fs::remove(next.committed);
        std::ofstream(next.unfinished).close();
        fs::copy_file(copy, next.old, fs::copy_options::overwrite_existing);
        next.done = false;
        tailrace_reader* reader = nullptr;
        EXPECT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, epoch, &reader)));
        EXPECT_TRUE(next.done);
        std::string back(newer.size(), ' ');
        EXPECT_TRUE(ok(tailrace_reader_read(reader, 0, "plain", back.data(), back.size())));
        EXPECT_EQ(back, newer);
        tailrace_reader_close(reader);
    }
    tailrace_set_log(nullptr, nullptr);
    tailrace_set_log_level(TAILRACE_LOG_WARNING);
}

TEST_F(ReaderTest, AnOpenReaderReadsOnWhenTheFilesAreRemoved) {
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, TAILRACE_NEWEST, &reader)));
    std::filesystem::remove(shared_ + "/tailrace.e000000020.r0001.1of1.tailrace");
    std::string back(plain_.size(), ' ');
    EXPECT_TRUE(ok(tailrace_reader_read(reader, 0, "plain", back.data(), back.size())));
    EXPECT_EQ(back, plain_);
    tailrace_reader_close(reader);
}

TEST_F(ReaderTest, AFileThatIsAWholeEpochMayHaveAnyName) {
    std::vector<std::string> names = shared_files();
    const std::string renamed = shared_ + "/model.bin";
    std::filesystem::copy_file(shared_ + "/" + *std::max_element(names.begin(), names.end()), renamed);
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_file(renamed.c_str(), &reader)));
    EXPECT_EQ(tailrace_reader_epoch(reader), 20u);
    std::string plain(plain_.size(), ' ');
    EXPECT_TRUE(ok(tailrace_reader_read(reader, 0, "plain", plain.data(), plain.size())));
    EXPECT_EQ(plain, plain_);
    tailrace_reader_close(reader);

    std::filesystem::resize_file(renamed, 100);
    EXPECT_EQ(tailrace_reader_open_file(renamed.c_str(), &reader), TAILRACE_CORRUPT);
    EXPECT_EQ(reader, nullptr);
    EXPECT_EQ(tailrace_reader_open_file((shared_ + "/nobody").c_str(), &reader), TAILRACE_NOT_FOUND);
    EXPECT_EQ(tailrace_reader_open_file(nullptr, &reader), TAILRACE_INVALID_ARGUMENT);
}

TEST_F(ReaderTest, AFileOfSeveralLeadsToItsEpoch) {
    const std::filesystem::path shared = directory_ + "/two";
    const Settings settings = {
        {"shared_dir", shared}, {"local_dir", directory_ + "/two local"}, {"files", "2"}};
    tailrace_session* session = open(settings);
    ASSERT_TRUE(ok(tailrace_register(session, "plain", plain_.data(), plain_.size())));
    ASSERT_TRUE(ok(tailrace_save(session, 7)));
    ASSERT_TRUE(ok(tailrace_close(session)));
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(shared)) files.push_back(entry.path());
    ASSERT_EQ(files.size(), 2u);
    tailrace_reader* reader = nullptr;
    for (const auto& file : files) {
        ASSERT_TRUE(ok(tailrace_reader_open_file(file.c_str(), &reader)));
        EXPECT_EQ(tailrace_reader_epoch(reader), 7u);
        tailrace_reader_close(reader);
    }
    // Beside the whole epoch too: another file than the one named would be read.
    std::filesystem::copy_file(files[0], shared / "copy");
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_reader_open_file((shared / "copy").c_str(), &reader),
                      files[0].filename().string()));
    std::filesystem::rename(files[1], shared / "other");
    EXPECT_EQ(tailrace_reader_open_file(files[0].c_str(), &reader), TAILRACE_NOT_FOUND);
}

}  // namespace
