#include "base/caught.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace tailrace::internal::test {
namespace {

TEST(CaughtTest, WhatIsThrownBecomesAStatus) {
    EXPECT_EQ(catching([]() -> Status { throw std::bad_alloc(); }).code(), Code::out_of_memory);
    EXPECT_EQ(catching([] { throw std::length_error("vector::reserve"); }).code(), Code::out_of_memory);
    const Status defect = catching([]() -> Status { throw std::logic_error("two leaders"); });
    EXPECT_EQ(defect.code(), Code::failed_state);
    EXPECT_NE(defect.message().find("two leaders"), std::string::npos);
    EXPECT_EQ(catching([]() -> Result<int> { throw 7; }).status().code(), Code::failed_state);
    EXPECT_EQ(catching([]() -> void { throw std::bad_alloc(); }).code(), Code::out_of_memory);
}

TEST(CaughtTest, WhatIsNotThrownStaysAsItIs) {
    EXPECT_TRUE(catching([] { return Status(); }).ok());
    EXPECT_TRUE(catching([] {}).ok());
    EXPECT_EQ(*catching([]() -> Result<int> { return 7; }), 7);
}

}  // namespace
}  // namespace tailrace::internal::test
