#include "box_text.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "text.h"

namespace tailrace::internal::tool {

namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

std::optional<uint64_t> parse_index(std::string_view text) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

}  // namespace

Result<Box> parse_box(std::string_view text, std::span<const uint64_t> shape) {
    std::vector<std::string_view> ranges;
    for (size_t from = 0; from <= text.size();) {
        const size_t to = std::min(text.find(',', from), text.size());
        ranges.push_back(trimmed(text.substr(from, to - from)));
        from = to + 1;
    }
    if (ranges.size() != shape.size())
        return Status(
            Code::invalid_argument,
            fmt::format("box '{}' has {}, but the array has {} ({})", text, counted(ranges.size(), "range"),
                        counted(shape.size(), "dimension"), shape_text(shape)));
    Box box;
    for (size_t d = 0; d < shape.size(); ++d) {
        const std::string_view range = ranges[d];
        const size_t colon = range.find(':');
        std::optional<uint64_t> from, to;
        if (colon == std::string_view::npos) {
            from = parse_index(range);
            if (from && *from < UINT64_MAX) to = *from + 1;
        } else {
            const std::string_view before = trimmed(range.substr(0, colon));
            const std::string_view after = trimmed(range.substr(colon + 1));
            from = before.empty() ? std::optional<uint64_t>(0) : parse_index(before);
            to = after.empty() ? std::optional<uint64_t>(shape[d]) : parse_index(after);
        }
        if (!from || !to)
            return Status(
                Code::invalid_argument,
                fmt::format("'{}' in box '{}' is not a range: write FROM:TO, or one index", range, text));
        if (*from > *to || *to > shape[d])
            return Status(
                Code::invalid_argument,
                fmt::format("range '{}' of dimension {} does not lie within 0:{}", range, d, shape[d]));
        box.offset.push_back(*from);
        box.shape.push_back(*to - *from);
    }
    return box;
}

}  // namespace tailrace::internal::tool
