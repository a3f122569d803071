#include "format/redundancy.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace tailrace::internal {

Result<Redundancy> parse_redundancy(std::string_view text) {
    if (text == "none") return Redundancy{};
    if (text == "partner") return Redundancy{Scheme::partner, 1};
    if (text == "xor") return Redundancy{Scheme::parity, 1};
    if (text.starts_with("rs:")) {
        uint32_t losses = 0;
        const auto* const last = text.data() + text.size();
        const auto [end, error] = std::from_chars(text.data() + 3, last, losses);
        if (error == std::errc() && end == last && losses >= 1 && losses < max_set_nodes)
            return Redundancy{Scheme::solomon, losses};
    }
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\" is no redundancy: none, partner, xor or rs:K is expected, with K from "
                              "1 to {}",
                              shortened(text), max_set_nodes - 1));
}

std::string to_string(const Redundancy& redundancy) {
    switch (redundancy.scheme) {
        case Scheme::none:
            return "none";
        case Scheme::partner:
            return "partner";
        case Scheme::parity:
            return "xor";
        case Scheme::solomon:
            break;
    }
    return fmt::format("rs:{}", redundancy.losses);
}

}  // namespace tailrace::internal
