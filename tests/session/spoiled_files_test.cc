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
