#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>

#include "base/text.h"

namespace tailrace::internal {

namespace {

struct Unit {
    std::string_view name;  // lower case
    uint64_t bytes;
};

constexpr std::array<Unit, 14> units = {{{"", 1},
                                         {"b", 1},
                                         {"k", KiB},
                                         {"kib", KiB},
                                         {"kb", 1000},
                                         {"m", MiB},
                                         {"mib", MiB},
                                         {"mb", 1000 * 1000},
                                         {"g", GiB},
                                         {"gib", GiB},
                                         {"gb", 1000 * 1000 * 1000},
                                         {"t", GiB * 1024},
                                         {"tib", GiB * 1024},
                                         {"tb", uint64_t{1000} * 1000 * 1000 * 1000}}};

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
    uint64_t number = 0;
    const char* end = text.data() + text.size();
    auto [rest, error] = std::from_chars(text.data(), end, number);
    while (rest != end && *rest == ' ') ++rest;
    std::string name(rest, end);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (error == std::errc()) {
        for (const Unit& unit : units) {
            if (name == unit.name && number <= UINT64_MAX / unit.bytes) return number * unit.bytes;
        }
    }
    return Status(
        Code::invalid_argument,
        fmt::format("\"{}\" is not a size: write a whole number of bytes or one with a unit, such as "
                    "4096, 64KiB, 256MiB, 2GiB",
                    shortened(text)));
}

std::string format_bytes(uint64_t bytes) {
    static constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    auto value = static_cast<double>(bytes);
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.4g} {}", value, names[unit]);
}

}  // namespace tailrace::internal
