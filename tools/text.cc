#include "text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tailrace::internal::tool {

namespace {

// Bytes of the UTF-8 character at the start of `text`; 0 when there is no valid one.
size_t character_bytes(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || bytes > text.size()) return 0;
    for (size_t i = 1; i < bytes; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Not longer than needed, no surrogates, nothing above U+10FFFF.
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) > 0x9f) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) > 0x8f) return 0;
    return bytes;
}

bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // C1 controls
}

bool document_is_out = false;

size_t width(std::string_view text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string printable(std::string_view text) {
    std::string safe;
    while (!text.empty()) {
        const size_t bytes = character_bytes(text);
        if (bytes == 0 || is_control(text.substr(0, bytes))) {
            safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
            text.remove_prefix(1);
            continue;
        }
        safe += text.substr(0, bytes);
        text.remove_prefix(bytes);
    }
    return safe;
}

std::string counted(uint64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string age_text(uint64_t seconds) {
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
    if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
    return fmt::format("{} days", seconds / 86400);
}

Result<uint64_t> parse_age(std::string_view text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view unit = text.substr(digits);
    uint64_t factor = 0;
    if (unit == "s") factor = 1;
    if (unit == "m" || unit == "min") factor = 60;
    if (unit == "h") factor = 3600;
    if (unit == "d") factor = 86400;
    if (unit == "w") factor = 7 * 86400;
    if (digits == 0 || digits > 9 || factor == 0)
        return Status(
            Code::invalid_argument,
            fmt::format(
                "'{}' is not a length of time: give a number and a unit, such as 90s, 15min, 12h, 7d or 2w",
                shortened(text)));
    return std::stoull(std::string(text.substr(0, digits))) * factor;
}

std::string time_text(uint64_t unix_ms) {
    const uint64_t seconds = unix_ms / 1000;
    if (seconds > 253402300799) return "after the year 9999";  // a damaged slot may hold any number
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string toml_value(std::string_view text) {
    const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) return std::string(text);
    std::string quoted = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return quoted + '"';
}

std::string shape_text(std::span<const uint64_t> shape) {
    if (shape.empty()) return "-";
    std::string text;
    for (uint64_t extent : shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
    return text;
}

Table::Table(std::vector<std::string> heading, std::vector<size_t> right) : right_(std::move(right)) {
    lines_.push_back({std::move(heading), ""});
}

void Table::add(std::vector<std::string> row) {
    lines_.push_back({std::move(row), ""});
}

void Table::note(std::string text) {
    lines_.push_back({{}, std::move(text)});
}

std::string Table::text() const {
    std::vector<size_t> widths;
    for (const Line& line : lines_)
        for (size_t c = 0; c < line.cells.size(); ++c) {
            if (c == widths.size()) widths.push_back(0);
            widths[c] = std::max(widths[c], width(line.cells[c]));
        }
    std::string text;
    for (const Line& line : lines_) {
        std::string row = line.note;
        for (size_t c = 0; c < line.cells.size(); ++c) {
            const std::string padding(widths[c] - width(line.cells[c]), ' ');
            const bool right = std::find(right_.begin(), right_.end(), c) != right_.end();
            if (c > 0) row += "  ";
            row += right ? padding + line.cells[c] : line.cells[c] + padding;
        }
        row.erase(row.find_last_not_of(' ') + 1);
        text += row + '\n';
    }
    return text;
}

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_json(const nlohmann::ordered_json& json) {
    document_is_out = true;
    print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

bool printed_json() {
    return document_is_out;
}

Status finish_printing() {
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && std::ferror(stdout) == 0) return Status();
    return errno_status(errno != 0 ? errno : EIO, "writing to standard output, which is incomplete");
}

}  // namespace tailrace::internal::tool
