// What somebody else does to the files of an epoch, between capture and flush or between two sessions: what
// is said of it, and what is kept because of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/local_tier.h"
#include "checkpoint/sample_program.h"
#include "checkpoint/spoiling_storage.h"
#include "format/catalog.h"

namespace tailrace {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

// Nobody may be told that such an epoch is still there, and it does not count among those that the node-local
// tier keeps: the one before it stays.
TEST(SpoiledFilesTest, AnEpochWhoseCapturedPartIsCutOrGoneBeforeItsFlushIsSaidToBeLostAndKeepsNoPlace) {
    for (const bool concurrent : {true, false})
        for (const bool cut : {true, false}) {
            SCOPED_TRACE(fmt::format("concurrent {}, cut {}", concurrent, cut));
            Machines machines;
            auto job = job_on(machines, hosts_of(2, 1));
            job.concurrent = concurrent;
            job.config.keep_local = 2;
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
                    EXPECT_TRUE((cut ? (*part)->truncate(8192) : local->remove(path)).ok());
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
                EXPECT_THAT(
                    failed.message(),
                    HasSubstr("; its captured parts are not whole any more; earlier epochs are intact"));
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

}  // namespace
}  // namespace tailrace
