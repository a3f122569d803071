// FileTree: nothing outside the directory is read or written, whatever lies in it.
#include "files/file_tree.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "capture/file_sets.h"
#include "files/text_files.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using test::read;
using test::write;

class FileTreeTest : public testing::Test {
  protected:
    FileTreeTest() {
        own_ = scratch_ / "own";
        fs::create_directory(own_);
        outside_ = scratch_ / "outside";
        fs::create_directory(outside_);
        write(outside_ + "/mine", "precious");
        auto made = FileTree::make(own_, "tree", TreeParent::own, 0700);
        EXPECT_TRUE(made.ok()) << made.status().message();
        tree_ = *made;
    }
    // What the program's files say of a place outside.
    void expect_untouched() const {
        EXPECT_EQ(read(outside_ + "/mine"), "precious");
        EXPECT_EQ(std::distance(fs::directory_iterator(outside_), {}), 1);
    }

    test::ScratchDirectory scratch_;
    std::string own_, outside_;
    std::shared_ptr<FileTree> tree_;
};

TEST_F(FileTreeTest, TheDirectoryIsTheUsersAloneAndGoesWithTheTree) {
    EXPECT_EQ(tree_->path(), own_ + "/tree");
    EXPECT_EQ(fs::status(tree_->path()).permissions(), fs::perms::owner_all);
    ASSERT_TRUE(tree_->make_directories_of("a/b/c").ok());
    EXPECT_EQ(fs::status(tree_->path_of("a/b")).permissions(), fs::perms::owner_all);
    write(tree_->path_of("a/b/c"), "text");
    fs::create_symlink(outside_, tree_->path_of("link"));
    EXPECT_THAT(tree_->names(), ElementsAre("a/b/c", "link"));
    tree_.reset();
    EXPECT_TRUE(fs::is_empty(own_));
    expect_untouched();
}

// There is room for one more descriptor, and that of the directory above takes it.
TEST_F(FileTreeTest, ADirectoryThatCannotBeOpenedIsNotLeft) {
    const int lowest = dup(0);
    ASSERT_GE(lowest, 0);
    close(lowest);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit least = before;
    least.rlim_cur = static_cast<rlim_t>(lowest) + 1;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &least), 0);
    const Status refused = FileTree::make(own_, "other", TreeParent::own, 0700).status();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_THAT(refused.message(), HasSubstr("opening the directory '" + own_ + "/other'"));
    EXPECT_FALSE(fs::exists(own_ + "/other"));
}

TEST_F(FileTreeTest, ADirectoryThatIsThereOrIsALinkIsNotTaken) {
    EXPECT_EQ(FileTree::make(own_, "tree", TreeParent::own, 0700).status().code(), Code::already_exists);
    fs::create_symlink(outside_, own_ + "/planted");
    EXPECT_EQ(FileTree::make(own_, "planted", TreeParent::own, 0700).status().code(), Code::already_exists);
    EXPECT_FALSE(FileTree::make(own_ + "/planted", "tree", TreeParent::own, 0700).ok());
    expect_untouched();
    EXPECT_TRUE(FileTree::make(own_ + "/planted", "tree", TreeParent::chosen, 0700).ok());
}

TEST_F(FileTreeTest, AFileIsMadeFilledAndGetsItsRights) {
    auto file = tree_->create("a/b", 5);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const std::string text = "bytes";
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), (*file)->memory().begin());
    ASSERT_TRUE((*file)->finish(04751, true).ok());
    EXPECT_EQ(read(tree_->path_of("a/b")), "bytes");
    EXPECT_EQ(static_cast<unsigned>(fs::status(tree_->path_of("a/b")).permissions()), 0751u);
    auto empty = tree_->create("a/empty", 0);
    ASSERT_TRUE(empty.ok() && (*empty)->memory().empty() && (*empty)->finish(0600, false).ok());
    EXPECT_EQ(tree_->create("a/b", 5).status().code(), Code::already_exists);
}

TEST_F(FileTreeTest, AFileThatWasNotFinishedGoesAndLeavesItsNameFree) {
    ASSERT_TRUE(tree_->create("a/b", 5).ok());
    EXPECT_FALSE(fs::exists(tree_->path_of("a/b")));
    auto file = tree_->create("a/b", 5);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE((*file)->finish(0600, false).ok());
    file->reset();
    EXPECT_TRUE(fs::exists(tree_->path_of("a/b")));
}

TEST_F(FileTreeTest, WhatIsFoundCanBeReadUntilItChanges) {
    write(tree_->path_of("x"), "12345");
    fs::permissions(tree_->path_of("x"), fs::perms{0640});
    auto found = tree_->look("x");
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found->bytes, 5u);
    EXPECT_EQ(found->rights, 0640u);
    auto file = tree_->open("x", *found);
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::vector<std::byte> bytes(8);
    EXPECT_EQ(*(*file)->read_at(bytes, 0), 5u);

    write(tree_->path_of("x"), "123456");
    EXPECT_THAT(tree_->open("x", *found).status().message(), HasSubstr("had 5 bytes and has 6"));
    fs::remove(tree_->path_of("x"));
    EXPECT_EQ(tree_->look("x").status().code(), Code::not_found);
    write(tree_->path_of("x"), "54321");
    EXPECT_EQ(tree_->open("x", *found).status().code(), Code::io_error) << "it is another file";
}

TEST_F(FileTreeTest, LinksAreNotFollowed) {
    fs::create_symlink(outside_ + "/mine", tree_->path_of("link"));
    fs::create_symlink(outside_, tree_->path_of("directory"));
    fs::create_symlink("nowhere", tree_->path_of("dangling"));
    for (const char* name : {"link", "directory/mine", "dangling"}) {
        const Status status = tree_->look(name).status();
        EXPECT_EQ(status.code(), Code::invalid_argument) << name;
        EXPECT_THAT(status.message(), HasSubstr("is a symbolic link")) << name;
        EXPECT_FALSE(tree_->create(name, 3).ok()) << name;
    }
    EXPECT_FALSE(tree_->make_directories_of("directory/below/x").ok());
    // The file was replaced by a link after it was looked at.
    write(tree_->path_of("x"), "precious");
    const auto found = tree_->look("x");
    fs::remove(tree_->path_of("x"));
    fs::create_symlink(outside_ + "/mine", tree_->path_of("x"));
    EXPECT_FALSE(tree_->open("x", *found).ok());
    expect_untouched();
}

TEST_F(FileTreeTest, OnlyFilesAreFiles) {
    fs::create_directory(tree_->path_of("directory"));
    ASSERT_EQ(mkfifo(tree_->path_of("pipe").c_str(), 0600), 0);
    EXPECT_THAT(tree_->look("directory").status().message(), HasSubstr("is a directory"));
    EXPECT_THAT(tree_->look("pipe").status().message(), HasSubstr("is a device, pipe or socket"));
    write(tree_->path_of("file"), "");
    EXPECT_THAT(tree_->look("file/below").status().message(), HasSubstr("is a file"));
}

TEST_F(FileTreeTest, ATreeThatHasMovedStays) {
    write(tree_->path_of("x"), "text");
    ASSERT_TRUE(tree_->move_to(scratch_ / "moved").ok());
    tree_.reset();
    EXPECT_EQ(read(scratch_ / "moved/x"), "text");
}

TEST_F(FileTreeTest, APathThatSystemsDoNotTakeIsRefused) {
    std::string name = "x";
    while (name.size() < max_path_bytes - 300) name += "/" + std::string(200, 'y');
    ASSERT_TRUE(tree_->usable_path(name).ok());
    while (name.size() < max_path_bytes - 1) name += "/y";
    EXPECT_THAT(tree_->usable_path(name).status().message(), HasSubstr("systems allow 4095"));
}

TEST_F(FileTreeTest, ATreeWithDirectoriesOfFewRightsGoesAll) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can act for a user who owns nothing else";
    constexpr uid_t nobody = 65534;
    const std::string tree = scratch_ / "few";
    fs::create_directories(tree + "/a/b");
    write(tree + "/a/b/x", "text");
    fs::create_symlink(outside_, tree + "/a/link");
    for (const auto& path : {scratch_.path(), tree, tree + "/a", tree + "/a/b"})
        ASSERT_EQ(chown(path.c_str(), nobody, nobody), 0);
    fs::permissions(tree + "/a/b", fs::perms{0500});
    fs::permissions(tree + "/a", fs::perms{0});
    fs::permissions(outside_, fs::perms{0755});
    ASSERT_EQ(seteuid(nobody), 0);
    const Status removed = remove_directory_tree(tree);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_TRUE(removed.ok()) << removed.message();
    EXPECT_FALSE(fs::exists(tree));
    EXPECT_EQ(fs::status(outside_).permissions(), fs::perms{0755});
    expect_untouched();
}

}  // namespace
}  // namespace tailrace::internal
