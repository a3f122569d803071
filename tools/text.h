// Text for people and for programs: tables, ages, names made safe to print. Pure, but for the printing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal::tool {

// The text with control characters and broken UTF-8 as \xNN: names come from files, and a file may lie.
std::string printable(std::string_view text);

// "1 rank", "2 ranks".
std::string counted(uint64_t count, std::string_view noun);

// "12 s", "3 min", "5 h", "9 days".
std::string age_text(uint64_t seconds);

// Seconds from "90s", "15min", "12h", "7d" or "2w".
Result<uint64_t> parse_age(std::string_view text);

// "2026-03-01T12:00:00Z".
std::string time_text(uint64_t unix_ms);

// A setting's value as TOML: numbers stand bare, everything else is a string, as set_config takes it.
std::string toml_value(std::string_view text);

// "64 x 32", "-" for no dimensions.
std::string shape_text(std::span<const uint64_t> shape);

// Columns as wide as their widest cell; the first row is the heading. `right` names those aligned right.
// Spaces at line ends are left out.
class Table {
  public:
    explicit Table(std::vector<std::string> heading, std::vector<size_t> right = {});
    void add(std::vector<std::string> row);
    // A line of its own below the last row.
    void note(std::string text);
    std::string text() const;

  private:
    struct Line {
        std::vector<std::string> cells;
        std::string note;
    };
    std::vector<Line> lines_;
    std::vector<size_t> right_;
};

void print(const std::string& text);                  // to stdout
void print_json(const nlohmann::ordered_json& json);  // to stdout, one document, valid whatever names hold
bool printed_json();                                  // whether that was done
// Brings out what was printed; says why where some of it was lost (a full disk, say).
Status finish_printing();

}  // namespace tailrace::internal::tool
