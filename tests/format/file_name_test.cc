#include "format/epoch_key.h"
#include "format/hostile.h"
#include "format/plan_record.h"

namespace tailrace::internal {
namespace {

TEST(FileNameTest, NamesAreWrittenAsSpecified) {
    EXPECT_EQ(to_string(SharedFileName{"heat", {12, 3}, 0, 2, false}), "heat.e000000012.r0003.1of2.tailrace");
    EXPECT_EQ(to_string(SharedFileName{"heat", {12, 3}, 1, 2, true}),
              "heat.e000000012.r0003.2of2.tailrace.unfinished");
    EXPECT_EQ(to_string(PartFileName{"heat", {12, 3}, 5, false}), "heat.e000000012.r0003.p00005.capture");
    EXPECT_EQ(to_string(PartFileName{"heat", {12, 3}, 5, true}),
              "heat.e000000012.r0003.p00005.capture.unfinished");
    EXPECT_EQ(to_string(PlanFileName{"heat", {12, 3}, 5, false}), "heat.e000000012.r0003.n00005.plan");
    EXPECT_EQ(to_string(PlanFileName{"heat", {12, 3}, 5, true}),
              "heat.e000000012.r0003.n00005.plan.unfinished");
    EXPECT_EQ(takeover_name({"heat", {12, 3}, 1, 2, true}), "heat.e000000012.r0003.2of2.tailrace.takeover");
    EXPECT_EQ(to_string(TakeoverLockName{"heat", {12, 3}}), "heat.e000000012.r0003.takeover.lock");
    EXPECT_EQ(to_string(PlanFileName{"heat", {12, 3}, 5, true, true}),
              "heat.e000000012.r0003.n00005.local-plan.unfinished");
    EXPECT_EQ(to_string(KeptPlanFileName{"heat", {12, 3}, 5, false}),
              "heat.e000000012.r0003.n00005.kept-plan");
    EXPECT_EQ(to_string(KeptPlanFileName{"heat", {12, 3}, 5, true}),
              "heat.e000000012.r0003.n00005.kept-plan.unfinished");
    EXPECT_EQ(to_string(EpochKey{12, 3}), "epoch 12 of run 3");
}

TEST(FileNameTest, EveryNameComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 2000; ++i) {
        auto shift = below(random, 64);
        auto header = random_shared_header(random);
        SharedFileName shared{header.job,
                              {random() >> shift, static_cast<uint32_t>(random() >> shift)},
                              header.file_index,
                              header.file_count,
                              below(random, 2) == 0};
        EXPECT_EQ(parse_shared_file_name(to_string(shared)), shared) << to_string(shared);
        EXPECT_EQ(parse_part_file_name(to_string(shared)), std::nullopt);
        SharedFileName finished = shared;
        finished.unfinished = false;
        EXPECT_EQ(parse_takeover_name(takeover_name(shared)), finished);
        EXPECT_EQ(parse_takeover_name(to_string(shared)), std::nullopt);
        EXPECT_EQ(parse_takeover_name(to_string(shared) + ".unfinished.takeover"), std::nullopt);
        EXPECT_EQ(parse_shared_file_name(takeover_name(shared)), std::nullopt);
        PartFileName part{header.job, shared.key, static_cast<uint32_t>(below(random, max_ranks)),
                          below(random, 2) == 0};
        EXPECT_EQ(parse_part_file_name(to_string(part)), part) << to_string(part);
        EXPECT_EQ(parse_shared_file_name(to_string(part)), std::nullopt);
        PlanFileName plan{part.job, part.key, part.rank, part.unfinished};
        EXPECT_EQ(parse_plan_file_name(to_string(plan)), plan) << to_string(plan);
        plan.local = true;
        EXPECT_EQ(parse_plan_file_name(to_string(plan)), plan) << to_string(plan);
        EXPECT_EQ(parse_plan_file_name(to_string(part)), std::nullopt);
        EXPECT_EQ(parse_part_file_name(to_string(plan)), std::nullopt);
        KeptPlanFileName kept{part.job, part.key, part.rank, part.unfinished};
        EXPECT_EQ(parse_kept_plan_file_name(to_string(kept)), kept) << to_string(kept);
        EXPECT_EQ(parse_plan_file_name(to_string(kept)), std::nullopt);
        EXPECT_EQ(parse_kept_plan_file_name(to_string(plan)), std::nullopt);
        TakeoverLockName lock{part.job, part.key};
        EXPECT_EQ(parse_takeover_lock_name(to_string(lock)), lock) << to_string(lock);
        EXPECT_EQ(parse_takeover_lock_name(to_string(lock) + ".unfinished"), std::nullopt);
        EXPECT_EQ(parse_takeover_name(to_string(lock)), std::nullopt);
    }
}

TEST(FileNameTest, ForeignNamesAreNotOurs) {
    for (const char* name : {"",
                             ".",
                             "tailrace",
                             ".tailrace",
                             "heat.tailrace",
                             "heat.e000000012.r0003.tailrace",
                             "heat.e12.r0003.1of2.tailrace",
                             "heat.e000000012.r3.1of2.tailrace",
                             "heat.e0000000012.r0003.1of2.tailrace",
                             "heat.e000000012.r0003.01of2.tailrace",
                             "heat.e000000012.r0003.0of2.tailrace",
                             "heat.e000000012.r0003.3of2.tailrace",
                             "heat.e000000012.r0003.1of.tailrace",
                             "heat.e000000012.r0003.of2.tailrace",
                             "heat.e000000012.r0003.1of1048577.tailrace",
                             "heat.e000000012.r0003.1of2.tailrace.bak",
                             "heat.e000000012.r0003.1of2.tailrace.unfinished.unfinished",
                             "heat.e-00000012.r0003.1of2.tailrace",
                             "heat.e+00000012.r0003.1of2.tailrace",
                             "heat.e99999999999999999999.r0003.1of2.tailrace",
                             "heat.e000000012.r4294967296.1of2.tailrace",
                             "he at.e000000012.r0003.1of2.tailrace",
                             ".e000000012.r0003.1of2.tailrace",
                             "a.b.e000000012.r0003.1of2.tailrace",
                             "heat.e000000012.r0003.1of2.tailrace ",
                             "heat.e000000012.r0003.1of2.x.tailrace"})
        EXPECT_EQ(parse_shared_file_name(name), std::nullopt) << name;
    for (const char* name :
         {"", "heat.e000000012.r0003.p5.capture", "heat.e000000012.r0003.00005.capture",
          "heat.e000000012.r0003.p00005.capture.old", "heat.e000000012.r0003.p67108864.capture",
          "heat.e000000012.r0003.p.capture", "heat.e000000012.r0003.p0000x.capture"})
        EXPECT_EQ(parse_part_file_name(name), std::nullopt) << name;
}

TEST(FileNameTest, ForeignNamesOfKeptPlansAndLocksAreNotOurs) {
    for (const char* name : {"heat.e000000012.r0003.n5.kept-plan", "heat.e000000012.r0003.p00005.kept-plan",
                             "heat.e000000012.r0003.n67108864.kept-plan", "heat.e000000012.r0003.kept-plan"})
        EXPECT_EQ(parse_kept_plan_file_name(name), std::nullopt) << name;
    for (const char* name : {"heat.e000000012.r0003.lock", "heat.e12.r0003.takeover.lock",
                             "heat.e000000012.r0003.1of2.lock", "heat.e000000012.r0003.takeover.lock.bak"})
        EXPECT_EQ(parse_takeover_lock_name(name), std::nullopt) << name;
}

TEST(FileNameTest, JobNamesHaveNoDotsAndAnEnd) {
    EXPECT_TRUE(check_job_name("a").ok());
    EXPECT_TRUE(check_job_name("Heat-2_x").ok());
    EXPECT_TRUE(check_job_name(std::string(100, 'x')).ok());
    for (const auto& name : {std::string(), std::string(101, 'x'), std::string("a.b"), std::string("a/b"),
                             std::string("a b"), std::string("\xc3\xa4"), std::string("a\0b", 3)})
        EXPECT_EQ(check_job_name(name).code(), Code::invalid_argument) << name;
}

TEST(FileNameTest, LaterEpochAndThenLaterRunIsNewer) {
    EXPECT_LT((EpochKey{1, 9}), (EpochKey{2, 1}));
    EXPECT_LT((EpochKey{2, 1}), (EpochKey{2, 2}));
}

}  // namespace
}  // namespace tailrace::internal
