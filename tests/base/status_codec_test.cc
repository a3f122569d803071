// A Status as it travels: what comes back, and that nothing else is taken for one.
#include "base/status_codec.h"

#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

TEST(StatusCodecTest, EveryCodeComesBackWithItsSentence) {
    for (int code = 0; code <= static_cast<int>(Code::aborted); ++code) {
        const Status status = code == 0 ? Status() : Status(static_cast<Code>(code), "why it failed");
        ByteWriter out;
        put(out, status);
        ByteReader in(out.bytes());
        const Status back = get_status(in);
        EXPECT_TRUE(in.at_end());
        EXPECT_EQ(back.code(), status.code());
        EXPECT_EQ(back.message(), status.message());
    }
}

TEST(StatusCodecTest, ALongSentenceIsCut) {
    ByteWriter out;
    put(out, Status(Code::io_error, std::string(100'000, 'x')), 10);
    put(out, Status(Code::io_error, std::string(100'000, 'x')));
    ByteReader in(out.bytes());
    EXPECT_EQ(get_status(in).message(), std::string(10, 'x'));
    EXPECT_EQ(get_status(in).message().size(), most_sentence_bytes);
    EXPECT_TRUE(in.at_end());
}

TEST(StatusCodecTest, WhatIsNoStatusIsRefused) {
    const auto refused = [](uint8_t code, std::string_view sentence, size_t missing) {
        ByteWriter out;
        out.put(code);
        out.put_string(sentence);
        ByteReader in(out.bytes().first(out.size() - missing));
        const Status status = get_status(in);
        return !in.ok() && status.ok();
    };
    EXPECT_TRUE(refused(static_cast<uint8_t>(Code::aborted) + 1, "", 0)) << "a code that nobody knows";
    EXPECT_TRUE(refused(0, "why", 0)) << "a sentence of an ok";
    EXPECT_TRUE(refused(1, "why", 1)) << "cut off";
    EXPECT_TRUE(refused(1, std::string(most_sentence_bytes + 1, 'x'), 0)) << "too long";
    EXPECT_FALSE(refused(1, "why", 0));
}

}  // namespace
}  // namespace tailrace::internal
