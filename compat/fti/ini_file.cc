#include "ini_file.h"

#include <algorithm>
#include <cctype>
#include <optional>

namespace fti_on_tailrace {

namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Takes the first line, with its end, off the text.
std::string_view next_line(std::string_view& text) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end == std::string_view::npos ? text.size() : end + 1);
    text.remove_prefix(line.size());
    return line;
}

bool is_comment(std::string_view line) {
    return line.empty() || line.front() == '#' || line.front() == ';';
}

// Of a line "[NAME]", in lower case.
std::optional<std::string> section_of(std::string_view line) {
    if (line.empty() || line.front() != '[') return std::nullopt;
    const auto end = line.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    return in_lower_case(trimmed(line.substr(1, end - 1)));
}

// Of what stands behind the '=': where the value ends and a comment may begin.
size_t value_length(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin != std::string_view::npos && (text[begin] == '"' || text[begin] == '\'')) {
        const auto quote = text.find(text[begin], begin + 1);
        if (quote != std::string_view::npos) return quote + 1;
    }
    return std::min(text.find_first_of("#;"), text.size());
}

std::string unquoted(std::string_view text) {
    text = trimmed(text);
    const bool in_quotes =
        text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
    return std::string(in_quotes ? text.substr(1, text.size() - 2) : text);
}

std::string restart_lines(bool with_failure, int failure, bool with_id, const std::string& exec_id) {
    return (with_failure ? "failure = " + std::to_string(failure) + "\n" : "") +
           (with_id ? "exec_id = " + exec_id + "\n" : "");
}

}  // namespace

std::string in_lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower;
}

Values values_of(std::string_view text, const std::string& file, std::vector<std::string>& notes) {
    Values values;
    std::string section;
    for (size_t number = 1; !text.empty(); ++number) {
        const auto line = trimmed(next_line(text));
        const auto origin = file + ", line " + std::to_string(number);
        if (is_comment(line)) continue;
        if (line.find('\0') != std::string_view::npos)
            throw ConfigError(origin + ": there is a NUL byte; remove it");
        if (line.front() == '[') {
            const auto name = section_of(line);
            if (!name) throw ConfigError(origin + ": \"" + std::string(line) + "\" has no closing ]");
            section = *name;
            continue;
        }
        const auto equals = line.find('=');
        const auto key = trimmed(line.substr(0, equals));
        if (equals == std::string_view::npos || key.empty())
            throw ConfigError(origin + ": \"" + std::string(line) +
                              "\" is neither [SECTION] nor KEY = VALUE; mend the line, or write # before it");
        if (section.empty())
            throw ConfigError(origin + ": " + std::string(key) +
                              " stands before any section; write [Basic] above it");
        const auto rest = line.substr(equals + 1);
        const auto name = section + ":" + in_lower_case(key);
        const auto value = unquoted(rest.substr(0, value_length(rest)));
        const auto before = values.find(name);
        if (before != values.end())
            notes.push_back(origin + ": " + std::string(key) + " stands twice; " + before->second.origin +
                            " has no effect");
        values[name] = {value, origin};
    }
    std::erase_if(values, [](const auto& entry) { return entry.second.text.empty(); });
    return values;
}

std::string with_restart(std::string_view text, int failure, const std::string& exec_id) {
    std::string made, section;
    size_t end_of_section = std::string::npos;  // of [restart]: behind its last line with a key
    bool has_failure = false, has_id = false;
    while (!text.empty()) {
        const auto line = next_line(text);
        const auto bare = trimmed(line);
        if (const auto name = section_of(bare)) section = *name;
        const auto equals = line.find('=');
        const bool in_restart = section == "restart" && !is_comment(bare);
        const auto key = in_lower_case(trimmed(line.substr(0, equals)));
        const bool is_failure = key == "failure", is_id = key == "exec_id";
        if (in_restart && bare.front() != '[' && equals != std::string_view::npos && (is_failure || is_id)) {
            const auto rest = line.substr(equals + 1);
            const auto behind = rest.substr(value_length(rest));
            made.append(line.substr(0, equals + 1)).append(" ");
            made.append(is_failure ? std::to_string(failure) : exec_id);
            if (!trimmed(behind).empty()) made.append(" ").append(trimmed(behind));
            made += '\n';
            (is_failure ? has_failure : has_id) = true;
        } else {
            made += line;
            if (!made.ends_with('\n')) made += '\n';
        }
        if (in_restart) end_of_section = made.size();
    }
    const auto missing = restart_lines(!has_failure, failure, !has_id, exec_id);
    if (end_of_section == std::string::npos) return made + "\n[Restart]\n" + missing;
    return made.insert(end_of_section, missing);
}

}  // namespace fti_on_tailrace
