// Two users of one machine: what one plants wherever a session of the other opens something. The tests run as
// root and are both in turn, in child processes; elsewhere they are skipped.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tailrace.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uid_t mallory = 64'321;
constexpr const char* in_memory = "/dev/shm";

// Runs `body` as `user` in a process of its own; what it says.
std::string as_user(uid_t user, const std::function<std::string()>& body) {
    int said[2];
    if (pipe(said) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        umask(022);
        std::string text = "cannot be that user";
        if (setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0) text = body();
        (void)!write(said[1], text.data(), text.size());
        _exit(0);
    }
    close(said[1]);
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = read(said[0], piece, sizeof piece)) > 0;)
        text.append(piece, static_cast<size_t>(got));
    close(said[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) text += "\ndied of signal " + std::to_string(WTERMSIG(status));
    return text;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

// A program: comes back to the newest epoch, saves one, waits for it and ends. Says what became of that.
std::string program(const Settings& settings, uint64_t epoch, const std::function<void()>& before_save = {}) {
    std::mutex mutex;
    std::string said;
    struct Say {
        std::mutex& mutex;
        std::string& said;
    } say{mutex, said};
    tailrace_set_log(
        [](tailrace_log_level, const char* message, void* user) {
            auto* to = static_cast<Say*>(user);
            std::lock_guard lock(to->mutex);
            to->said += std::string("log: ") + message + "\n";
        },
        &say);
    const auto tell = [&](const char* call, tailrace_code code) {
        std::string sentence = code == TAILRACE_OK ? "" : tailrace_last_error();
        std::lock_guard lock(mutex);
        said += std::string(call) + ": " + tailrace_code_name(code) + " " + sentence + "\n";
        return code == TAILRACE_OK;
    };
    tailrace_options* options = tailrace_options_new();
    for (const auto& [key, value] : settings) (void)tailrace_options_set(options, key.c_str(), value.c_str());
    tailrace_session* session = nullptr;
    std::vector<uint64_t> state(8192, 0);
    if (tell("open", tailrace_open(options, &session))) {
        (void)tailrace_register(session, "state", state.data(), state.size() * 8);
        uint64_t restored = 0;
        if (tell("restore", tailrace_restore(session, TAILRACE_NEWEST, &restored)))
            said += "restored " + std::to_string(state.front()) + " of " + std::to_string(restored) + "\n";
        std::fill(state.begin(), state.end(), epoch);
        if (before_save) before_save();
        if (tell("save", tailrace_save(session, epoch))) tell("wait", tailrace_wait(session, epoch, -1));
        tell("close", tailrace_close(session));
    }
    tailrace_options_free(options);
    tailrace_set_log(nullptr, nullptr);
    return said;
}

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
}
std::string read_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}
mode_t mode_of(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}
std::vector<std::string> files_below(const std::string& directory) {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
        if (!entry.is_directory() || entry.is_symlink()) found.push_back(entry.path());
    return found;
}
void give_to(uid_t user, const std::string& path) {
    (void)!lchown(path.c_str(), user, user);
    if (!fs::is_directory(fs::symlink_status(path))) return;
    for (const auto& entry : fs::recursive_directory_iterator(path))
        (void)!lchown(entry.path().c_str(), user, user);
}

class OtherUserTest : public testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users in turn";
        if (access(in_memory, W_OK) != 0) GTEST_SKIP() << in_memory << " may not be written";
        std::string pattern = std::string(in_memory) + "/tailrace-test-XXXXXX";
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        common_ = pattern;
        ASSERT_EQ(chmod(common_.c_str(), 01777), 0);
        shared_ = common_ + "/shared";
        secret_ = common_ + "/secret";
        write_text(secret_, "secret");
        give_to(victim_, secret_);
        settings_ = {{"shared_dir", shared_}, {"local_dir", common_}, {"record", "off"}};
    }
    void TearDown() override {
        if (common_.empty()) return;
        EXPECT_EQ(read_text(secret_), "secret");
        fs::remove_all(common_);
        for (const auto& entry : fs::directory_iterator(in_memory))
            if (entry.path().string().starts_with(usual_)) fs::remove_all(entry.path());
    }
    std::string run(const Settings& settings, uint64_t epoch, const std::function<void()>& before_save = {}) {
        return as_user(victim_, [&] { return program(settings, epoch, before_save); });
    }
    // The node's directory of the first run's parts.
    std::string node_directory(const std::string& in) {
        for (const auto& entry : fs::directory_iterator(in))
            if (entry.path().string().ends_with(".node0000")) return entry.path();
        return "";
    }

    const uid_t victim_ = 60'000 + static_cast<uid_t>(getpid()) % 4000;
    const std::string usual_ = std::string(in_memory) + "/tailrace-" + std::to_string(victim_);
    std::string common_, shared_, secret_;
    Settings settings_;
};

TEST_F(OtherUserTest, WhatASessionMakesIsItsUsersAlone) {
    EXPECT_THAT(run({{"shared_dir", shared_},
                     {"record_dir", common_ + "/records"},
                     {"trace_dir", common_ + "/traces"}},
                    1),
                HasSubstr("close: ok"));
    EXPECT_EQ(mode_of(usual_), 0700u);
    EXPECT_EQ(mode_of(common_ + "/records"), 0700u);
    EXPECT_EQ(mode_of(common_ + "/traces"), 0700u);
    EXPECT_EQ(mode_of(node_directory(usual_)), 0700u);
    const auto parts = files_below(usual_);
    EXPECT_EQ(parts.size(), 1u);
    for (const auto& part : parts) EXPECT_EQ(mode_of(part), 0600u) << part;
}

TEST_F(OtherUserTest, TheUsualDirectoryOfAnotherUserIsLeftForOneThatLaterRunsFind) {
    const Settings settings = {{"shared_dir", shared_}, {"record", "off"}, {"keep_local", "4"}};
    ASSERT_THAT(run(settings, 1), HasSubstr("close: ok"));
    // The other user's from here on, with a trap where the next part is written.
    const auto node = node_directory(usual_);
    const auto trap = node + "/tailrace.e000000002.r0002.p00000.capture.unfinished";
    fs::create_symlink(secret_, trap);
    give_to(mallory, usual_);
    for (const auto& path : {usual_, node}) ASSERT_EQ(chmod(path.c_str(), 0777), 0);
    const auto planted = files_below(usual_);
    const auto second = run(settings, 2);
    EXPECT_THAT(second, AllOf(HasSubstr("close: ok"), HasSubstr("is not used for the node-local tier"),
                              HasSubstr("belongs to user 64321")));
    EXPECT_EQ(files_below(usual_), planted);
    EXPECT_EQ(files_below(usual_ + ".1").size(), 1u);
    EXPECT_THAT(run(settings, 3), AllOf(HasSubstr("restored 2 of 2"), HasSubstr("close: ok")));
    EXPECT_EQ(files_below(usual_ + ".1").size(), 2u);
    // It goes, and what was captured meanwhile is found all the same.
    fs::remove_all(usual_);
    EXPECT_THAT(run(settings, 4), HasSubstr("close: ok"));
    EXPECT_EQ(files_below(usual_ + ".1").size(), 3u);
}

TEST_F(OtherUserTest, ALinkAsTheUsualDirectoryIsLeft) {
    ASSERT_EQ(mkdir((common_ + "/mine").c_str(), 0700), 0);
    give_to(victim_, common_ + "/mine");
    fs::create_directory_symlink(common_ + "/mine", usual_);
    give_to(mallory, usual_);
    EXPECT_THAT(run({{"shared_dir", shared_}, {"record", "off"}}, 1),
                AllOf(HasSubstr("close: ok"), HasSubstr("symbolic link")));
    EXPECT_TRUE(fs::is_empty(common_ + "/mine"));
    EXPECT_EQ(files_below(usual_ + ".1").size(), 1u);
}

TEST_F(OtherUserTest, ADirectoryThatTheUserNamedIsRefusedWhereAnybodyMayReplaceWhatIsInIt) {
    const auto local = common_ + "/local";
    ASSERT_EQ(mkdir(local.c_str(), 0777), 0);
    ASSERT_EQ(chmod(local.c_str(), 0777), 0);
    auto settings = settings_;
    settings[1].second = local;
    EXPECT_THAT(run(settings, 1), AllOf(HasSubstr("open: invalid argument"), HasSubstr("chmod +t")));
    ASSERT_EQ(chmod(local.c_str(), 01777), 0);
    EXPECT_THAT(run(settings, 1), HasSubstr("close: ok"));
}

TEST_F(OtherUserTest, ANodesDirectoryOfAnotherUserIsRefusedAndNamesHim) {
    ASSERT_THAT(run(settings_, 1), HasSubstr("close: ok"));
    give_to(mallory, node_directory(common_));
    EXPECT_THAT(run(settings_, 2),
                AllOf(HasSubstr("open: invalid argument"), HasSubstr("belongs to user 64321"),
                      HasSubstr("choose another directory")));
}

TEST_F(OtherUserTest, PartsThatAnotherUserMadeAreNeitherRestoredNorFlushed) {
    ASSERT_THAT(run(settings_, 1), HasSubstr("close: ok"));
    // As another node of the job, and in its own directory while that was open to all.
    const auto node = node_directory(common_);
    const auto other = node.substr(0, node.size() - 1) + "7";
    fs::copy(node, other);
    give_to(mallory, other);
    for (const auto& file : files_below(node)) give_to(mallory, file);
    fs::remove_all(shared_);
    const auto said = run(settings_, 2);
    EXPECT_THAT(said, AllOf(HasSubstr("belongs to user 64321"), Not(HasSubstr("restore: ok")),
                            HasSubstr("wait: ok")));
    for (const auto& file : files_below(shared_)) EXPECT_THAT(file, HasSubstr(".e000000002."));
}

TEST_F(OtherUserTest, LinksInANodesDirectoryOverwriteNothing) {
    ASSERT_THAT(run(settings_, 1), HasSubstr("close: ok"));
    const auto node = node_directory(common_);
    const auto plant = [&](uint64_t epoch, uint64_t run) {
        char name[100];
        (void)snprintf(name, sizeof name, "/tailrace.e%09llu.r%04llu.p00000.capture.unfinished",
                       static_cast<unsigned long long>(epoch), static_cast<unsigned long long>(run));
        fs::create_symlink(secret_, node + name);
    };
    plant(2, 2);
    EXPECT_THAT(run(settings_, 2), HasSubstr("close: ok"))
        << "removed when the session begins, which is run 3";
    EXPECT_THAT(run(settings_, 3, [&] { plant(3, 4); }),
                AllOf(HasSubstr("save: I/O error"), HasSubstr("symbolic link")));
}

TEST_F(OtherUserTest, LinksInASharedDirectoryOverwriteNothing) {
    ASSERT_EQ(mkdir(shared_.c_str(), 0777), 0);
    ASSERT_EQ(chmod(shared_.c_str(), 0777), 0);
    const auto trap = shared_ + "/tailrace.e000000001.r0001.1of1.tailrace.unfinished";
    const auto soft = run(settings_, 1, [&] { fs::create_symlink(secret_, trap); });
    EXPECT_THAT(soft, AllOf(HasSubstr("wait: I/O error"), HasSubstr("symbolic link")));
    fs::remove_all(shared_);
    fs::remove_all(node_directory(common_));
    ASSERT_EQ(mkdir(shared_.c_str(), 0777), 0);
    ASSERT_EQ(chmod(shared_.c_str(), 0777), 0);
    const auto hard = run(settings_, 1, [&] { fs::create_hard_link(secret_, trap); });
    EXPECT_THAT(hard, AllOf(HasSubstr("wait: I/O error"), HasSubstr("2 names")));
}

TEST_F(OtherUserTest, LinksForRecordsAndTracesOverwriteNothing) {
    auto settings = settings_;
    settings[2].second = "on";
    settings.push_back({"record_dir", common_ + "/records"});
    settings.push_back({"trace_dir", common_ + "/traces"});
    ASSERT_THAT(run(settings, 1), HasSubstr("close: ok"));
    for (const auto& directory : {common_ + "/records", common_ + "/traces"}) {
        ASSERT_FALSE(files_below(directory).empty());
        ASSERT_EQ(chmod(directory.c_str(), 01777), 0);
    }
    for (const auto& file : files_below(common_ + "/records")) {
        fs::remove(file);
        fs::create_symlink(secret_, file);
        give_to(mallory, file);
    }
    fs::create_symlink(secret_, common_ + "/traces/tailrace.r0002.node0.trace.json");
    EXPECT_THAT(run(settings, 2), HasSubstr("close: ok"));
}

TEST_F(OtherUserTest, WhoeverHoldsTheLockOfAReadableDirectoryIsNamed) {
    ASSERT_THAT(run(settings_, 1), HasSubstr("close: ok"));
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t holder = fork();
    if (holder == 0) {
        const bool is_mallory = setgid(mallory) == 0 && setuid(mallory) == 0;
        const int directory = ::open(shared_.c_str(), O_RDONLY | O_DIRECTORY);
        const bool locked = is_mallory && flock(directory, LOCK_EX | LOCK_NB) == 0;
        (void)!write(ready[1], locked ? "y" : "n", 1);
        while (true) pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    EXPECT_THAT(run(settings_, 2), AllOf(HasSubstr("open: busy"),
                                         HasSubstr("process " + std::to_string(holder) + " of user 64321"),
                                         HasSubstr("chmod go-r")));
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

}  // namespace
