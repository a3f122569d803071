// RoutedFiles: what stands for the files of a program when it saves.
#include "files/routed_files.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "files/text_files.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using test::write;

class RoutedFilesTest : public testing::Test {
  protected:
    RoutedFilesTest() {
        auto made = FileTree::make(scratch_.path(), "tree", TreeParent::own, 0700);
        EXPECT_TRUE(made.ok()) << made.status().message();
        tree_ = *made;
        files_ = std::make_unique<RoutedFiles>(tree_);
    }

    test::ScratchDirectory scratch_;
    std::shared_ptr<FileTree> tree_;
    std::unique_ptr<RoutedFiles> files_;
};

TEST_F(RoutedFilesTest, ANameWhoseRouteFailedIsNotRouted) {
    write(tree_->path_of("a"), "a file in place of a directory");
    EXPECT_THAT(files_->route("a/x").status().message(), HasSubstr("is a file"));
    EXPECT_EQ(files_->route("../x").status().code(), Code::invalid_argument);
    const auto path = files_->route("b/x");
    ASSERT_TRUE(path.ok()) << path.status().message();
    EXPECT_EQ(files_->path_bytes("b/x"), path->size() + 1);
    EXPECT_THAT(files_->route("b").status().message(), HasSubstr("another file has it as a directory"));
    EXPECT_THAT(files_->route("b/x/y").status().message(), HasSubstr("is a file already"));
    EXPECT_FALSE(fs::exists(*path)) << "it was not made a directory";
    EXPECT_EQ(*files_->route("b/x"), *path);
    write(*path, "bytes");
    const auto sources = files_->sources();
    ASSERT_TRUE(sources.ok()) << sources.status().message();
    ASSERT_EQ(sources->size(), 2u) << "the table and one file";
    EXPECT_EQ(sources->back().name, "file/b/x");
}

TEST_F(RoutedFilesTest, AFileThatItsOwnerMayNotReadIsRefusedBeforeTheCapture) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can act for another user";
    constexpr uid_t nobody = 65534;
    const auto path = files_->route("x");
    ASSERT_TRUE(path.ok()) << path.status().message();
    write(*path, "bytes");
    fs::permissions(*path, fs::perms{0200});
    for (const auto& of_nobody : {scratch_.path(), tree_->path(), *path})
        ASSERT_EQ(chown(of_nobody.c_str(), nobody, nobody), 0);
    ASSERT_EQ(seteuid(nobody), 0);
    const Status refused = files_->sources().status();
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(refused.message(), HasSubstr("give its owner the right to read it"));
    EXPECT_TRUE(files_->sources().ok()) << "root may read everything";
}

}  // namespace
}  // namespace tailrace::internal
