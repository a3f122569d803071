// ByteWriter and ByteReader: the little-endian codec under every format and message of tailrace.
//
// The reader treats its bytes as hostile. It never reads past the end, and once a read has failed,
// every later one fails too. So a decoder may read a whole record and ask ok() once before it
// trusts any of it. Lengths and counts must be checked against remaining() before memory is
// reserved for them; the functions here do so. Not thread-safe; cheap to make.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tailrace::internal {

class ByteWriter {
  public:
    template <class T>
    requires std::is_unsigned_v<T>
    void put(T value) {
        for (size_t i = 0; i < sizeof(T); ++i)
            bytes_.push_back(static_cast<std::byte>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
    }
    void put_bytes(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    // Writes a 32-bit length, then the bytes.
    void put_string(std::string_view text) {
        put(static_cast<uint32_t>(text.size()));
        put_bytes(std::as_bytes(std::span(text.data(), text.size())));
    }
    void put_zeros(size_t count) { bytes_.resize(bytes_.size() + count); }
    // Writes zeros up to the next multiple of `alignment`.
    void align(size_t alignment) { put_zeros((alignment - bytes_.size() % alignment) % alignment); }

    size_t size() const { return bytes_.size(); }
    std::span<const std::byte> bytes() const { return bytes_; }
    std::vector<std::byte> take() { return std::move(bytes_); }

  private:
    std::vector<std::byte> bytes_;
};

class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <class T>
    requires std::is_unsigned_v<T> T get() {
        if (!has(sizeof(T))) return fail<T>();
        uint64_t value = 0;
        for (size_t i = 0; i < sizeof(T); ++i)
            value |= static_cast<uint64_t>(std::to_integer<uint8_t>(bytes_[at_ + i])) << (8 * i);
        at_ += sizeof(T);
        return static_cast<T>(value);
    }
    std::span<const std::byte> get_bytes(uint64_t count) {
        if (!has(count)) return fail<std::span<const std::byte>>();
        auto bytes = bytes_.subspan(at_, count);
        at_ += count;
        return bytes;
    }
    // Reads a string of at most max_bytes. A longer one is a failure.
    std::string get_string(uint32_t max_bytes) {
        auto length = get<uint32_t>();
        if (length > max_bytes) return fail<std::string>();
        auto bytes = get_bytes(length);
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    // Reads a 64-bit count of records of at least record_bytes each. A count that cannot fit is a
    // failure.
    uint64_t get_count(uint64_t record_bytes) {
        auto count = get<uint64_t>();
        if (ok() && count > remaining() / record_bytes) return fail<uint64_t>();
        return count;
    }

    bool ok() const { return ok_; }
    size_t position() const { return at_; }
    size_t remaining() const { return bytes_.size() - at_; }
    bool at_end() const { return ok_ && remaining() == 0; }
    void set_failed() { ok_ = false; }

  private:
    bool has(uint64_t count) const { return ok_ && count <= remaining(); }
    template <class T>
    T fail() {
        ok_ = false;
        return T();
    }

    std::span<const std::byte> bytes_;
    size_t at_ = 0;
    bool ok_ = true;
};

}  // namespace tailrace::internal
