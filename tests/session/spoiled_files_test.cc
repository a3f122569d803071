// What somebody else does to the files of an epoch, between capture and flush or between two sessions: what
// is said of it, and what is kept because of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "session/sample_program.h"
#include "session/spoiling_storage.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Nobody may be told that such an epoch is still there, and it does not count among those that the node-local
// tier keeps: the one before it stays.
TEST(SpoiledFilesTest, AnEpochWhoseCapturedPartIsHarmedBeforeItsFlushIsSaidToBeLostAndKeepsNoPlace) {
    enum class Harm { cut, gone, changed };
    for (const bool concurrent : {true, false})
        for (const auto harm : {Harm::cut, Harm::gone, Harm::changed}) {
            SCOPED_TRACE(fmt::format("concurrent {}, harm {}", concurrent, static_cast<int>(harm)));
            Machines machines;
            auto job = job_on(machines, hosts_of(2, 1));
            job.concurrent = concurrent;
            job.config.keep_local = 2;
            job.config.keep_shared = 1;
            const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
            const auto path_of = [&](uint64_t epoch) {
                return join_path(tier.directory(1), to_string(PartFileName{"job", {epoch, 1}, 1, false}));
            };
            const auto local = machines.local_of("m1");
            job.local = [&](const std::string& host) -> std::shared_ptr<Storage> {
                if (host != "m1") return machines.local_of(host);
                return std::make_shared<SpoilingStorage>(local, [&](const std::string& path) {
                    if (path != path_of(2)) return;
                    auto part = local->open(path, {Access::write, DirectIo::off});
                    ASSERT_TRUE(part.ok());
                    const std::vector<std::byte> wrong(1, std::byte{0x5a});
                    const Status done = harm == Harm::cut ? (*part)->truncate(8192)
                                        : harm == Harm::gone
                                            ? local->remove(path)
                                            : (*part)->write_at(wrong, (*part)->size().value() - 1);
                    EXPECT_TRUE(done.ok());
                });
            };
            run(job, [&](Checkpointer& session) {
                State state;
                ASSERT_TRUE(save(session, state, 1).ok());
                ASSERT_TRUE(session.wait(1, for_ever).ok());
                ASSERT_TRUE(save(session, state, 2).ok());
                const auto failed = session.wait(2, for_ever);
                EXPECT_EQ(failed.code(), Code::corrupt) << failed.to_string();
                EXPECT_THAT(failed.message(), HasSubstr("captured part"));
                if (session.rank() == 0 && job.config.keep_shared == 1) {
                    const auto listed = list_shared(*machines.shared, job.config.shared_dir, "job");
                    ASSERT_TRUE(listed.ok() && !listed->empty());
                    EXPECT_EQ(listed->front().key, (EpochKey{1, 1})) << "the only one that can be restored";
                }
                EXPECT_THAT(failed.message(),
                            HasSubstr("; its captured parts are no longer whole; earlier epochs are intact"));
                ASSERT_TRUE(save(session, state, 3).ok());
                if (session.rank() == 1) {
                    EXPECT_TRUE(local->open(path_of(1), {Access::read, DirectIo::off}).ok());
                    EXPECT_FALSE(local->open(path_of(2), {Access::read, DirectIo::off}).ok());
                }
                EXPECT_TRUE(session.wait(3, for_ever).ok());
                EXPECT_FALSE(session.close().ok());
            });
        }
}

// Readers are not verified by default: damage shows when they read. Ranks read on their own, in no step.
TEST(SpoiledFilesTest, AReaderGoesOnWithTheSharedCopyOfADamagedPart) {
    Machines machines;
    auto job = job_on(machines, hosts_of(1, 2));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(session.wait(1, for_ever).ok());
    });
    const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
    const auto path = join_path(tier.directory(0), to_string(PartFileName{"job", {1, 1}, 1, false}));
    auto part = machines.local_of("m0")->open(path, {Access::write, DirectIo::off});
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    const std::vector<std::byte> damage(100, std::byte{0xee});
    ASSERT_TRUE((*part)->write_at(damage, (*part)->size().value() - damage.size()).ok());
    run(job, [&](Checkpointer& session) {
        for (const bool verify : {false, true}) {
            auto reader = session.open_epoch(std::nullopt, std::nullopt, verify);
            ASSERT_TRUE(reader.ok()) << reader.status().to_string();
            EXPECT_EQ((*reader)->passed_over(), "");
            for (int rank = 1; session.rank() == 0 && rank >= 0; --rank) {
                const auto wanted = content(1, rank, 2, second_bytes(1, rank));
                std::vector<std::byte> got(wanted.size());
                const RegionTarget target{"second", got};
                const auto read = (*reader)->read_regions(static_cast<uint32_t>(rank), {&target, 1});
                EXPECT_TRUE(read.ok()) << read.to_string();
                EXPECT_TRUE(got == wanted);
            }
        }
    });
}

// The newest committed epoch is in the shared tier only, and damaged; what was captured before it may be all
// there is. It goes when a newer one is there, not before.
TEST(SpoiledFilesTest, ADamagedEpochOfTheSharedTierCostsNoCapturedOne) {
    enum class Damage { data, head, length };
    for (const auto damage : {Damage::data, Damage::head, Damage::length}) {
        SCOPED_TRACE(static_cast<int>(damage));
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 1));
        job.config.files = 1;
        job.config.keep_local = 2;
        job.config.keep_shared = 1;
        run(job, [&](Checkpointer& session) {
            State state;
            for (const uint64_t epoch : {1, 2}) ASSERT_TRUE(save(session, state, epoch).ok());
        });
        const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
        const auto local = machines.local_of("m1");
        const auto path_of = [&](uint64_t epoch) {
            return join_path(tier.directory(1), to_string(PartFileName{"job", {epoch, 1}, 1, false}));
        };
        ASSERT_TRUE(local->remove(path_of(2)).ok());
        const auto path =
            join_path(job.config.shared_dir, to_string(SharedFileName{"job", {2, 1}, 0, 1, false}));
        {
            const uint64_t data = data_offset(read_shared_head(*machines.shared, path)->header);
            auto file = machines.shared->open(path, {Access::write, DirectIo::off});
            ASSERT_TRUE(file.ok());
            const uint64_t bytes = (*file)->size().value();
            const std::vector<std::byte> wrong(damage == Damage::head ? data : bytes - data, std::byte{0x55});
            ASSERT_TRUE((damage == Damage::length
                             ? (*file)->truncate(data + 4096)
                             : (*file)->write_at(wrong, damage == Damage::head ? 0 : data))
                            .ok());
        }
        run(job, [&](Checkpointer& session) {
            auto found = session.open_epoch(std::nullopt, std::nullopt, true);
            ASSERT_TRUE(found.ok()) << found.status().to_string();
            EXPECT_EQ((*found)->key().epoch, 1u);
            State state;
            ASSERT_TRUE(save(session, state, 3).ok());
            if (session.rank() == 1) {
                EXPECT_TRUE(local->open(path_of(1), {Access::read, DirectIo::off}).ok());
            }
        });
    }
}

class DamagedButCapturedTest : public ::testing::Test {
  protected:
    void SetUp() override {
        job_.config.files = 2;
        job_.config.keep_local = 2;
        run(job_, [&](Checkpointer& session) {
            State state;
            for (const uint64_t epoch : {1, 2}) ASSERT_TRUE(save(session, state, epoch).ok());
        });
    }
    std::string path(uint32_t index) const {
        return join_path(job_.config.shared_dir, to_string(SharedFileName{"job", {2, 1}, index, 2, false}));
    }
    std::vector<std::byte> bytes_of(uint32_t index) const {
        const auto file = machines_.shared->open(path(index), {Access::read, DirectIo::off});
        EXPECT_TRUE(file.ok());
        std::vector<std::byte> bytes((*file)->size().value());
        EXPECT_TRUE((*file)->read_at(bytes, 0).ok());
        return bytes;
    }
    void write(uint32_t index, std::span<const std::byte> bytes, uint64_t size) {
        const auto file = machines_.shared->open(path(index), {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE((*file)->write_at(bytes, 0).ok());
        ASSERT_TRUE((*file)->truncate(size).ok());
    }
    // Whether epoch 2 can be read from the shared directory.
    Status loaded() const {
        const auto listed = list_shared(*machines_.shared, job_.config.shared_dir, "job");
        for (const auto& files : listed.value())
            if (files.key == EpochKey{2, 1}) return load_shared_epoch(*machines_.shared, files).status();
        return Status(Code::not_found, "no file of it");
    }
    void open_and_restore() {
        run(job_, [&](Checkpointer& session) {
            expect_restored(session, std::nullopt, 2);
            EXPECT_TRUE(session.close().ok());
        });
    }

    Machines machines_;
    Job job_ = job_on(machines_, hosts_of(2, 1));
};

TEST_F(DamagedButCapturedTest, TheNextSessionWritesItAgain) {
    const auto good = bytes_of(1);
    auto bad_head = good, bad_index = good;
    for (size_t i = 100; i < 200; ++i) bad_head[i] ^= std::byte{0x55};
    const auto head = read_shared_head(*machines_.shared, path(1));
    ASSERT_TRUE(head.ok());
    bad_index[index_offset(head->header, 0) + 40] ^= std::byte{1};
    struct Damage {
        const char* name;
        std::vector<std::byte> bytes;
    };
    for (const auto& damage : {Damage{"empty", {}}, Damage{"head", bad_head}, Damage{"index", bad_index},
                               Damage{"cut", {good.begin(), good.begin() + 5000}}}) {
        SCOPED_TRACE(damage.name);
        write(1, damage.bytes, damage.bytes.size());
        ASSERT_FALSE(loaded().ok());
        open_and_restore();
        EXPECT_TRUE(loaded().ok()) << loaded().to_string();
    }
}

// Somebody may have put it there, and may want it back.
TEST_F(DamagedButCapturedTest, AFileOfAnotherProgramUnderItsNameStays) {
    Machines others;
    auto job = job_on(others, hosts_of(2, 1));
    job.config = job_.config;
    run(job, [&](Checkpointer& session) {
        State state;
        for (const uint64_t epoch : {1, 2}) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    const auto theirs = others.shared->open(path(1), {Access::read, DirectIo::off});
    ASSERT_TRUE(theirs.ok());
    std::vector<std::byte> foreign((*theirs)->size().value());
    ASSERT_TRUE((*theirs)->read_at(foreign, 0).ok());
    write(1, foreign, foreign.size());
    ASSERT_FALSE(loaded().ok());
    const auto own = bytes_of(0);
    open_and_restore();
    EXPECT_EQ(bytes_of(1), foreign);
    EXPECT_EQ(bytes_of(0), own);
}

// Heads and tables are sound, so only who has read the data knows. What a restore could not read pushes no
// older epoch out.
TEST(SpoiledFilesTest, AnEpochThatARestoreFoundDamagedDoesNotCountForRetention) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        Machines machines;
        auto job = job_on(machines, hosts_of(1, 2));
        job.concurrent = concurrent;
        job.config.files = 1;
        run(job, [&](Checkpointer& session) {
            State state;
            for (const uint64_t epoch : {1, 2}) {
                ASSERT_TRUE(save(session, state, epoch).ok());
                ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            }
        });
        const auto local = machines.local_of("m0");
        const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
        for (const auto& entry : local->list(tier.directory(0)).value())
            ASSERT_TRUE(local->remove(join_path(tier.directory(0), entry.name)).ok());
        const auto path =
            join_path(job.config.shared_dir, to_string(SharedFileName{"job", {2, 1}, 0, 1, false}));
        {
            const auto head = read_shared_head(*machines.shared, path);
            ASSERT_TRUE(head.ok());
            auto file = machines.shared->open(path, {Access::write, DirectIo::off});
            ASSERT_TRUE(file.ok());
            // The end of the last stream: beyond the manifests.
            const uint64_t data = data_offset(head->header);
            const uint64_t bytes = (*file)->size().value() - data;
            const std::vector<std::byte> wrong(bytes / 4, std::byte{0x55});
            ASSERT_TRUE((*file)->write_at(wrong, data + bytes - wrong.size()).ok());
        }
        job.config.keep_shared = 2;
        run(job, [&](Checkpointer& session) {
            {
                auto found = session.open_epoch(std::nullopt, std::nullopt, true);
                ASSERT_TRUE(found.ok()) << found.status().to_string();
                EXPECT_EQ((*found)->key().epoch, 1u);
            }
            State state;
            ASSERT_TRUE(save(session, state, 3).ok());
            ASSERT_TRUE(session.wait(3, for_ever).ok());
            ASSERT_TRUE(session.close().ok());
        });
        const auto listed = list_shared(*machines.shared, job.config.shared_dir, "job");
        ASSERT_TRUE(listed.ok());
        std::vector<uint64_t> epochs;
        for (const auto& files : *listed) epochs.push_back(files.key.epoch);
        EXPECT_THAT(epochs, ElementsAre(1, 2, 3));
    }
}

}  // namespace
}  // namespace tailrace::internal
