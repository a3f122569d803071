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

struct Inner {
    double seconds = 0;
    std::array<uint64_t, 2> residues = {};
    bool operator==(const Inner&) const = default;
};
struct Outer {
    bool flag = false;
    Inner inner;
    std::vector<Inner> list;
    std::vector<std::byte> bytes;
    std::string sentence;
    std::optional<Inner> none, some;
    bool operator==(const Outer&) const = default;
};
struct Nothing {};

template <class Codec>
void fields(Codec& codec, Inner& inner) {
    codec(inner.seconds, inner.residues);
}
template <class Codec>
void fields(Codec& codec, Outer& outer) {
    codec(outer.flag, outer.inner);
    codec.list(outer.list, 24);
    codec.bytes(outer.bytes);
    codec.sentence(outer.sentence, 5);
    codec(outer.none, outer.some);
    codec.check(outer.inner.seconds >= 0);
}

const Outer outer{true, {0.5, {1, 2}}, {{1.5, {3, 4}}, {}}, {std::byte{7}, std::byte{8}}, "words",
                  {},   Inner{2.5, {}}};

TEST(FieldsTest, EveryKindOfFieldSurvivesARoundTrip) {
    ByteWriter writer;
    put_fields(writer, outer);
    ByteReader reader(writer.bytes());
    Outer again;
    get_fields(reader, again);
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(again, outer);
}

TEST(FieldsTest, ASentenceIsCutWhereItsReaderWouldRefuseIt) {
    auto longer = outer;
    longer.sentence = "words and more";
    ByteWriter writer;
    put_fields(writer, longer);
    ByteReader reader(writer.bytes());
    Outer again;
    get_fields(reader, again);
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(again, outer);
}

TEST(FieldsTest, WhatAWriterDoesNotWriteFails) {
    ByteWriter writer;
    put_fields(writer, outer);
    auto flag = writer.take();
    flag[0] = std::byte{2};
    auto negative = outer;
    negative.inner.seconds = -1;
    put_fields(writer, negative);
    for (const auto& bytes : {flag, writer.take()}) {
        ByteReader reader(bytes);
        Outer again;
        get_fields(reader, again);
        EXPECT_FALSE(reader.ok());
    }
}

TEST(FieldsTest, AnAlternativeIsReadAsWhatWasWritten) {
    using Either = std::variant<Nothing, Inner>;
    for (const Either& either : {Either(Nothing()), Either(outer.inner)}) {
        ByteWriter writer;
        put_alternative(writer, either);
        ByteReader reader(writer.bytes());
        const auto again = get_alternative<Either>(reader, reader.get<uint8_t>());
        EXPECT_TRUE(reader.at_end());
        EXPECT_EQ(again.index(), either.index());
    }
    ByteReader reader({});
    (void)get_alternative<Either>(reader, 2);
    EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace tailrace::internal::test
