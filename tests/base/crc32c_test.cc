#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tailrace::internal::test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

// RFC 3720, appendix B.4, as numbers (the RFC lists the bytes as they go over the wire, least first).
TEST(Crc32cTest, AgreesWithTheVectorsOfRfc3720) {
    std::vector<std::byte> ascending(32), descending(32);
    for (size_t i = 0; i < 32; ++i) {
        ascending[i] = static_cast<std::byte>(i);
        descending[i] = static_cast<std::byte>(31 - i);
    }
    EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAu);
    EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62A8AB43u);
    EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
    EXPECT_EQ(crc32c(descending), 0x113FDB5Cu);
    EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
}

TEST(Crc32cTest, NothingHasTheChecksumZero) {
    EXPECT_EQ(crc32c({}), 0u);
    EXPECT_EQ(crc32c({}, 0x12345678u), 0x12345678u);
}

TEST(Crc32cTest, IsTheDefinitionBitByBit) {
    std::mt19937 random(1);
    for (size_t bytes : {1, 2, 7, 8, 63, 64, 1000, 5001}) {
        std::vector<std::byte> data(bytes);
        for (std::byte& b : data) b = static_cast<std::byte>(random() & 0xff);
        uint32_t state = 0xFFFFFFFFu;
        for (std::byte b : data) {
            state ^= std::to_integer<uint32_t>(b);
            for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78u : 0);
        }
        EXPECT_EQ(crc32c(data), ~state) << bytes;
    }
}

TEST(Crc32cTest, PartsChain) {
    std::vector<std::byte> data(10'000);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 % 251);
    const uint32_t whole = crc32c(data);
    for (size_t cut : {size_t{0}, size_t{1}, size_t{4096}, size_t{9999}, data.size()}) {
        EXPECT_EQ(crc32c(std::span(data).subspan(cut), crc32c(std::span(data).first(cut))), whole) << cut;
    }
}

TEST(Crc32cTest, ChecksumsOfPartsAreJoinedWithoutTheParts) {
    std::vector<std::byte> data(300'000);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 % 251);
    for (size_t cut : {size_t{0}, size_t{1}, size_t{4096}, size_t{262'144}, data.size() - 1, data.size()}) {
        const auto first = std::span(data).first(cut), second = std::span(data).subspan(cut);
        EXPECT_EQ(Crc32cJoin(second.size())(crc32c(first), crc32c(second)), crc32c(data)) << cut;
    }
}

}  // namespace
}  // namespace tailrace::internal::test
