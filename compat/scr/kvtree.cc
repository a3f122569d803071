#include "kvtree.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

constexpr uint32_t magic = 0x951fc3f5;
constexpr size_t header_bytes = 20;
constexpr uint32_t flag_crc = 1;
constexpr size_t most_depth = 64;
constexpr size_t least_element_bytes = 5;  // the zero of an empty key, and a count

[[noreturn]] void corrupt(const std::string& what) {
    throw tailrace::Error(TAILRACE_CORRUPT, what);
}

// zlib's.
uint32_t crc32(std::string_view bytes) {
    static const auto table = [] {
        std::array<uint32_t, 256> made{};
        for (uint32_t i = 0; i < made.size(); ++i) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
            made[i] = value;
        }
        return made;
    }();
    uint32_t crc = ~0U;
    for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xffU] ^ (crc >> 8);
    return ~crc;
}

class Decoder {
  public:
    explicit Decoder(std::string_view bytes) : left_(bytes) {}

    template <class Number>
    Number number() {
        if (left_.size() < sizeof(Number)) corrupt("the file is cut off");
        Number value = 0;
        for (size_t i = 0; i < sizeof(Number); ++i)
            value = static_cast<Number>(value << 8) | static_cast<unsigned char>(left_[i]);
        left_.remove_prefix(sizeof(Number));
        return value;
    }
    void drop_last(size_t bytes) {
        if (left_.size() < bytes) corrupt("the file is cut off");
        left_.remove_suffix(bytes);
    }
    std::vector<Tree> elements(size_t depth) {
        if (depth > most_depth) corrupt("the tree is deeper than any of SCR's");
        const auto count = number<uint32_t>();
        if (count > left_.size() / least_element_bytes) corrupt("the file has no room for its elements");
        std::vector<Tree> all;
        for (uint32_t i = 0; i < count; ++i) {
            const auto end = left_.find('\0');
            if (end == std::string_view::npos) corrupt("a key has no end");
            Tree element{std::string(left_.substr(0, end)), {}};
            left_.remove_prefix(end + 1);
            element.below = elements(depth + 1);
            all.push_back(std::move(element));
        }
        return all;
    }
    bool at_end() const { return left_.empty(); }

  private:
    std::string_view left_;
};

std::string printable(const std::string& key) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const char c : key) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= ' ' && byte != 0x7f)
            text += c;
        else
            text.append("\\x").append({digits[byte >> 4], digits[byte & 15]});
    }
    return text;
}

void print(std::vector<Tree> elements, Printed how, size_t indent, std::string& text) {
    std::sort(elements.begin(), elements.end(), [](const Tree& a, const Tree& b) { return a.key < b.key; });
    for (auto& element : elements) {
        text.append(indent, ' ').append(printable(element.key));
        if (how == Printed::key_values && element.below.size() == 1 && element.below.front().below.empty()) {
            text.append(" = ").append(printable(element.below.front().key)).append("\n");
            continue;
        }
        text += "\n";
        print(std::move(element.below), how, indent + 2, text);
    }
}

}  // namespace

bool is_kvtree(std::string_view bytes) {
    return bytes.size() >= sizeof(magic) && Decoder(bytes).number<uint32_t>() == magic;
}

Tree decode_kvtree(std::string_view bytes) {
    Decoder decoder(bytes);
    if (decoder.number<uint32_t>() != magic) corrupt("it is no file of SCR's");
    if (decoder.number<uint16_t>() != 1 || decoder.number<uint16_t>() != 1)
        corrupt("it is of a type or version that is not known");
    const auto size = decoder.number<uint64_t>();
    if (size != bytes.size())
        corrupt("it has " + std::to_string(bytes.size()) + " bytes, and should have " + std::to_string(size));
    if ((decoder.number<uint32_t>() & flag_crc) != 0) {
        if (bytes.size() < header_bytes + sizeof(uint32_t)) corrupt("the file is cut off");
        const auto body = bytes.substr(0, bytes.size() - sizeof(uint32_t));
        if (crc32(body) != Decoder(bytes.substr(body.size())).number<uint32_t>())
            corrupt("its checksum does not match");
        decoder.drop_last(sizeof(uint32_t));
    }
    Tree tree{{}, decoder.elements(0)};
    if (!decoder.at_end()) corrupt("there are bytes after the tree");
    return tree;
}

std::string text_of(const Tree& tree, Printed how) {
    std::string text;
    print(tree.below, how, 2, text);
    return text;
}

}  // namespace scr_on_tailrace
