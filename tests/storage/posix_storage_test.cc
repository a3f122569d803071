#include "storage/posix_storage.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/units.h"
#include "storage/conformance.h"
#include "storage/page_cache.h"
#include "storage/scratch.h"
#include "storage/system_cases.h"
#include "storage/system_path.h"

namespace tailrace::internal::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Posix, StorageConformance,
                         testing::ValuesIn(system_cases("posix",
                                                        [](const auto&) { return make_posix_storage(); })),
                         case_name);
INSTANTIATE_TEST_SUITE_P(PosixOwn, StorageConformance,
                         testing::ValuesIn(system_cases("posix_own",
                                                        [](const std::string& in) {
                                                            return make_posix_storage({.own_in = in});
                                                        })),
                         case_name);

// Moves bytes as PosixEngine does, but writes down how it was called, and fails where it is told to.
class WatchedEngine : public PosixEngine {
  public:
    struct Call {
        Route route = Route::cached;
        uint64_t offset = 0;
        size_t bytes = 0;
        bool operator==(const Call&) const = default;
    };
    std::vector<Call> calls;
    bool refuse_uncached = false;
    int refuse_direct = 0;         // the errno value of every direct transfer
    size_t shorten_direct_to = 0;  // the next direct transfer stops there
    std::vector<int> sync_errors;  // of the next syncs
    bool all_close_on_exec = true;

    Moved write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) override {
        if (note(descriptor, offset, source.size(), route)) {
            if (refuse_direct != 0) return {0, refuse_direct};
            if (size_t limit = std::exchange(shorten_direct_to, 0); limit != 0) {
                return PosixEngine::write(descriptor, source.first(limit), offset, route);
            }
        }
        return PosixEngine::write(descriptor, source, offset, route);
    }
    Moved read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) override {
        size_t bytes = 0;
        for (const iovec& target : targets) bytes += target.iov_len;
        if (note(descriptor, offset, bytes, route) && refuse_direct != 0) return {0, refuse_direct};
        return PosixEngine::read(descriptor, targets, offset, route);
    }
    bool can_go_uncached(int descriptor) override {
        return !refuse_uncached && PosixEngine::can_go_uncached(descriptor);
    }
    int sync(int descriptor) override {
        if (sync_errors.empty()) return PosixEngine::sync(descriptor);
        const int error = sync_errors.front();
        sync_errors.erase(sync_errors.begin());
        return error != 0 ? error : PosixEngine::sync(descriptor);
    }

  private:
    bool note(int descriptor, uint64_t offset, size_t bytes, Route route) {
        const bool direct = (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
        EXPECT_EQ(direct, route == Route::direct);
        all_close_on_exec = all_close_on_exec && (fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0;
        calls.push_back({route, offset, bytes});
        return direct;
    }
};

class PosixStorageTest : public testing::Test {
  protected:
    // A new file on a disk that offers direct I/O, or none with the reason printed.
    std::unique_ptr<File> direct_file(DirectIo direct) {
        auto file = storage_->open(scratch_ / "a", {Access::write, direct});
        if (file.ok() && direct != DirectIo::off) {
            auto probe = storage_->open(scratch_ / "probe", {Access::write, DirectIo::on});
            if (!probe.ok()) {
                reason_ = probe.status().to_string();
                return nullptr;
            }
        }
        TAILRACE_EXPECT_OK(file);
        return file.ok() ? std::move(*file) : nullptr;
    }
    static std::span<std::byte> aligned(std::vector<std::byte>& memory, size_t shift, size_t bytes) {
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        return std::span(memory).subspan((4096 - address % 4096) % 4096 + shift, bytes);
    }

    // How many pages of a file the system holds in memory.
    static size_t pages_in_cache(const std::string& path) {
        const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const auto bytes = static_cast<size_t>(std::filesystem::file_size(path));
        void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
        EXPECT_NE(memory, MAP_FAILED);
        std::vector<unsigned char> there((bytes + 4095) / 4096);
        EXPECT_EQ(mincore(memory, bytes, there.data()), 0);
        munmap(memory, bytes);
        return static_cast<size_t>(
            std::count_if(there.begin(), there.end(), [](auto page) { return page & 1; }));
    }

    ScratchDirectory scratch_;
    std::shared_ptr<WatchedEngine> engine_ = std::make_shared<WatchedEngine>();
    std::shared_ptr<Storage> storage_ = make_file_storage(engine_);
    std::string reason_;
    using Calls = std::vector<WatchedEngine::Call>;
};

TEST_F(PosixStorageTest, OnlyAlignedPartsGoDirect) {
    auto file = direct_file(DirectIo::automatic);
    if (!file) GTEST_SKIP() << "no direct I/O here: " << reason_;
    std::vector<std::byte> memory(64 << 10);
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 100, 20'000), 100));  // head, middle, tail
    EXPECT_EQ(
        engine_->calls,
        (Calls{{Route::cached, 100, 3996}, {Route::direct, 4096, 12'288}, {Route::cached, 16'384, 3716}}));
    engine_->calls.clear();
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 8192), 4096));  // all of it
    EXPECT_EQ(engine_->calls, (Calls{{Route::direct, 4096, 8192}}));
    engine_->calls.clear();
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 1, 20'000), 0));  // memory and file never agree
    EXPECT_EQ(engine_->calls, (Calls{{Route::cached, 0, 20'000}}));
    engine_->calls.clear();
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 100, 8000), 100));  // no whole unit in it
    EXPECT_EQ(engine_->calls, (Calls{{Route::cached, 100, 8000}}));
    engine_->calls.clear();
    EXPECT_EQ(*file->read_at(aligned(memory, 0, 12'388), 4096), 12'388u);
    EXPECT_EQ(engine_->calls, (Calls{{Route::direct, 4096, 12'288}, {Route::cached, 16'384, 100}}));
    EXPECT_TRUE(engine_->all_close_on_exec);
}

TEST_F(PosixStorageTest, PiecesThatAreAlignedGoDirectTogether) {
    auto file = direct_file(DirectIo::on);
    if (!file) GTEST_SKIP() << "no direct I/O here: " << reason_;
    std::vector<std::byte> memory(64 << 10);
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 40'960), 0));
    engine_->calls.clear();
    std::vector<std::byte> a(16 << 10), b(16 << 10), c(16 << 10);
    const std::vector<Piece> pieces = {aligned(a, 0, 8192), aligned(b, 0, 4096), aligned(c, 0, 5000)};
    EXPECT_EQ(*file->read_pieces(pieces, 0), 17'288u);
    EXPECT_EQ(engine_->calls, (Calls{{Route::direct, 0, 16'384}, {Route::cached, 16'384, 904}}));
}

TEST_F(PosixStorageTest, WhatLiesInThePageCacheIsReadFromThere) {
    constexpr size_t bytes = 1 << 20;
    auto writer = direct_file(DirectIo::automatic);
    if (!writer) GTEST_SKIP() << "no direct I/O here: " << reason_;
    std::vector<std::byte> memory(bytes + (64 << 10));
    TAILRACE_ASSERT_OK(writer->write_at(aligned(memory, 0, bytes), 0));
    auto opened = storage_->open(
        writer->path(),
        {.access = Access::read, .direct = DirectIo::automatic, .own = false, .unchanging = true});
    TAILRACE_ASSERT_OK(opened);
    File* file = opened->get();
    auto plain = storage_->open(file->path(), {Access::read, DirectIo::off});
    TAILRACE_ASSERT_OK(plain);
    auto always = storage_->open(
        file->path(), {.access = Access::read, .direct = DirectIo::on, .own = false, .unchanging = true});
    TAILRACE_ASSERT_OK(always);
    const auto calls_of_read = [&](File& of, uint64_t offset, size_t count) {
        engine_->calls.clear();
        EXPECT_EQ(*of.read_at(aligned(memory, 0, count), offset), count);
        return std::exchange(engine_->calls, {});
    };
    EXPECT_EQ(calls_of_read(*file, 0, bytes), (Calls{{Route::direct, 0, bytes}}));
    EXPECT_EQ(*(*plain)->read_at(aligned(memory, 0, bytes), 0), bytes);
    if (!lies_in_page_cache(open_descriptor(file->path(), O_RDONLY).get(), 0, bytes))
        GTEST_SKIP() << "this system does not say what lies in the page cache";
    EXPECT_EQ(file->read_route(0, bytes), Route::cached);
    EXPECT_EQ(calls_of_read(*file, 0, bytes), (Calls{{Route::cached, 0, bytes}}));
    EXPECT_EQ(calls_of_read(*file, 8192, 4096), (Calls{{Route::cached, 8192, 4096}}));
    // Not what is asked to go around the cache, nor what may change on another node.
    EXPECT_EQ(calls_of_read(**always, 0, bytes), (Calls{{Route::direct, 0, bytes}}));
    EXPECT_EQ(calls_of_read(*writer, 0, bytes), (Calls{{Route::direct, 0, bytes}}));

    (*plain)->drop_cache();
    EXPECT_EQ(calls_of_read(*file, 0, bytes), (Calls{{Route::direct, 0, bytes}}));
}

TEST_F(PosixStorageTest, DirectOffUsesThePageCacheAlone) {
    auto file = direct_file(DirectIo::off);
    ASSERT_NE(file, nullptr);
    std::vector<std::byte> memory(64 << 10);
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 8192), 0));
    EXPECT_EQ(engine_->calls, (Calls{{Route::cached, 0, 8192}}));
}

TEST_F(PosixStorageTest, UncachedTransfersGoInOnePieceAndLeaveThePageCache) {
    const auto content = pattern(32 * MiB + 5000, 7);
    const size_t half = content.size() / 4096 / 2;  // the kernel keeps some, of large pages and for a while
    std::vector<std::byte> found(content.size());
    auto file = storage_->open(scratch_ / "a", {Access::write, DirectIo::uncached});
    const Descriptor descriptor(::open((scratch_ / "a").c_str(), O_RDWR | O_CLOEXEC));
    if (!PosixEngine().can_go_uncached(descriptor.get()))
        GTEST_SKIP() << "this kernel, or the file system of " << scratch_.path() << ", has no uncached I/O";
    utsname system{};
    ASSERT_EQ(uname(&system), 0);
    EXPECT_TRUE(release_at_least(system.release, 6, 16)) << system.release;
    TAILRACE_ASSERT_OK(file);
    EXPECT_EQ((*file)->route(), Route::uncached);
    TAILRACE_ASSERT_OK((*file)->write_at(content, 100));
    TAILRACE_ASSERT_OK((*file)->sync());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (pages_in_cache(scratch_ / "a") > half && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();  // the kernel drops them when it gets to it
    EXPECT_LE(pages_in_cache(scratch_ / "a"), half);
    (*file)->drop_cache();
    EXPECT_EQ(*(*file)->read_at(found, 100), content.size());
    EXPECT_EQ(found, content);
    EXPECT_LE(pages_in_cache(scratch_ / "a"), half);
    EXPECT_EQ(engine_->calls,
              (Calls{{Route::uncached, 100, content.size()}, {Route::uncached, 100, content.size()}}));
}

TEST(TransferEngineTest, KernelsThatCouldLosePagesAreToldByTheirRelease) {
    for (const char* release : {"6.16.0", "6.18.44-1-amd64", "7.0-rc1", "10.2"})
        EXPECT_TRUE(release_at_least(release, 6, 16)) << release;
    for (const char* release : {"6.15.9", "6.1.0-18-amd64", "5.20", "6", "", "linux"})
        EXPECT_FALSE(release_at_least(release, 6, 16)) << release;
}

TEST_F(PosixStorageTest, WhatCannotGoUncachedIsRefused) {
    engine_->refuse_uncached = true;
    TAILRACE_EXPECT_FAILS(storage_->open(scratch_ / "a", {Access::write, DirectIo::uncached}),
                          Code::unsupported, "direct_io to off or auto");
}

TEST_F(PosixStorageTest, ARefusalOfDirectIoAtFirstUseIsNoticed) {
    for (const int error : {EINVAL, EOPNOTSUPP}) {
        engine_->refuse_direct = error;
        engine_->calls.clear();
        auto file = direct_file(DirectIo::automatic);
        if (!file) GTEST_SKIP() << "no direct I/O here: " << reason_;
        std::vector<std::byte> memory(64 << 10, std::byte{5}), found(8192);
        TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 8192), 0));
        TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 8192), 0));
        EXPECT_EQ(*file->read_at(found, 0), 8192u);
        EXPECT_EQ(found.back(), std::byte{5});
        EXPECT_EQ(engine_->calls, (Calls{{Route::direct, 0, 8192},
                                         {Route::cached, 0, 8192},
                                         {Route::cached, 0, 8192},
                                         {Route::cached, 0, 8192}}));
        auto strict = direct_file(DirectIo::on);
        ASSERT_NE(strict, nullptr);
        TAILRACE_EXPECT_FAILS(strict->write_at(aligned(memory, 0, 8192), 0), Code::unsupported,
                              scratch_ / "a");
        TAILRACE_EXPECT_FAILS(strict->read_at(aligned(memory, 0, 8192), 0), Code::unsupported,
                              scratch_ / "a");
    }
}

TEST_F(PosixStorageTest, AnErrorOfADirectTransferIsNoRefusal) {
    auto file = direct_file(DirectIo::automatic);
    if (!file) GTEST_SKIP() << "no direct I/O here: " << reason_;
    std::vector<std::byte> memory(64 << 10);
    engine_->refuse_direct = EIO;
    TAILRACE_EXPECT_FAILS(file->write_at(aligned(memory, 0, 8192), 4096), Code::io_error,
                          "writing 8192 bytes at offset 4096 to '" + (scratch_ / "a"));
    engine_->refuse_direct = ENOSPC;
    TAILRACE_EXPECT_FAILS(file->write_at(aligned(memory, 0, 8192), 4096), Code::no_space, scratch_ / "a");
    EXPECT_EQ(engine_->calls.size(), 2u);  // not tried again the plain way
}

TEST_F(PosixStorageTest, AShortDirectWriteIsFinishedThePlainWay) {
    auto file = direct_file(DirectIo::automatic);
    if (!file) GTEST_SKIP() << "no direct I/O here: " << reason_;
    std::vector<std::byte> memory(64 << 10), found(16'384);
    const auto content = pattern(16'384, 1);
    std::copy(content.begin(), content.end(), aligned(memory, 0, 16'384).begin());
    engine_->shorten_direct_to = 4096;
    TAILRACE_ASSERT_OK(file->write_at(aligned(memory, 0, 16'384), 0));
    EXPECT_EQ(engine_->calls, (Calls{{Route::direct, 0, 16'384}, {Route::cached, 4096, 12'288}}));
    EXPECT_EQ(*file->read_at(found, 0), 16'384u);
    EXPECT_EQ(found, content);
}

TEST_F(PosixStorageTest, AFailedSyncIsNeverForgotten) {
    auto file = direct_file(DirectIo::off);
    ASSERT_NE(file, nullptr);
    TAILRACE_EXPECT_OK(file->sync());
    engine_->sync_errors = {EIO};
    TAILRACE_EXPECT_FAILS(file->sync(), Code::io_error, scratch_ / "a");
    TAILRACE_EXPECT_FAILS(file->sync(), Code::io_error, "an earlier sync of it failed");
    TAILRACE_EXPECT_FAILS(file->sync(), Code::io_error, "an earlier sync of it failed");
    auto again = direct_file(DirectIo::off);
    TAILRACE_EXPECT_OK(again->sync());
    engine_->sync_errors = {ENOSPC};
    TAILRACE_EXPECT_FAILS(again->sync(), Code::no_space, scratch_ / "a");
}

TEST_F(PosixStorageTest, TmpfsHasNoDirectIo) {
    if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm may not be written";
    ScratchDirectory shm("/dev/shm");
    auto space = storage_->space(shm.path());
    TAILRACE_ASSERT_OK(space);
    if (!space->in_memory) GTEST_SKIP() << "/dev/shm is " << space->file_system << ", not tmpfs";
    EXPECT_EQ(space->file_system, "tmpfs");
    TAILRACE_EXPECT_FAILS(storage_->open(shm / "a", {Access::write, DirectIo::on}), Code::unsupported,
                          "tmpfs");
    TAILRACE_EXPECT_OK(storage_->open(shm / "a", {Access::write, DirectIo::automatic}));
}

TEST_F(PosixStorageTest, AMappingSeesWritesOfOtherFilesAndOutlivesARename) {
    if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm may not be written";
    ScratchDirectory shm("/dev/shm");
    if (!storage_->space(shm.path())->in_memory) GTEST_SKIP() << "/dev/shm is no tmpfs";
    auto file = storage_->open(shm / "a", {Access::create_new, DirectIo::automatic});
    TAILRACE_ASSERT_OK(file);
    auto mapping = (*file)->map(1 << 20);
    TAILRACE_ASSERT_OK(mapping);
    struct stat info {};
    ASSERT_EQ(stat((shm / "a").c_str(), &info), 0);
    EXPECT_GE(info.st_blocks * 512, 1 << 20) << "all pages must be there before they are touched";
    TAILRACE_ASSERT_OK(storage_->rename(shm / "a", shm / "b"));
    auto other = storage_->open(shm / "b", {Access::write, DirectIo::off});
    TAILRACE_ASSERT_OK((*other)->write_at(std::vector<std::byte>(1, std::byte{3}), 777));
    EXPECT_EQ((*mapping)[777], std::byte{3});
}

TEST_F(PosixStorageTest, APipeOrDeviceInTheWayNeitherBlocksNorOpens) {
    ASSERT_EQ(mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
    TAILRACE_EXPECT_FAILS(storage_->open(scratch_ / "pipe", {}), Code::invalid_argument, scratch_ / "pipe");
    TAILRACE_EXPECT_FAILS(storage_->open("/dev/null", {Access::write, DirectIo::off}), Code::invalid_argument,
                          "/dev/null");
}

TEST_F(PosixStorageTest, PathsWithNulAndEmptyPathsAreRefused) {
    const std::string bad("/tmp/a\0b", 8);
    EXPECT_EQ(storage_->open(bad, {Access::write, DirectIo::off}).status().code(), Code::invalid_argument);
    EXPECT_EQ(storage_->remove(bad).code(), Code::invalid_argument);
    EXPECT_EQ(storage_->rename(scratch_ / "a", bad).code(), Code::invalid_argument);
    EXPECT_EQ(storage_->make_directories("").code(), Code::invalid_argument);
    EXPECT_EQ(storage_->list("").status().code(), Code::invalid_argument);
}

TEST_F(PosixStorageTest, LinksThatLeadNowhereAreNotListed) {
    ASSERT_EQ(symlink("nowhere", (scratch_ / "link").c_str()), 0);
    EXPECT_TRUE(storage_->list(scratch_.path())->empty());
}

TEST_F(PosixStorageTest, WhatCannotBeLookedAtIsListedAllTheSame) {
    ASSERT_EQ(symlink("ring", (scratch_ / "ring").c_str()), 0);
    const auto listed = storage_->list(scratch_.path());
    TAILRACE_ASSERT_OK(listed);
    ASSERT_EQ(listed->size(), 1u);
    EXPECT_EQ(listed->front().name, "ring");
    EXPECT_FALSE(listed->front().is_directory);
}

TEST_F(PosixStorageTest, AShortWriteIsRetriedAndItsErrorReported) {
    // A limit on the size of files makes the kernel cut the write first and refuse the rest then.
    for (const bool uring : {false, true}) {
        SCOPED_TRACE(uring ? "io_uring" : "posix");
        EXPECT_EQ(in_child([&] {
                      signal(SIGXFSZ, SIG_IGN);
                      rlimit limit{100'000, 100'000};
                      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
                      SystemStorageOptions options;
                      options.engine = uring ? IoEngine::automatic : IoEngine::posix;
                      options.request_bytes = 16'384;
                      auto storage = make_system_storage(options);
                      auto file = (*storage)->open(scratch_ / "limited", {Access::write, DirectIo::off});
                      if (!file.ok()) return 2;
                      const Status status = (*file)->write_at(std::vector<std::byte>(200'000), 0);
                      if (status.code() != Code::no_space) return 3;
                      if (status.message().find("writing 200000 bytes at offset 0") == std::string::npos)
                          return 4;
                      return status.message().find("100000 were done") == std::string::npos ? 5 : 0;
                  }),
                  0);
    }
}

TEST_F(PosixStorageTest, ADirectoryThatMayNotBeWrittenIsNamed) {
    const bool root = geteuid() == 0;
    ASSERT_EQ(chmod(scratch_.path().c_str(), 0555), 0);
    EXPECT_EQ(in_child([&] {
                  if (root && (setegid(65534) != 0 || seteuid(65534) != 0)) return 1;
                  const Status status =
                      storage_->open(scratch_ / "a", {Access::create_new, DirectIo::off}).status();
                  if (status.code() != Code::io_error) return 2;
                  if (status.message().find("may not be written") == std::string::npos) return 3;
                  return storage_->make_directories(scratch_ / "d").ok() ? 4 : 0;
              }),
              0);
    ASSERT_EQ(chmod(scratch_.path().c_str(), 0755), 0);
}

// A tmpfs of 1 MiB on a scratch directory.
class SmallMount {
  public:
    explicit SmallMount(const std::string& path, unsigned long flags = 0) : path_(path) {
        mounted_ = mount("none", path.c_str(), "tmpfs", flags, "size=1m") == 0;
        if (!mounted_) reason_ = std::string("mounting a small tmpfs failed: ") + strerror(errno);
    }
    ~SmallMount() {
        if (mounted_) umount2(path_.c_str(), MNT_DETACH);
    }
    bool mounted() const { return mounted_; }
    const std::string& reason() const { return reason_; }

  private:
    std::string path_, reason_;
    bool mounted_ = false;
};

TEST_F(PosixStorageTest, AFileSystemForReadingOnlyIsNoMissingPermission) {
    SmallMount small(scratch_.path(), MS_RDONLY);
    if (!small.mounted()) GTEST_SKIP() << small.reason();
    const auto expect_told = [&](const Status& status) {
        TAILRACE_EXPECT_FAILS(status, Code::io_error, "mounted read-only");
        EXPECT_EQ(status.message().find("by this user"), std::string::npos) << status.message();
    };
    expect_told(storage_->open(scratch_ / "a", {Access::write, DirectIo::off}).status());
    expect_told(storage_->open(scratch_ / "a", {Access::create_new, DirectIo::off}).status());
    expect_told(storage_->make_directories(scratch_ / "d"));
    expect_told(make_posix_storage({.own_in = scratch_.path()})->make_directories(scratch_ / "d"));
}

TEST_F(PosixStorageTest, AFullFileSystemIsNoSpace) {
    SmallMount small(scratch_.path());
    if (!small.mounted()) GTEST_SKIP() << small.reason();
    for (const IoEngine engine : {IoEngine::posix, IoEngine::automatic}) {
        auto storage = make_system_storage({engine, 8, 65'536});
        TAILRACE_ASSERT_OK(storage);
        EXPECT_LE((*storage)->space(scratch_.path())->free_bytes, uint64_t{1} << 20);
        auto file = (*storage)->open(scratch_ / "a", {Access::create_new, DirectIo::automatic});
        TAILRACE_ASSERT_OK(file);
        TAILRACE_EXPECT_FAILS((*file)->reserve(4096, 2 << 20), Code::no_space,
                              "at offset 4096 of '" + (scratch_ / "a"));
        TAILRACE_EXPECT_FAILS((*file)->map(2 << 20), Code::no_space, scratch_ / "a");
        TAILRACE_EXPECT_FAILS((*file)->write_at(std::vector<std::byte>(2 << 20), 0), Code::no_space,
                              scratch_ / "a");
        TAILRACE_EXPECT_OK((*file)->truncate(0));
        TAILRACE_EXPECT_OK((*file)->write_at(std::vector<std::byte>(1 << 19), 0));
        TAILRACE_EXPECT_OK((*storage)->remove(scratch_ / "a"));
    }
}

}  // namespace
}  // namespace tailrace::internal::test
