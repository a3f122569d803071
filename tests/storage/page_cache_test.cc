// What lies in the page cache, asked in both ways. The question is answered for a moment; so the tests use
// files that nothing else reads, and make sure of what the kernel has by reading it, or by asking it to drop
// it.
#include "storage/page_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "storage/scratch.h"
#include "storage/system_path.h"

namespace tailrace::internal::test {
namespace {

constexpr size_t bytes = 1 << 20;

class PageCacheTest : public testing::Test {
  protected:
    // Written, durable, and so nothing that the kernel would have to keep.
    void SetUp() override {
        file_ = Descriptor(::open((scratch_ / "a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        ASSERT_TRUE(file_.valid());
        const std::vector<char> content(bytes, 'x');
        ASSERT_EQ(pwrite(file_.get(), content.data(), bytes, 0), static_cast<ssize_t>(bytes));
        ASSERT_EQ(fsync(file_.get()), 0);
    }
    // Whole pages of the cache may hold many of the file's: so all is dropped, and one page read again,
    // alone.
    void keep_first_page() {
        ASSERT_EQ(posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
        ASSERT_EQ(posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM), 0);
        char page[4096];
        ASSERT_EQ(pread(file_.get(), page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
    }

    ScratchDirectory scratch_;
    Descriptor file_;
};

using Way = std::function<std::optional<bool>(int, uint64_t, uint64_t)>;

void expect_told(const Way& asks, int file, const std::function<void()>& keep_first_page) {
    EXPECT_EQ(asks(file, 0, bytes), true);
    EXPECT_EQ(asks(file, 5000, 1), true);
    EXPECT_EQ(asks(file, 4095, 2), true);
    EXPECT_EQ(asks(file, 0, bytes + 1), false);  // a page behind the end is never there
    keep_first_page();
    EXPECT_EQ(asks(file, 0, bytes), false);
    EXPECT_EQ(asks(file, bytes / 2 - 1, 2), false);
    EXPECT_EQ(asks(file, 0, 4096), true);
    EXPECT_EQ(asks(file, bytes - 1, 1), false);
}

TEST_F(PageCacheTest, CachestatTells) {
    if (!cached_by_cachestat(file_.get(), 0, 1))
        GTEST_SKIP() << "this kernel has no cachestat, or forbids it";
    expect_told(cached_by_cachestat, file_.get(), [&] { keep_first_page(); });
}

TEST_F(PageCacheTest, MincoreTells) {
    ASSERT_TRUE(cached_by_mincore(file_.get(), 0, 1).has_value());
    expect_told(cached_by_mincore, file_.get(), [&] { keep_first_page(); });
}

TEST_F(PageCacheTest, MincoreIsNotAskedAboutFilesOfOthers) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
    ASSERT_EQ(fchown(file_.get(), 65534, 65534), 0);
    EXPECT_FALSE(cached_by_mincore(file_.get(), 0, 1).has_value());
}

TEST_F(PageCacheTest, NoFileAndNoBytesAreNotInTheCache) {
    EXPECT_FALSE(lies_in_page_cache(-1, 0, bytes));
    EXPECT_FALSE(lies_in_page_cache(file_.get(), 0, 0));
    EXPECT_FALSE(lies_in_page_cache(file_.get(), UINT64_MAX, 1));
    EXPECT_FALSE(lies_in_page_cache(file_.get(), 0, UINT64_MAX));
}

}  // namespace
}  // namespace tailrace::internal::test
