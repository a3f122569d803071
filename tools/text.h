// Text for people and for programs: tables, ages, names made safe to print. Pure, except for the
// functions that print.
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

// The text with control characters and broken UTF-8 written as \xNN. Names come from files, and a
// hostile file may hold any bytes.
std::string printable(std::string_view text);

// "1 rank", "2 ranks".
std::string counted(uint64_t count, std::string_view noun);

// "12 s", "3 min", "5 h", "9 days".
std::string age_text(uint64_t seconds);

// Seconds from "90s", "15min", "12h", "7d" or "2w".
Result<uint64_t> parse_age(std::string_view text);

// "2026-03-01T12:00:00Z".
std::string time_text(uint64_t unix_ms);

// A setting's value as TOML. Numbers stand bare; everything else is a string, as set_config takes
// it.
std::string toml_value(std::string_view text);

// "64 x 32", "-" for no dimensions.
std::string shape_text(std::span<const uint64_t> shape);

// Columns are as wide as their widest cell. The first row is the heading. `right` names the columns
// that are aligned right. Spaces at line ends are left out.
class Table {
  public:
    explicit Table(std::vector<std::string> heading, std::vector<size_t> right = {});
    void add(std::vector<std::string> row);
    // Adds a line of its own below the last row.
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
void print_json(const nlohmann::ordered_json& json);  // one document to stdout, valid whatever names hold
bool printed_json();                                  // whether print_json was called
// Flushes what was printed. The failure says why some of it was lost (a full disk, for example).
Status finish_printing();

}  // namespace tailrace::internal::tool
