// What an option takes that is a whole number.
#pragma once

#include <fmt/format.h>

#include <CLI/Validators.hpp>
#include <charconv>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "text.h"

namespace tailrace::internal::tool {

// For CLI::Option::transform. CLI11's own checks do not say what is allowed, and it takes 010 for 8.
inline CLI::Validator whole_number(uint64_t least, uint64_t most) {
    return CLI::Validator(
        [least, most](std::string& text) -> std::string {
            uint64_t number = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, number);
            if (error != std::errc() || rest != end || number < least || number > most)
                return fmt::format("'{}' is not a whole number from {} to {}", printable(shortened(text)),
                                   least, most);
            text = std::to_string(number);
            return {};
        },
        "");
}

// Of a rank, a run, a seed.
inline CLI::Validator whole_number() {
    return whole_number(0, UINT32_MAX);
}

}  // namespace tailrace::internal::tool
