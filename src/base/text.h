// Text in UTF-8. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tailrace::internal {

// The first `most` bytes of `text`, or up to three fewer, so that no character is cut in two.
inline std::string_view cut_text(std::string_view text, size_t most) {
    if (text.size() <= most) return text;
    const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
    size_t end = most;
    while (end > 0 && most - end < 3 && continues(end)) --end;
    return text.substr(0, continues(end) ? most : end);
}

// As much of a foreign text as a message can repeat.
inline std::string shortened(std::string_view text) {
    constexpr size_t most = 100;
    return text.size() <= most ? std::string(text) : std::string(cut_text(text, most)) + "...";
}

// "1 call", "2 calls".
inline std::string counted(uint64_t count, std::string_view thing) {
    return std::to_string(count) + " " + std::string(thing) + (count == 1 ? "" : "s");
}

}  // namespace tailrace::internal
