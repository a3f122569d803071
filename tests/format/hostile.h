// What every decoder's test does to valid bytes, and how random tests come by their seed.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "format/frame.h"
#include "format/samples.h"

namespace tailrace::internal {

// Random, or TAILRACE_SEED. Tests put it into a SCOPED_TRACE, so that a failure prints it.
inline uint64_t test_seed() {
    const char* given = std::getenv("TAILRACE_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}
inline std::string seed_text(uint64_t seed) {
    return "TAILRACE_SEED=" + std::to_string(seed);
}

// Every shorter version of `bytes` is corrupt.
template <class Decode>
void expect_truncations_corrupt(const Bytes& bytes, const Decode& decode) {
    for (size_t count = 0; count < bytes.size(); ++count) {
        auto decoded = decode(std::span(bytes).first(count));
        ASSERT_FALSE(decoded.ok()) << count << " of " << bytes.size() << " bytes were accepted";
        ASSERT_EQ(decoded.status().code(), Code::corrupt) << count << ": " << decoded.status().to_string();
    }
}

// With any one bit changed, the first `record_bytes` of `bytes` are corrupt.
template <class Decode>
void expect_flips_corrupt(Bytes bytes, size_t record_bytes, const Decode& decode) {
    for (size_t bit = 0; bit < 8 * record_bytes; ++bit) {
        auto mask = static_cast<std::byte>(1u << (bit % 8));
        bytes[bit / 8] ^= mask;
        auto decoded = decode(std::span<const std::byte>(bytes));
        ASSERT_FALSE(decoded.ok()) << "bit " << bit % 8 << " of byte " << bit / 8 << " was not noticed";
        ASSERT_EQ(decoded.status().code(), Code::corrupt) << decoded.status().to_string();
        bytes[bit / 8] ^= mask;
    }
}

// The record at `bytes` with `value` stored at `offset`, its checksum made right.
template <class T>
Bytes with(Bytes bytes, uint64_t record_bytes, uint64_t offset, T value) {
    store(bytes, offset, value);
    reseal(bytes, 0, record_bytes);
    return bytes;
}

template <class T>
void expect_code(const Result<T>& result, Code code, const std::string& part_of_sentence) {
    ASSERT_FALSE(result.ok()) << "was accepted; wanted: " << part_of_sentence;
    EXPECT_EQ(result.status().code(), code) << result.status().to_string();
    EXPECT_THAT(result.status().message(), testing::HasSubstr(part_of_sentence));
}

// The rules of versions and features, the same for every record; its first 32 bytes are the frame.
template <class Decode>
void expect_version_rules(const Bytes& bytes, size_t record_bytes, const Decode& decode) {
    auto original = decode(std::span<const std::byte>(bytes));
    ASSERT_TRUE(original.ok());
    expect_code(decode(with(bytes, record_bytes, 8, uint16_t{2})), Code::unsupported, "version 2.");
    expect_code(decode(with(bytes, record_bytes, 12, uint32_t{0x80})), Code::unsupported, "features 0x80");
    auto newer_minor = decode(with(bytes, record_bytes, 10, uint16_t{7}));
    ASSERT_TRUE(newer_minor.ok());
    EXPECT_EQ(*newer_minor, *original);
    auto optional_feature = decode(with(bytes, record_bytes, 16, uint32_t{0x80}));
    ASSERT_TRUE(optional_feature.ok());
    EXPECT_EQ(*optional_feature, *original);
    for (int64_t error : {-1, 1}) {
        auto other_size = bytes;
        store(other_size, 24, static_cast<uint64_t>(static_cast<int64_t>(record_bytes) + error));
        store(other_size, 20, format::record_crc(std::span(other_size).first(record_bytes)));
        expect_code(decode(other_size), Code::corrupt, "are expected");
    }
    expect_code(decode(with(bytes, record_bytes, 0, uint8_t{'X'})), Code::corrupt, "does not start with");
}

}  // namespace tailrace::internal
