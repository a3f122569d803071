// Text in UTF-8. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace tailrace {

// The first `most` bytes of `text`, or up to three fewer: no letter is cut in two.
inline std::string_view cut_text(std::string_view text, size_t most) {
    if (text.size() <= most) return text;
    const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
    size_t end = most;
    while (end > 0 && most - end < 3 && continues(end)) --end;
    return text.substr(0, continues(end) ? most : end);
}

}  // namespace tailrace
