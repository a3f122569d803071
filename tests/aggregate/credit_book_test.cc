// Who gets the next credit.
#include "aggregate/credit_book.h"

#include <gtest/gtest.h>

#include <map>

namespace tailrace::internal {
namespace {

TEST(CreditBookTest, EqualFollowersTakeTurns) {
    CreditBook book;
    for (int node : {3, 5, 9}) book.add(node, 100);
    std::vector<int> order;
    for (int i = 0; i < 6; ++i) {
        order.push_back(*book.next());
        book.grant(order.back());
    }
    EXPECT_EQ(order, (std::vector<int>{3, 5, 9, 3, 5, 9}));
    EXPECT_EQ(book.open(), 6u);
}

TEST(CreditBookTest, FollowerThatAnswersGetsTheNextCreditAndTheSlowOneKeepsFew) {
    CreditBook book;
    book.add(1, 1000);
    book.add(2, 1000);
    std::map<int, int> granted;
    for (int i = 0; i < 100; ++i) {
        const int node = *book.next();
        book.grant(node);
        ++granted[node];
        if (node == 1) book.take_chunk(1);  // node 2 never answers
    }
    EXPECT_LE(granted[2], static_cast<int>(CreditBook::max_open));
    EXPECT_GE(granted[1], 96);
}

TEST(CreditBookTest, NoFollowerHasMoreCreditsOpenThanItCanUse) {
    CreditBook book;
    book.add(1, 1000);
    for (uint32_t i = 0; i < CreditBook::max_open; ++i) book.grant(*book.next());
    EXPECT_FALSE(book.may_grant());
    EXPECT_FALSE(book.next().has_value());
    book.take_chunk(1);
    EXPECT_TRUE(book.may_grant());
}

TEST(CreditBookTest, CreditsNeverExceedTheChunksThereAre) {
    CreditBook book;
    book.add(1, 2);
    book.add(2, 0);
    book.grant(*book.next());
    book.grant(*book.next());
    EXPECT_FALSE(book.may_grant());
    EXPECT_FALSE(book.all_exhausted());
    book.take_chunk(1);
    EXPECT_FALSE(book.all_exhausted());
    book.take_chunk(1);
    EXPECT_TRUE(book.all_exhausted());
}

TEST(CreditBookTest, EmptyAnswerEndsAFollowerOnceItsOpenCreditsAreBack) {
    CreditBook book;
    book.add(1, 10);
    book.grant(1);
    book.grant(1);
    book.take_empty(1);
    EXPECT_FALSE(book.may_grant());
    EXPECT_FALSE(book.all_exhausted());
    book.take_chunk(1);
    EXPECT_TRUE(book.all_exhausted());
}

TEST(CreditBookTest, NobodyToServeIsExhaustedFromTheStart) {
    const CreditBook book;
    EXPECT_TRUE(book.all_exhausted());
    EXPECT_FALSE(book.may_grant());
}

}  // namespace
}  // namespace tailrace::internal
