// ByteWriter and ByteReader: the little-endian codec under every format and message of tailrace.
//
// The reader treats its bytes as hostile. It never reads past the end, and once a read has failed,
// every later one fails too. So a decoder may read a whole record and ask ok() once before it
// trusts any of it. Lengths and counts must be checked against remaining() before memory is
// reserved for them; the functions here do so. Not thread-safe; cheap to make.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/text.h"

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

// ---- both directions from one list --------------------------------------------------------------
//
// A record that travels in a message names its fields once, so writing and reading cannot disagree:
//
//     template <class Codec>
//     void fields(Codec& codec, CreditMessage& message) {
//         codec(message.key, message.credit);
//     }
//
// put_fields() and get_fields() carry it out. `fields` stands in the record's namespace. A field may
// be an unsigned number, bool, double, another record with `fields`, an array or an optional of
// these, or of any type with put(ByteWriter&, const T&) and get(ByteReader&, T&). A record without
// members needs no list.
template <class Codec, class T>
concept has_fields = requires(Codec& codec, T& record) {
    fields(codec, record);
};

class FieldWriter {
  public:
    explicit FieldWriter(ByteWriter& out) : out_(out) {}

    template <class... T>
    void operator()(const T&... values) {
        (put_one(values), ...);
    }
    void text(const std::string& text, uint32_t /*most_bytes*/) { out_.put_string(text); }
    // A text for people, which is cut to that length, or a type with put(out, value, most_bytes).
    template <class Sentence>
    void sentence(const Sentence& sentence, uint32_t most_bytes) {
        if constexpr (std::is_same_v<Sentence, std::string>)
            out_.put_string(cut_text(sentence, most_bytes));
        else
            put(out_, sentence, most_bytes);
    }
    void bytes(const std::vector<std::byte>& bytes) {
        out_.put(static_cast<uint32_t>(bytes.size()));
        out_.put_bytes(bytes);
    }
    // A reader fails where that is not so.
    void check(bool /*sound*/) {}
    void number(int value) { out_.put(static_cast<uint32_t>(value)); }  // not negative
    template <class Enum>
    void choice(Enum value, Enum /*last*/) {
        out_.put(static_cast<uint8_t>(value));
    }
    // `each` gets the elements in order. None takes less than `least_bytes`.
    template <class T, class Each>
    void list(std::vector<T>& elements, uint64_t /*least_bytes*/, Each each) {
        out_.put(static_cast<uint64_t>(elements.size()));
        for (T& element : elements) each(element);
    }
    // The elements as they are.
    template <class T>
    void list(const std::vector<T>& elements, uint64_t /*least_bytes*/) {
        out_.put(static_cast<uint64_t>(elements.size()));
        for (const T& element : elements) put_one(element);
    }

  private:
    template <class T>
    void put_one(const T& value) {
        if constexpr (std::is_unsigned_v<T>)
            out_.put(value);
        else if constexpr (std::is_same_v<T, double>)
            out_.put(std::bit_cast<uint64_t>(value));
        else if constexpr (has_fields<FieldWriter, T>)
            fields(*this, const_cast<T&>(value));  // a FieldWriter changes nothing
        else if constexpr (!std::is_empty_v<T>)
            put(out_, value);
    }
    template <class T, size_t count>
    void put_one(const std::array<T, count>& values) {
        for (const T& value : values) put_one(value);
    }
    template <class T>
    void put_one(const std::optional<T>& value) {
        put_one(value.has_value());
        if (value) put_one(*value);
    }
    ByteWriter& out_;
};

// Fails the reader where a field is not what a FieldWriter writes.
class FieldReader {
  public:
    explicit FieldReader(ByteReader& in) : in_(in) {}

    template <class... T>
    void operator()(T&... values) {
        (get_one(values), ...);
    }
    void text(std::string& text, uint32_t most_bytes) { text = in_.get_string(most_bytes); }
    template <class Sentence>
    void sentence(Sentence& sentence, uint32_t most_bytes) {
        if constexpr (std::is_same_v<Sentence, std::string>)
            text(sentence, most_bytes);
        else
            get(in_, sentence);
    }
    void bytes(std::vector<std::byte>& bytes) {
        const auto found = in_.get_bytes(in_.get<uint32_t>());
        bytes.assign(found.begin(), found.end());
    }
    void check(bool sound) {
        if (!sound) in_.set_failed();
    }
    void number(int& value) {
        const auto found = in_.get<uint32_t>();
        if (found > static_cast<uint32_t>(INT32_MAX)) in_.set_failed();
        value = in_.ok() ? static_cast<int>(found) : 0;
    }
    template <class Enum>
    void choice(Enum& value, Enum last) {
        const auto found = in_.get<uint8_t>();
        if (found > static_cast<uint8_t>(last)) return in_.set_failed();
        value = static_cast<Enum>(found);
    }
    template <class T, class Each>
    void list(std::vector<T>& elements, uint64_t least_bytes, Each each) {
        elements.resize(in_.get_count(least_bytes));
        for (T& element : elements) each(element);
    }
    template <class T>
    void list(std::vector<T>& elements, uint64_t least_bytes) {
        list(elements, least_bytes, [this](T& element) { get_one(element); });
    }

  private:
    template <class T>
    void get_one(T& value) {
        if constexpr (std::is_same_v<T, bool>)
            get_flag(value);
        else if constexpr (std::is_unsigned_v<T>)
            value = in_.get<T>();
        else if constexpr (std::is_same_v<T, double>)
            value = std::bit_cast<double>(in_.get<uint64_t>());
        else if constexpr (has_fields<FieldReader, T>)
            fields(*this, value);
        else if constexpr (!std::is_empty_v<T>)
            get(in_, value);
    }
    template <class T, size_t count>
    void get_one(std::array<T, count>& values) {
        for (T& value : values) get_one(value);
    }
    template <class T>
    void get_one(std::optional<T>& value) {
        bool any = false;
        get_one(any);
        value.reset();
        if (any) get_one(value.emplace());
    }
    void get_flag(bool& value) {
        const auto found = in_.get<uint8_t>();
        check(found <= 1);
        value = found == 1;
    }
    ByteReader& in_;
};

template <class Record>
void put_fields(ByteWriter& out, const Record& record) {
    FieldWriter codec(out);
    codec(record);
}
template <class Record>
void get_fields(ByteReader& in, Record& record) {
    FieldReader codec(in);
    codec(record);
}

// ---- one of several records: its index in a variant, and its fields
template <class Variant>
void put_alternative(ByteWriter& out, const Variant& variant) {
    out.put(static_cast<uint8_t>(variant.index()));
    std::visit([&](const auto& record) { put_fields(out, record); }, variant);
}
// Reads the fields of the alternative with that index. Fails the reader if there is none.
template <class Variant, size_t candidate = 0>
Variant get_alternative(ByteReader& in, size_t index) {
    if constexpr (candidate < std::variant_size_v<Variant>) {
        if (index != candidate) return get_alternative<Variant, candidate + 1>(in, index);
        std::variant_alternative_t<candidate, Variant> record;
        get_fields(in, record);
        return record;
    } else {
        in.set_failed();
        return Variant();
    }
}

}  // namespace tailrace::internal
