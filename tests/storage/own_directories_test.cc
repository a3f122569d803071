// What other users may plant where the library looks, and that it is neither read, written nor followed.
// Where these tests run as root they are two users in turn; elsewhere what needs a second one is skipped.
#include "storage/own_directories.h"

#include <fcntl.h>
#include <sys/file.h>

#include <fstream>

#include "storage/posix_storage.h"
#include "storage/scratch.h"

namespace tailrace::internal::test {
namespace {

constexpr uid_t mallory = 64'321;

struct stat facts(mode_t mode, uid_t owner, nlink_t names = 1) {
    struct stat info {};
    info.st_mode = mode;
    info.st_uid = owner;
    info.st_nlink = names;
    return info;
}

TEST(WhomToBelieveTest, ADirectoryOfOursIsNoLinkAndNobodyElses) {
    EXPECT_EQ(why_no_own_directory(facts(S_IFDIR | 0700, 5), 5), "");
    EXPECT_EQ(why_no_own_directory(facts(S_IFDIR | 0777, 5), 5), "") << "it is closed when it is taken";
    EXPECT_NE(why_no_own_directory(facts(S_IFDIR | 0700, mallory), 5).find("user 64321"), std::string::npos);
    EXPECT_NE(why_no_own_directory(facts(S_IFDIR | 0700, mallory), 0), "")
        << "root believes nobody else either";
    EXPECT_NE(why_no_own_directory(facts(S_IFLNK | 0777, 5), 5), "");
    EXPECT_NE(why_no_own_directory(facts(S_IFREG | 0600, 5), 5), "");
}

TEST(WhomToBelieveTest, AFileOfOursHasOneNameAndOneWriter) {
    EXPECT_EQ(why_no_private_file(facts(S_IFREG | 0644, 5), 5), "");
    EXPECT_EQ(why_no_private_file(facts(S_IFREG | 0600, 5, 0), 5), "") << "removed meanwhile";
    EXPECT_NE(why_no_private_file(facts(S_IFREG | 0600, mallory), 5), "");
    EXPECT_NE(why_no_private_file(facts(S_IFREG | 0600, 5, 2), 5), "");
    EXPECT_NE(why_no_private_file(facts(S_IFREG | 0620, 5), 5), "");
    EXPECT_NE(why_no_private_file(facts(S_IFREG | 0602, 5), 5), "");
    EXPECT_EQ(why_no_own_file(facts(S_IFREG | 0664, 5), 5), "") << "a record may be a group's";
}

TEST(WhomToBelieveTest, ACommonDirectoryIsNotEverybodysToReplace) {
    EXPECT_EQ(why_no_common_directory(facts(S_IFDIR | 01777, 0)), "");
    EXPECT_EQ(why_no_common_directory(facts(S_IFDIR | 02775, mallory)), "") << "a group's, by choice";
    EXPECT_NE(why_no_common_directory(facts(S_IFDIR | 0777, 5)), "");
    EXPECT_NE(why_no_common_directory(facts(S_IFREG | 0644, 5)), "");
}

mode_t mode_of(const std::string& path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
}
std::string read_text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

class OwnDirectoriesTest : public testing::Test {
  protected:
    OwnDirectoriesTest() {
        EXPECT_EQ(chmod(common_.path().c_str(), 01777), 0);
        write_text(secret_, "secret");
    }
    const ScratchDirectory common_;
    const ScratchDirectory elsewhere_;
    const std::string secret_ = elsewhere_ / "secret";
    const std::string own_ = common_ / "own";
    const std::shared_ptr<Storage> storage_ = make_posix_storage({.own_in = common_.path()});
};

TEST_F(OwnDirectoriesTest, WhatIsMadeIsClosedToOthersWhateverTheUmask) {
    for (const mode_t mask : {0, 022, 0277}) {
        SCOPED_TRACE(mask);
        const mode_t before = umask(mask == 0277 ? 0 : mask);
        TAILRACE_ASSERT_OK(storage_->make_directories(own_));
        umask(mask);
        TAILRACE_EXPECT_OK(storage_->open(own_ + "/a", {Access::write, DirectIo::off}));
        TAILRACE_EXPECT_OK(storage_->open(own_ + "/b", {Access::create_new, DirectIo::off}));
        umask(before);
        EXPECT_EQ(mode_of(own_), 0700u);
        EXPECT_EQ(mode_of(own_ + "/a"), 0600u);
        EXPECT_EQ(mode_of(own_ + "/b"), 0600u);
        std::filesystem::remove_all(own_);
    }
}

TEST_F(OwnDirectoriesTest, ElsewhereAFileGetsTheRightsThatAreAskedForWhateverTheUmask) {
    const std::string path = elsewhere_ / "shared";
    OpenOptions how{Access::write, DirectIo::off};
    for (const uint32_t rights : {0600u, 0664u, 0u}) {
        how.rights = rights;
        const mode_t before = umask(022);
        TAILRACE_EXPECT_OK(storage_->open(path, how));
        EXPECT_EQ(usual_file_rights(), 0644u);
        umask(before);
        EXPECT_EQ(mode_of(path), rights == 0 ? 0664u : rights);
    }
    how.rights = 0666;
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    TAILRACE_EXPECT_OK(storage_->open(own_ + "/a", how));
    EXPECT_EQ(mode_of(own_ + "/a"), 0600u) << "a directory of our own";
}

TEST_F(OwnDirectoriesTest, AMissingCommonDirectoryIsMadeForThisUserAlone) {
    const std::string in = common_ / "x";
    TAILRACE_ASSERT_OK(make_posix_storage({.own_in = in})->make_directories(in + "/own"));
    EXPECT_EQ(mode_of(in), 0700u);
    EXPECT_EQ(mode_of(in + "/own"), 0700u);
}

TEST_F(OwnDirectoriesTest, ADirectoryOfOursThatWasOpenToOthersIsClosed) {
    const mode_t before = umask(0);
    ASSERT_EQ(mkdir(own_.c_str(), 0777), 0);
    umask(before);
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    EXPECT_EQ(mode_of(own_), 0700u);
}

TEST_F(OwnDirectoriesTest, ALinkInThePlaceOfTheDirectoryIsRefused) {
    ASSERT_EQ(symlink(elsewhere_.path().c_str(), own_.c_str()), 0);
    TAILRACE_EXPECT_FAILS(storage_->make_directories(own_), Code::invalid_argument, "it is a symbolic link");
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/secret", {Access::write, DirectIo::off}),
                          Code::invalid_argument, own_);
    TAILRACE_EXPECT_FAILS(storage_->remove(own_ + "/secret"), Code::invalid_argument, own_);
    TAILRACE_EXPECT_FAILS(storage_->rename(own_ + "/secret", own_ + "/a"), Code::invalid_argument, own_);
    TAILRACE_EXPECT_FAILS(storage_->list(own_), Code::invalid_argument, own_);
    TAILRACE_EXPECT_FAILS(storage_->lock_directory(own_), Code::invalid_argument, own_);
    TAILRACE_EXPECT_FAILS(storage_->sync_directory(own_), Code::invalid_argument, own_);
    EXPECT_EQ(read_text(secret_), "secret");
}

TEST_F(OwnDirectoriesTest, LinksInTheDirectoryAreNotFollowed) {
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    ASSERT_EQ(symlink(secret_.c_str(), (own_ + "/soft").c_str()), 0);
    ASSERT_EQ(link(secret_.c_str(), (own_ + "/hard").c_str()), 0);
    for (const Access access : {Access::read, Access::write})
        for (const DirectIo direct : {DirectIo::off, DirectIo::automatic}) {
            TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/soft", {access, direct}), Code::io_error,
                                  "symbolic link");
            TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/hard", {access, direct}), Code::io_error,
                                  "2 names");
        }
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/soft", {Access::create_new, DirectIo::off}),
                          Code::already_exists, own_);
    const auto listed = storage_->list(own_);
    TAILRACE_ASSERT_OK(listed);
    for (const auto& entry : *listed) EXPECT_FALSE(entry.is_directory);
    TAILRACE_EXPECT_OK(storage_->remove(own_ + "/soft"));
    TAILRACE_EXPECT_OK(storage_->remove(own_ + "/hard"));
    EXPECT_EQ(read_text(secret_), "secret");
}

TEST_F(OwnDirectoriesTest, AFileThatOthersMayWriteIsNotBelieved) {
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    write_text(own_ + "/a", "a");
    ASSERT_EQ(chmod((own_ + "/a").c_str(), 0664), 0);
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/a", {}), Code::io_error, "chmod go-w");
    ASSERT_EQ(chmod((own_ + "/a").c_str(), 0644), 0);
    TAILRACE_EXPECT_OK(storage_->open(own_ + "/a", {}));
}

TEST_F(OwnDirectoriesTest, ACommonDirectoryThatAnybodyMayRearrangeIsRefused) {
    ASSERT_EQ(chmod(common_.path().c_str(), 0777), 0);
    TAILRACE_EXPECT_FAILS(storage_->make_directories(own_), Code::invalid_argument, "no sticky bit");
    EXPECT_EQ(mode_of(own_), 0u);
    ASSERT_EQ(mkdir(own_.c_str(), 0700), 0);
    TAILRACE_EXPECT_FAILS(storage_->list(common_.path()), Code::invalid_argument, "no sticky bit");
    TAILRACE_EXPECT_FAILS(storage_->list(own_), Code::invalid_argument, "no sticky bit");
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/a", {Access::write, DirectIo::off}), Code::invalid_argument,
                          "no sticky bit");
}

TEST_F(OwnDirectoriesTest, ADirectoryThatIsReplacedIsCheckedAgain) {
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    TAILRACE_ASSERT_OK(storage_->open(own_ + "/a", {Access::write, DirectIo::off}));
    std::filesystem::remove_all(own_);
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/a", {Access::write, DirectIo::off}), Code::not_found, own_);
    ASSERT_EQ(symlink(elsewhere_.path().c_str(), own_.c_str()), 0);
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/secret", {Access::write, DirectIo::off}),
                          Code::invalid_argument, own_);
    ASSERT_EQ(unlink(own_.c_str()), 0);
    TAILRACE_ASSERT_OK(storage_->make_directories(own_));
    TAILRACE_EXPECT_OK(storage_->open(own_ + "/a", {Access::write, DirectIo::off}));
}

TEST_F(OwnDirectoriesTest, FewDescriptorsAreKeptOfManyDirectories) {
    const auto descriptors = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return std::distance(begin(all), end(all));
    };
    const auto before = descriptors();
    for (int i = 0; i < 200; ++i) {
        const auto directory = own_ + std::to_string(i);
        TAILRACE_ASSERT_OK(storage_->make_directories(directory));
        TAILRACE_ASSERT_OK(storage_->list(directory));
    }
    EXPECT_LE(descriptors(), before + 70);
    TAILRACE_EXPECT_OK(storage_->list(own_ + "0"));
}

TEST_F(OwnDirectoriesTest, OutsideOfThemOnlyTheProgramsOwnFilesAreWrittenThroughLinks) {
    const std::string soft = elsewhere_ / "soft", hard = elsewhere_ / "hard";
    ASSERT_EQ(symlink(secret_.c_str(), soft.c_str()), 0);
    const auto usual = make_posix_storage(), follows = make_posix_storage({.follow_links = true});
    TAILRACE_EXPECT_FAILS(usual->open(soft, {Access::write, DirectIo::off}), Code::io_error, "symbolic link");
    TAILRACE_EXPECT_OK(usual->open(soft, {}));
    TAILRACE_EXPECT_OK(follows->open(soft, {Access::write, DirectIo::off}));
    ASSERT_EQ(link(secret_.c_str(), hard.c_str()), 0);
    TAILRACE_EXPECT_FAILS(usual->open(hard, {Access::write, DirectIo::off}), Code::io_error, "2 names");
    TAILRACE_EXPECT_OK(usual->open(hard, {}));
    TAILRACE_EXPECT_OK(follows->open(hard, {Access::write, DirectIo::off}));
    TAILRACE_EXPECT_FAILS(follows->open(hard, {Access::write, DirectIo::off, true}), Code::io_error,
                          "2 names");
}

// ---- with a second user ------------------------------------------------------------------------------

#define NEED_TWO_USERS() \
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be two users in turn"

TEST_F(OwnDirectoriesTest, AnotherUsersDirectoriesAndFilesAreRefused) {
    NEED_TWO_USERS();
    ASSERT_EQ(mkdir(own_.c_str(), 0777), 0);
    write_text(own_ + "/a", "planted");
    ASSERT_EQ(chown(own_.c_str(), mallory, mallory), 0);
    TAILRACE_EXPECT_FAILS(storage_->make_directories(own_), Code::invalid_argument, "belongs to user 64321");
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/a", {}), Code::invalid_argument, own_);
    ASSERT_EQ(chown(own_.c_str(), 0, 0), 0);
    ASSERT_EQ(chown((own_ + "/a").c_str(), mallory, mallory), 0);
    TAILRACE_EXPECT_FAILS(storage_->open(own_ + "/a", {}), Code::io_error, "belongs to user 64321");
    TAILRACE_EXPECT_FAILS(make_posix_storage()->open(own_ + "/a", {Access::write, DirectIo::off, true}),
                          Code::io_error, "belongs to user 64321");
    TAILRACE_EXPECT_OK(make_posix_storage()->open(own_ + "/a", {Access::write, DirectIo::off}));
}

TEST_F(OwnDirectoriesTest, TheOtherUserThatHoldsALockIsNamed) {
    NEED_TWO_USERS();
    for (const int kind : {LOCK_EX, LOCK_SH}) {
        const int directory = ::open(common_.path().c_str(), O_RDONLY | O_DIRECTORY);
        ASSERT_EQ(flock(directory, kind | LOCK_NB), 0);
        const std::string holder = "process " + std::to_string(getpid()) + " of user 0";
        std::string said;
        int answer[2];
        ASSERT_EQ(pipe(answer), 0);
        EXPECT_EQ(in_child([&] {
                      if (setgid(mallory) != 0 || setuid(mallory) != 0) return 1;
                      const auto lock = make_posix_storage()->lock_directory(common_.path());
                      const std::string sentence = lock.status().message();
                      (void)!write(answer[1], sentence.data(), sentence.size());
                      return lock.status().code() == Code::busy ? 0 : 2;
                  }),
                  0);
        close(answer[1]);
        said.resize(4096);
        said.resize(static_cast<size_t>(std::max<ssize_t>(0, read(answer[0], said.data(), said.size()))));
        close(answer[0]);
        close(directory);
        EXPECT_NE(said.find(holder), std::string::npos) << said;
        EXPECT_NE(said.find("chmod go-r"), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace tailrace::internal::test
