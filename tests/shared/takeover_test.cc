// Nodes that find an epoch complete and give its files their names, several at once: nothing of it is lost,
// and nobody takes it for incomplete meanwhile.
#include "shared/takeover.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "read/epoch_builder.h"
#include "shared/inventory.h"
#include "storage/forwarding_storage.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using testing::SizeIs;

constexpr EpochKey key{1, 1};
constexpr uint32_t file_count = 3;
constexpr uint64_t operations = 60;  // that giving names takes, at most

// Calls `other` before its n-th call.
class InterruptedStorage : public test::ForwardingStorage {
  public:
    InterruptedStorage(std::shared_ptr<Storage> inner, uint64_t n, std::function<void()> other)
        : ForwardingStorage(std::move(inner)), n_(n), other_(std::move(other)) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        count();
        return ForwardingStorage::open(path, options);
    }
    Status rename(const std::string& from, const std::string& to) override {
        count();
        return ForwardingStorage::rename(from, to);
    }
    Status remove(const std::string& path) override {
        count();
        return ForwardingStorage::remove(path);
    }
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
        count();
        return ForwardingStorage::list(path);
    }
    Status sync_directory(const std::string& path) override {
        count();
        return ForwardingStorage::sync_directory(path);
    }
    bool interrupted() const { return calls_ >= n_; }

  private:
    void count() {
        if (++calls_ == n_) other_();
    }
    const uint64_t n_;
    const std::function<void()> other_;
    uint64_t calls_ = 0;
};

class TakeoverTest : public ::testing::Test {
  protected:
    static BuiltEpoch epoch_of(uint32_t count) {
        BuiltEpoch built;
        built.job = "job";
        built.key = key;
        built.file_count = count;
        built.ranks = {{{"density", pattern(1, 5000), std::nullopt}}};
        return built;
    }
    // All files of the epoch are complete takeovers, and durable.
    void write_takeovers() {
        memory_ = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(write_shared_files(*memory_, "/s", epoch_of(file_count)).ok());
        for (uint32_t k = 0; k < file_count; ++k) {
            const SharedFileName name{"job", key, k, file_count, false};
            ASSERT_TRUE(memory_->rename("/s/" + to_string(name), "/s/" + takeover_name(name)).ok());
            const auto head = read_shared_head(*memory_, "/s/" + takeover_name(name));
            headers_[k] = head->header;
            streams_[k] = head->indexes.front()->value().streams;
        }
        ASSERT_TRUE(memory_->sync_directory("/s").ok());
    }
    void write_unfinished(uint32_t count, bool without_last_slot) {
        auto built = epoch_of(count);
        built.last_slot_missing = without_last_slot;
        ASSERT_TRUE(write_shared_files(*memory_, "/s", built).ok());
        for (uint32_t k = 0; k < count; ++k) {
            const SharedFileName name{"job", key, k, count, false};
            (void)memory_->rename("/s/" + to_string(name), "/s/" + unfinished_name(name));
        }
        ASSERT_TRUE(memory_->sync_directory("/s").ok());
    }
    Result<bool> give_names(Storage& storage) { return name_if_complete(storage, "/s", "job", key); }
    // A node gives names, and dies at that operation.
    void give_names_and_die(uint64_t at) {
        FaultPlan plan;
        plan.die_at_operation = at;
        FaultyStorage faulty(memory_, at, plan);
        (void)give_names(faulty);
    }
    void expect_complete(size_t count = file_count) {
        const auto listed = list_shared(*memory_, "/s", "job");
        ASSERT_TRUE(listed.ok());
        ASSERT_THAT(*listed, SizeIs(1));
        EXPECT_TRUE(looks_complete(listed->front()));
        const auto loaded = load_shared_epoch(*memory_, listed->front());
        EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
        EXPECT_THAT(*memory_->list("/s"), SizeIs(count));
    }

    std::shared_ptr<MemoryStorage> memory_;
    SharedHeader headers_[file_count];
    std::vector<StreamInfo> streams_[file_count];
};

// A session has flushed the epoch again, into two files. It died when all of them were there, or all but a
// slot was written, or one file was there.
TEST_F(TakeoverTest, WhatIsLeftOfAnAttemptWithAnotherKGoes) {
    enum class Left { whole, without_slot, one_file };
    for (const auto left : {Left::whole, Left::without_slot, Left::one_file})
        for (uint64_t death = 1; death < 2 * operations; ++death) {
            SCOPED_TRACE(testing::Message()
                         << "left " << static_cast<int>(left) << ", death at operation " << death);
            write_takeovers();
            write_unfinished(2, left == Left::without_slot);
            const SharedFileName first{"job", key, 0, 2, false};
            if (left == Left::one_file) {
                ASSERT_TRUE(memory_->remove("/s/" + unfinished_name(first)).ok());
            }
            give_names_and_die(death);
            const auto named = give_names(*memory_);
            ASSERT_TRUE(named.ok()) << named.status().to_string();
            EXPECT_TRUE(*named);
            expect_complete(left == Left::whole ? 2 : file_count);
            if (HasFailure()) return;
        }
}

// As a session finds it that begins later.
TEST_F(TakeoverTest, ASessionRemovesWhatIsLeftOfAnAttemptWithAnotherK) {
    write_takeovers();
    ASSERT_TRUE(*give_names(*memory_));
    write_unfinished(2, true);
    const auto inventory = clean_shared(*memory_, "/s", "job");
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->newest_committed, key);
    expect_complete(file_count);
}

// One node has died somewhere in between. Two others go on, one of them between any two calls of the other.
TEST_F(TakeoverTest, NodesThatGiveNamesAtOnceLoseNothing) {
    for (uint64_t death = 1; death < operations; ++death) {
        bool more = true;
        for (uint64_t n = 1; more; ++n) {
            SCOPED_TRACE(testing::Message() << "after a death at operation " << death << ", at call " << n);
            write_takeovers();
            give_names_and_die(death);
            InterruptedStorage storage(memory_, n, [&] { EXPECT_TRUE(*give_names(*memory_)); });
            const auto named = give_names(storage);
            ASSERT_TRUE(named.ok()) << named.status().to_string();
            more = storage.interrupted();
            // A file that was renamed between two looks seems to be missing.
            EXPECT_TRUE(*named || more);
            expect_complete();
            if (HasFailure()) return;
        }
    }
}

// A node that takes it for incomplete says that it waits for others, or writes its share again.
TEST_F(TakeoverTest, AFileIsCompleteAllTheTimeWhileItGetsItsName) {
    enum class Look { progress, file, share };
    for (uint64_t death = 1; death < operations; ++death)
        for (uint32_t k = 0; k < file_count; ++k) {
            bool more = true;
            for (uint64_t n = 1; more; ++n) {
                SCOPED_TRACE(testing::Message()
                             << "after a death at operation " << death << ", file " << k << ", call " << n);
                write_takeovers();
                give_names_and_die(death);
                for (const auto look : {Look::progress, Look::file, Look::share}) {
                    InterruptedStorage storage(memory_, n, [&] { EXPECT_TRUE(*give_names(*memory_)); });
                    if (look == Look::progress) {
                        const auto found = takeover_progress(storage, "/s", headers_[k], streams_[k]);
                        ASSERT_TRUE(found.ok()) << found.status().to_string();
                        EXPECT_TRUE(found->complete());
                    } else if (look == Look::share) {
                        const auto found = share_is_written(storage, "/s", {headers_[k]}, streams_[k], 0);
                        ASSERT_TRUE(found.ok()) << found.status().to_string();
                        EXPECT_TRUE(*found);
                    } else {
                        const auto found = file_is_complete(storage, "/s", headers_[k]);
                        ASSERT_TRUE(found.ok()) << found.status().to_string();
                        EXPECT_TRUE(*found);
                    }
                    more = storage.interrupted();
                    write_takeovers();
                    give_names_and_die(death);
                }
                if (HasFailure()) return;
            }
        }
}

TEST_F(TakeoverTest, AShareOfSeveralFilesIsWrittenWhenAllOfThemHoldIt) {
    write_takeovers();
    const std::vector<SharedHeader> headers(headers_, headers_ + file_count);
    const auto written = [&] { return *share_is_written(*memory_, "/s", headers, streams_[0], 0); };
    const SharedFileName last{"job", key, file_count - 1, file_count, false};
    EXPECT_TRUE(written());
    ASSERT_TRUE(memory_->rename("/s/" + takeover_name(last), "/s/" + unfinished_name(last)).ok());
    EXPECT_TRUE(written()) << "it has its place already";
    ASSERT_TRUE(memory_->open("/s/" + takeover_name(last), {Access::write, DirectIo::off}).ok());
    EXPECT_FALSE(written()) << "its takeover was begun after that";
    ASSERT_TRUE(memory_->remove("/s/" + takeover_name(last)).ok());
    ASSERT_TRUE(memory_->remove("/s/" + unfinished_name(last)).ok());
    EXPECT_FALSE(written());
}

TEST_F(TakeoverTest, SharesAreLockedByNodeAndTheLocksGoWithTheirEpoch) {
    write_takeovers();
    const auto lock = lock_share(*memory_, "/s", "job", key, 3);
    ASSERT_TRUE(lock.ok());
    EXPECT_EQ(lock_share(*memory_, "/s", "job", key, 3).status().code(), Code::busy);
    EXPECT_TRUE(lock_share(*memory_, "/s", "job", key, 4).ok());
    EXPECT_TRUE(lock_share(*memory_, "/s", "job", {8, 2}, 3).ok());
    const auto locks = [&] {
        const auto entries = memory_->list("/s");
        return std::count_if(entries->begin(), entries->end(), [](const DirectoryEntry& entry) {
            return parse_takeover_lock_name(entry.name).has_value();
        });
    };
    EXPECT_EQ(locks(), 2);
    EXPECT_TRUE(*give_names(*memory_));
    EXPECT_EQ(locks(), 1) << "that of epoch 8 stays";
    ASSERT_TRUE(clear_takeovers(*memory_, "/s", "other").ok());
    EXPECT_EQ(locks(), 1);
    ASSERT_TRUE(clear_takeovers(*memory_, "/s", "job").ok());
    EXPECT_EQ(locks(), 0);
}

// Somebody has made it. Whoever opens a session must learn what to do.
TEST(TakeoverNameTest, WhatHasTheNameOfATakeoverOrItsLockAndIsNoFileIsNamedAndToBeRemoved) {
    const SharedFileName file{"job", key, 0, 1, false};
    for (const auto& name : {takeover_name(file), to_string(TakeoverLockName{"job", key})})
        for (const bool pipe : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {}", name, pipe));
            const test::ScratchDirectory scratch;
            auto storage = *make_system_storage({.engine = IoEngine::posix});
            const auto path = join_path(scratch.path(), name);
            ASSERT_EQ(pipe ? mkfifo(path.c_str(), 0600) : mkdir(path.c_str(), 0700), 0);
            const bool lock = parse_takeover_lock_name(name).has_value();
            if (pipe && lock) {
                EXPECT_TRUE(clear_takeovers(*storage, scratch.path(), "job").ok()) << "removed as a file";
                continue;
            }
            std::vector<Status> all{clear_takeovers(*storage, scratch.path(), "job")};
            if (lock) all.push_back(lock_share(*storage, scratch.path(), "job", key, 0).status());
            for (const auto& failed : all) {
                EXPECT_THAT(failed.message(), testing::HasSubstr(path));
                EXPECT_THAT(failed.message(), testing::HasSubstr("something else has it: remove that"));
            }
        }
}

// The power fails after they were removed. Nodes would go on with a file that is back, although what belongs
// to it is gone.
TEST_F(TakeoverTest, WhatIsClearedDoesNotComeBack) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        auto storage = std::make_shared<MemoryStorage>();
        auto epoch = epoch_of(file_count);
        epoch.last_slot_missing = true;
        ASSERT_TRUE(write_shared_files(*storage, "/s", epoch).ok());
        for (const auto& entry : *storage->list("/s")) {
            const auto name = parse_shared_file_name(entry.name);
            ASSERT_TRUE(name);
            ASSERT_TRUE(storage->rename("/s/" + entry.name, "/s/" + takeover_name(*name)).ok());
        }
        ASSERT_TRUE(storage->sync_directory("/s").ok());
        ASSERT_TRUE(clear_takeovers(*storage, "/s", epoch.job).ok());
        std::mt19937_64 random(seed);
        storage->crash(random);
        EXPECT_THAT(*storage->list("/s"), SizeIs(0)) << "seed " << seed;
    }
}

}  // namespace
}  // namespace tailrace::internal
