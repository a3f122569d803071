#include "carrier/line_messages.h"

#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> made;
    for (size_t i = 0; i < count; ++i) made.push_back(static_cast<std::byte>(i * 7));
    return made;
}

std::vector<line::Message> samples() {
    const Status failed(Code::io_error, "a disk");
    return {line::JobPiece{true, bytes(9)},
            line::Join{1, 2, 3},
            line::BeginPiece{false, bytes(5)},
            line::Damaged{{4, 5}},
            line::Close{},
            line::Goodbye{true},
            line::Mail{bytes(100), false},
            line::Answer{failed},
            line::Idle{failed, Status()},
            line::Ended{},
            line::Ping{},
            line::Pong{}};
}

TEST(LineMessageTest, EveryKindSurvivesARoundTrip) {
    const auto all = samples();
    ASSERT_EQ(all.size(), std::variant_size_v<line::Message>);
    for (const auto& message : all) {
        const auto again = line::decode(line::encode(message));
        ASSERT_TRUE(again.ok()) << again.status().to_string();
        EXPECT_EQ(again->index(), message.index());
        EXPECT_TRUE(line::encode(*again) == line::encode(message));
    }
}

TEST(LineMessageTest, AMessageThatIsCutShortOrLongerIsRefused) {
    for (const auto& message : samples()) {
        auto whole = line::encode(message);
        for (size_t length = 0; length < whole.size(); ++length)
            EXPECT_FALSE(line::decode(std::span(whole).first(length)).ok())
                << message.index() << " " << length;
        whole.push_back(std::byte{0});
        EXPECT_FALSE(line::decode(whole).ok()) << message.index();
    }
}

TEST(LineMessageTest, PiecesPutTogetherAreTheWhole) {
    for (const size_t count : {size_t{0}, size_t{1}, line::piece_bytes, line::piece_bytes * 2 + 3}) {
        const auto whole = bytes(count);
        std::vector<std::byte> together;
        int lasts = 0;
        const Status sent =
            line::in_pieces(whole, [&](std::span<const std::byte> piece, bool last) -> Status {
                EXPECT_LE(piece.size(), line::piece_bytes);
                EXPECT_EQ(lasts, 0);
                together.insert(together.end(), piece.begin(), piece.end());
                lasts += last;
                return {};
            });
        EXPECT_TRUE(sent.ok());
        EXPECT_EQ(lasts, 1);
        EXPECT_TRUE(together == whole);
    }
}

}  // namespace
}  // namespace tailrace::internal
