#include "transport/nap.h"

#include <gtest/gtest.h>

namespace tailrace::internal {

TEST(LongLookTest, WaitsLookForLongAsLongAsItPays) {
    LongLook look;
    for (int wait = 0; wait < 100; ++wait) {
        EXPECT_TRUE(look.may());
        look.paid();
    }
}

TEST(LongLookTest, LongLooksAreRareWhereTheyAreInVain) {
    LongLook look;
    int looks = 0;
    for (int wait = 0; wait < 10000; ++wait) {
        if (!look.may()) continue;
        ++looks;
        look.was_in_vain();
    }
    EXPECT_LT(looks, 10000 / 60);
    EXPECT_GT(looks, 100);  // it is tried again
}

TEST(LongLookTest, OneThatPaysEndsTheRareness) {
    LongLook look;
    for (int wait = 0; wait < 1000; ++wait)
        if (look.may()) look.was_in_vain();
    while (!look.may()) {
    }
    look.paid();
    EXPECT_TRUE(look.may());
    look.was_in_vain();
    EXPECT_FALSE(look.may());
    EXPECT_TRUE(look.may()) << "one wait without, not 64";
}

}  // namespace tailrace::internal
