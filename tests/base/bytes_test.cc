#include "base/bytes.h"

#include <gtest/gtest.h>

namespace tailrace::internal::test {
namespace {

TEST(BytesTest, NumbersAreLittleEndian) {
    ByteWriter writer;
    writer.put(uint16_t{0x0201});
    writer.put(uint64_t{0x0807060504030201});
    const std::vector<std::byte> bytes = writer.take();
    ASSERT_EQ(bytes.size(), 10u);
    EXPECT_EQ(bytes[0], std::byte{1});
    EXPECT_EQ(bytes[1], std::byte{2});
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[2 + i], static_cast<std::byte>(i + 1));
}

TEST(BytesTest, WhatIsWrittenIsRead) {
    ByteWriter writer;
    writer.put(uint8_t{200});
    writer.put(uint32_t{4'000'000'000});
    writer.put_string("h\xc3\xa4");
    writer.put(UINT64_MAX);
    writer.align(16);
    EXPECT_EQ(writer.size() % 16, 0u);
    writer.align(16);
    ByteReader reader(writer.bytes());
    EXPECT_EQ(reader.get<uint8_t>(), 200);
    EXPECT_EQ(reader.get<uint32_t>(), 4'000'000'000u);
    EXPECT_EQ(reader.get_string(3), "h\xc3\xa4");
    EXPECT_EQ(reader.get<uint64_t>(), UINT64_MAX);
    for (std::byte padding : reader.get_bytes(reader.remaining())) EXPECT_EQ(padding, std::byte{0});
    EXPECT_TRUE(reader.at_end());
}

TEST(BytesTest, AReadBeyondTheEndFailsAndStaysFailed) {
    ByteWriter writer;
    writer.put(uint32_t{7});
    ByteReader reader(writer.bytes());
    EXPECT_EQ(reader.get<uint64_t>(), 0u);
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(reader.get<uint8_t>(), 0) << "although one byte would be there";
    EXPECT_TRUE(reader.get_bytes(0).empty());
    EXPECT_FALSE(reader.at_end());
}

TEST(BytesTest, LengthsAreCheckedBeforeTheyAreBelieved) {
    ByteWriter writer;
    writer.put_string("hello");
    EXPECT_EQ(ByteReader(writer.bytes()).get_string(4), "") << "longer than allowed";
    ByteReader cut(writer.bytes().first(8));
    EXPECT_EQ(cut.get_string(100), "");
    EXPECT_FALSE(cut.ok());
    ByteReader huge(writer.bytes());
    EXPECT_TRUE(huge.get_bytes(UINT64_MAX).empty());
    EXPECT_FALSE(huge.ok());
}

TEST(BytesTest, ACountThatCannotFitFails) {
    ByteWriter writer;
    writer.put(uint64_t{3});
    writer.put_zeros(24);
    EXPECT_EQ(ByteReader(writer.bytes()).get_count(8), 3u);
    ByteReader tight(writer.bytes());
    EXPECT_EQ(tight.get_count(9), 0u);
    EXPECT_FALSE(tight.ok());
    ByteWriter absurd;
    absurd.put(UINT64_MAX);
    ByteReader reader(absurd.bytes());
    EXPECT_EQ(reader.get_count(1), 0u);
    EXPECT_FALSE(reader.ok());
}

TEST(BytesTest, SetFailedMakesEverythingFail) {
    ByteWriter writer;
    writer.put(uint32_t{7});
    ByteReader reader(writer.bytes());
    reader.set_failed();
    EXPECT_EQ(reader.get<uint32_t>(), 0u);
    EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace tailrace::internal::test
