// Files that the program writes by itself: tailrace_files_begin and its relatives.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "c_api/fixture.h"
#include "files/text_files.h"

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using tailrace::internal::test::read;
using tailrace::internal::test::write;

class FilesTest : public CApiTest {
  protected:
    std::string route(tailrace_session* session, const char* name) {
        std::array<char, TAILRACE_MAX_PATH_BYTES> path{};
        EXPECT_TRUE(ok(tailrace_files_route(session, name, path.data(), path.size())));
        return path.data();
    }
    std::string find(tailrace_session* session, const char* name, uint32_t rank = TAILRACE_ANY_RANK) {
        std::array<char, TAILRACE_MAX_PATH_BYTES> path{};
        EXPECT_TRUE(ok(tailrace_files_find(session, rank, name, path.data(), path.size())));
        return path.data();
    }
    void save(tailrace_session* session, uint64_t epoch, const std::string& text) {
        ASSERT_TRUE(ok(tailrace_files_begin(session)));
        write(route(session, "x"), text);
        ASSERT_TRUE(ok(tailrace_files_save(session, epoch, 1)));
    }
    // The program's directories in the node-local tier.
    std::vector<std::string> trees() const {
        std::vector<std::string> paths;
        if (!fs::exists(directory_ + "/local dir")) return paths;
        for (const auto& node : fs::directory_iterator(directory_ + "/local dir"))
            for (const auto& entry : fs::directory_iterator(node))
                if (entry.is_directory()) paths.push_back(entry.path());
        return paths;
    }
    // In a process of its own, which leaves without closing anything.
    static int in_child(const std::function<int()>& body) {
        const pid_t child = fork();
        if (child == 0) _exit(body());
        int status = -1;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
};

TEST_F(FilesTest, FilesAndMemoryTravelTogether) {
    int counter = 7;
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_register(session, "counter", &counter, sizeof counter)));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    const std::string path = route(session, "fields/u.h5");
    EXPECT_EQ(route(session, "fields/u.h5"), path) << "the same name has the same path";
    EXPECT_TRUE(path.starts_with(directory_ + "/local dir/")) << path;
    write(path, "field");
    fs::permissions(path, fs::perms{0640});
    const std::string empty = route(session, "fields/empty");
    write(empty, "");
    ASSERT_TRUE(ok(tailrace_files_save(session, 1, 1)));
    EXPECT_FALSE(fs::exists(path));
    EXPECT_THAT(trees(), IsEmpty());
    ASSERT_TRUE(ok(tailrace_close(session)));
    fs::remove_all(directory_ + "/local dir");

    counter = 0;
    session = open();
    ASSERT_TRUE(ok(tailrace_register(session, "counter", &counter, sizeof counter)));
    uint64_t restored = 0;
    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, &restored)));
    EXPECT_EQ(restored, 1u);
    EXPECT_EQ(counter, 7);
    size_t count = 0;
    ASSERT_TRUE(ok(tailrace_files_count(session, 0, &count)));
    ASSERT_EQ(count, 2u);
    tailrace_files_info info;
    ASSERT_TRUE(ok(tailrace_files_at(session, 0, 0, &info)));
    EXPECT_STREQ(info.name, "fields/u.h5");
    EXPECT_EQ(info.bytes, 5u);
    EXPECT_EQ(info.rank, 0u);
    EXPECT_EQ(info.rights, 0640u);
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_files_at(session, 0, 2, &info), "it saved 2"));
    const std::string back = find(session, "fields/u.h5", 0);
    EXPECT_EQ(read(back), "field");
    EXPECT_EQ(static_cast<unsigned>(fs::status(back).permissions()), 0640u);
    EXPECT_EQ(fs::file_size(find(session, "fields/empty")), 0u);
    ASSERT_TRUE(ok(tailrace_files_release(session)));
    EXPECT_THAT(trees(), IsEmpty());
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_files_count(session, 0, &count),
                      "tailrace_files_restore comes first"));
    ASSERT_TRUE(ok(tailrace_close(session)));
    EXPECT_EQ(logged(), "");
}

TEST_F(FilesTest, CallsOutOfOrderSayWhatComesFirst) {
    tailrace_session* session = open();
    char path[TAILRACE_MAX_PATH_BYTES];
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_files_route(session, "x", path, sizeof path),
                      "tailrace_files_begin comes first"));
    EXPECT_TRUE(
        fails(TAILRACE_FAILED_STATE, tailrace_files_save(session, 1, 1), "tailrace_files_begin comes first"));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_files_find(session, 0, "x", path, sizeof path),
                      "tailrace_files_restore comes first"));
    ASSERT_TRUE(ok(tailrace_files_release(session))) << "nothing to do";
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    write(route(session, "x"), "kept");
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_files_begin(session), "stay as they are"));
    ASSERT_TRUE(ok(tailrace_files_save(session, 2, 1)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_restore(session, 2, 6, nullptr), "flags 0x6"));
    ASSERT_TRUE(ok(tailrace_files_restore(session, 2, 0, nullptr)));
    EXPECT_EQ(read(find(session, "x")), "kept");
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    EXPECT_EQ(trees().size(), 2u);
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_close(session), "epoch 1: no files were begun"))
        << "the failure of the epoch";
    EXPECT_THAT(trees(), IsEmpty()) << "they go with the session";
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_files_begin(session), "has been closed"));
}

TEST_F(FilesTest, WrongArgumentsAreRefusedAndNothingIsDone) {
    tailrace_session* session = open();
    char path[TAILRACE_MAX_PATH_BYTES] = "as it was";
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_begin(nullptr), "session"));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_route(session, nullptr, path, sizeof path), "name"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_route(session, "x", nullptr, 10), "path"));
    for (const char* name : {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/"})
        EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_route(session, name, path, sizeof path),
                          "a path below the directory that tailrace gives"))
            << name;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_route(session, "not routed", path, 10),
                      "TAILRACE_MAX_PATH_BYTES are always enough"));
    EXPECT_STREQ(path, "as it was");
    write(route(session, "x"), "x");
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_route(session, "x/y", path, sizeof path),
                      "\"x\" is a file already"));
    ASSERT_TRUE(ok(tailrace_files_save(session, 1, 1)));
    ASSERT_TRUE(ok(tailrace_files_restore(session, 1, 0, nullptr)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_count(session, 0, nullptr), "count"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_at(session, 0, 0, nullptr), "info"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_find(session, 0, "x", path, 1), "room"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_files_find(session, 3, "x", path, sizeof path)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(FilesTest, ASaveThatFailsKeepsNothingAndEarlierEpochsStay) {
    tailrace_session* session = open();
    save(session, 1, "first");
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    const std::string path = route(session, "never written");
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_save(session, 2, 1),
                      "the file \"never written\" was routed to '" + path + "' and never written"));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    write(route(session, "x"), "half");
    EXPECT_TRUE(fails(TAILRACE_ABORTED, tailrace_files_save(session, 3, 0), "are not whole"));
    EXPECT_TRUE(fails(TAILRACE_ABORTED, tailrace_wait(session, 3, -1), "are not whole"));
    // The program has registered such a name by itself.
    int counter = 0;
    ASSERT_TRUE(ok(tailrace_register(session, "file/x", &counter, sizeof counter)));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    write(route(session, "x"), "second");
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_save(session, 4, 1), "\"file/x\""));
    ASSERT_TRUE(ok(tailrace_unregister(session, "file/x")));
    EXPECT_THAT(trees(), IsEmpty());

    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    EXPECT_EQ(read(find(session, "x")), "first");
    save(session, 5, "fifth");
    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    EXPECT_EQ(read(find(session, "x")), "fifth");
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_close(session), "epoch 2: the file"))
        << "the first failure";
}

TEST_F(FilesTest, AFileThatWasNotRoutedIsNamedInTheLog) {
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    const std::string path = route(session, "a/x.h5");
    write(path, "x");
    write(path + ".subfile_1_of_2", "y");
    ASSERT_TRUE(ok(tailrace_files_save(session, 1, 1)));
    EXPECT_THAT(logged(), HasSubstr("such as \"a/x.h5.subfile_1_of_2\""));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(FilesTest, ALinkInPlaceOfAFileIsRefused) {
    write(directory_ + "/outside", "precious");
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    fs::create_symlink(directory_ + "/outside", route(session, "x"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_save(session, 1, 1), "is a symbolic link"));
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    const fs::path below = route(session, "a/x");
    fs::remove(below.parent_path());
    fs::create_directory(directory_ + "/elsewhere");
    write(directory_ + "/elsewhere/x", "precious");
    fs::create_symlink(directory_ + "/elsewhere", below.parent_path());
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_files_save(session, 2, 1), "is a symbolic link"));
    EXPECT_EQ(read(directory_ + "/outside"), "precious");
    EXPECT_EQ(read(directory_ + "/elsewhere/x"), "precious");
    EXPECT_THAT(trees(), IsEmpty());
    (void)tailrace_close(session);
}

// A program dies with files that were begun, and with files that were restored.
TEST_F(FilesTest, WhatAProgramThatDiedLeftGoesWithTheNextSession) {
    EXPECT_EQ(in_child([&] {
                  tailrace_session* session = open();
                  save(session, 1, "saved");
                  if (tailrace_wait(session, 1, -1) != TAILRACE_OK) return 2;
                  if (tailrace_files_restore(session, 1, 0, nullptr) != TAILRACE_OK) return 3;
                  if (tailrace_files_begin(session) != TAILRACE_OK) return 4;
                  write(route(session, "x"), "half");
                  return testing::Test::HasFailure() ? 1 : 0;
              }),
              0);
    EXPECT_EQ(trees().size(), 2u);
    const Settings other = {{"shared_dir", directory_ + "/other dir"}};
    ASSERT_TRUE(ok(tailrace_close(open(other))));
    EXPECT_EQ(trees().size(), 2u) << "a session of another directory";
    tailrace_session* session = open();
    EXPECT_THAT(trees(), IsEmpty());
    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    EXPECT_EQ(read(find(session, "x")), "saved");
    ASSERT_TRUE(ok(tailrace_close(session)));
}

// No room for the restored files does not make the epoch a damaged one.
TEST_F(FilesTest, ARestoreWithoutRoomFailsAndTakesNoOlderEpoch) {
    tailrace_session* session = open();
    save(session, 1, "small");
    save(session, 2, std::string(3 << 20, 'x'));
    ASSERT_TRUE(ok(tailrace_wait_all(session, -1)));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit least = before;
    least.rlim_cur = 1 << 20;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
    const tailrace_code restored = tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr);
    const std::string sentence = tailrace_last_error();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(restored, TAILRACE_NO_SPACE) << sentence;
    EXPECT_THAT(sentence, HasSubstr("reserving 3145728 bytes"));
    EXPECT_THAT(trees(), IsEmpty());
    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    EXPECT_EQ(fs::file_size(find(session, "x")), 3u << 20);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

// As when the tier is full: the save fails like any other, and the files go.
TEST_F(FilesTest, ASaveWithoutRoomFailsAndKeepsEarlierEpochs) {
    tailrace_session* session = open();
    save(session, 1, "small");
    ASSERT_TRUE(ok(tailrace_files_begin(session)));
    write(route(session, "x"), std::string(3 << 20, 'x'));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit least = before;
    least.rlim_cur = 1 << 20;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
    const tailrace_code saved = tailrace_files_save(session, 2, 1);
    const std::string sentence = tailrace_last_error();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(saved, TAILRACE_NO_SPACE) << sentence;
    EXPECT_THAT(trees(), IsEmpty());
    ASSERT_TRUE(ok(tailrace_files_restore(session, TAILRACE_NEWEST, 0, nullptr)));
    EXPECT_EQ(read(find(session, "x")), "small");
    (void)tailrace_close(session);
}

TEST_F(FilesTest, AReaderSeesFilesAsRegions) {
    tailrace_session* session = open();
    save(session, 1, "bytes");
    ASSERT_TRUE(ok(tailrace_close(session)));
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open_directory(shared_.c_str(), nullptr, 1, &reader)));
    std::string bytes(5, ' ');
    ASSERT_TRUE(ok(tailrace_reader_read(reader, 0, "file/x", bytes.data(), bytes.size())));
    EXPECT_EQ(bytes, "bytes");
    tailrace_reader_close(reader);
}

}  // namespace
