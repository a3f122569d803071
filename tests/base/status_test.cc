#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace tailrace::internal::test {
namespace {

TEST(StatusTest, OkIsOkAndSaysSo) {
    const Status status;
    EXPECT_TRUE(status.ok());
    EXPECT_TRUE(static_cast<bool>(status));
    EXPECT_EQ(status.to_string(), "ok");
    EXPECT_TRUE(status.with_context("trying").ok());
}

TEST(StatusTest, AFailureCarriesCodeAndSentence) {
    const Status status(Code::corrupt, "the header is damaged");
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_EQ(status.to_string(), "corrupt: the header is damaged");
    EXPECT_EQ(status.with_context("opening 'x'").to_string(), "corrupt: opening 'x': the header is damaged");
}

TEST(StatusTest, EveryCodeHasANameOfItsOwn) {
    std::vector<std::string_view> names;
    for (int code = TAILRACE_OK; code <= TAILRACE_ABORTED; ++code) {
        const std::string_view name = code_name(static_cast<Code>(code));
        EXPECT_NE(name, "unknown code") << code;
        for (std::string_view other : names) EXPECT_NE(name, other);
        names.push_back(name);
    }
    EXPECT_EQ(code_name(static_cast<Code>(99)), "unknown code");
}

TEST(StatusTest, SystemErrorsBecomeTheRightKind) {
    EXPECT_EQ(errno_status(ENOSPC, "x").code(), Code::no_space);
    EXPECT_EQ(errno_status(EDQUOT, "x").code(), Code::no_space);
    EXPECT_EQ(errno_status(ENOENT, "x").code(), Code::not_found);
    EXPECT_EQ(errno_status(EEXIST, "x").code(), Code::already_exists);
    EXPECT_EQ(errno_status(EINVAL, "x").code(), Code::invalid_argument);
    EXPECT_EQ(errno_status(EOPNOTSUPP, "x").code(), Code::unsupported);
    EXPECT_EQ(errno_status(ENOMEM, "x").code(), Code::out_of_memory);
    EXPECT_EQ(errno_status(EIO, "x").code(), Code::io_error);
    EXPECT_EQ(errno_status(EACCES, "x").code(), Code::io_error);
    EXPECT_EQ(errno_status(EIO, "writing 'a'").message(), "writing 'a': Input/output error");
}

Result<int> half(int number) {
    if (number % 2 != 0) return Status(Code::invalid_argument, "odd");
    return number / 2;
}

TEST(ResultTest, IsAValueOrTheReason) {
    EXPECT_EQ(*half(4), 2);
    EXPECT_TRUE(half(4).status().ok());
    EXPECT_FALSE(half(3).ok());
    EXPECT_EQ(half(3).status().message(), "odd");
}

TEST(ResultTest, HoldsWhatCanOnlyBeMoved) {
    Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
    std::unique_ptr<int> taken = std::move(result).value();
    EXPECT_EQ(*taken, 5);
}

Status check_quarter(int number, int& quarter) {
    TAILRACE_ASSIGN(const int once, half(number));
    TAILRACE_ASSIGN(quarter, half(once));
    TAILRACE_TRY(quarter == 1 ? Status(Code::busy, "one") : Status());
    return Status();
}

TEST(ResultTest, MacrosLeaveWithTheFirstFailure) {
    int quarter = 0;
    EXPECT_TRUE(check_quarter(8, quarter).ok());
    EXPECT_EQ(quarter, 2);
    EXPECT_EQ(check_quarter(6, quarter).code(), Code::invalid_argument);
    EXPECT_EQ(quarter, 2);
    EXPECT_EQ(check_quarter(4, quarter).code(), Code::busy);
}

}  // namespace
}  // namespace tailrace::internal::test
