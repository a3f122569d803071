#include "parameters.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>

#include "common/small_file.h"

namespace scr_on_tailrace {

namespace {

constexpr std::string_view blanks = " \t\r\n";

std::string quoted(std::string_view text) {
    return "\"" + std::string(text) + "\"";
}

// Takes words and equals signs off the front of a line.
class Words {
  public:
    explicit Words(std::string_view line) : rest_(line) { skip_blanks(); }

    bool empty() const { return rest_.empty(); }
    bool take_equals() {
        if (!rest_.starts_with('=')) return false;
        rest_.remove_prefix(1);
        skip_blanks();
        return true;
    }
    std::string take_key() { return take(" \t\r\n="); }
    // It may have equals signs.
    std::string take_value() { return take(blanks); }

  private:
    std::string take(std::string_view ends) {
        const auto length = std::min(rest_.find_first_of(ends), rest_.size());
        std::string word(rest_.substr(0, length));
        rest_.remove_prefix(length);
        skip_blanks();
        return word;
    }
    void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(blanks), rest_.size())); }

    std::string_view rest_;
};

bool in_a_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

std::string in_environment(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::string() : value;
}

// A file that nobody has named need not be there.
std::string text_of(const std::string& path, bool named) {
    if (!named && ::access(path.c_str(), F_OK) != 0) return {};
    try {
        return on_tailrace::read_file(path, "it");
    } catch (const tailrace::Error& error) {
        throw ConfigError("the configuration file " + path + (named ? " (SCR_CONF_FILE)" : "") +
                          " cannot be read: " + error.what());
    }
}

}  // namespace

Line parse_line(std::string_view text) {
    const auto refuse = [&](const std::string& why) {
        throw ConfigError("the configuration " + quoted(text) + " " + why +
                          "; write KEY=VALUE, KEY=VALUE PART=VALUE, KEY= or KEY");
    };
    Line line;
    Words words(text);
    line.key = words.take_key();
    if (line.key.empty()) refuse("has no key");
    if (!words.take_equals()) {
        line.asks = true;
        if (!words.empty()) refuse("has no = between its words");
        return line;
    }
    if (words.empty()) return line;
    line.value = words.take_value();
    while (!words.empty()) {
        auto part = words.take_key();
        if (part.empty()) refuse("has an = without a key before it");
        if (!words.take_equals()) {
            if (!words.empty() || !line.parts.empty()) refuse("sets and asks at once");
            line.asks = true;
            line.asked_part = std::move(part);
            return line;
        }
        if (words.empty()) refuse("has no value behind its last =");
        line.parts.emplace_back(std::move(part), words.take_value());
    }
    return line;
}

std::string expanded(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const auto dollar = std::min(text.find('$'), text.size());
        result += text.substr(0, dollar);
        text.remove_prefix(dollar);
        if (text.empty()) break;
        const size_t begin = text.size() > 1 && text[1] == '{' ? 2 : 1;
        size_t end = begin;
        while (end < text.size() && in_a_name(text[end])) ++end;
        const bool closed = begin == 1 || (end < text.size() && text[end] == '}');
        if (end == begin || !closed) {
            result += '$';
            text.remove_prefix(1);
            continue;
        }
        result += in_environment(std::string(text.substr(begin, end - begin)));
        text.remove_prefix(begin == 1 ? end : end + 1);
    }
    return result;
}

void Parameters::set(Values& values, const Line& line) {
    if (!line.value) {
        values.erase(line.key);
        return;
    }
    auto& of_key = values[line.key];
    if (line.parts.empty()) of_key.clear();
    auto& parts = of_key[*line.value];
    for (const auto& [name, value] : line.parts) parts[name] = value;
}

std::optional<std::string> Parameters::without_file(const std::string& key) const {
    if (const char* value = std::getenv(key.c_str()); value != nullptr) return expanded(value);
    const auto found = program_.find(key);
    if (found == program_.end() || found->second.size() != 1) return std::nullopt;
    return expanded(found->second.begin()->first);
}

// Which file it is may change with every line that the program sets.
void Parameters::read_file() {
    const auto named = without_file("SCR_CONF_FILE");
    const std::string path = named ? *named : without_file("SCR_PREFIX").value_or(".") + "/.scrconf";
    if (path == file_read_) return;
    Values values;
    std::istringstream in(text_of(path, named.has_value()));
    std::string text;
    for (size_t number = 1; std::getline(in, text); ++number) {
        text.resize(std::min(text.find('#'), text.size()));
        if (text.find_first_not_of(blanks) == std::string::npos) continue;
        try {
            const auto line = parse_line(text);
            if (line.asks) throw ConfigError(quoted(text) + " sets nothing");
            set(values, line);
        } catch (const ConfigError& error) {
            throw ConfigError(path + ", line " + std::to_string(number) + ": " + error.what());
        }
    }
    file_ = std::move(values);
    file_read_ = path;
}

std::optional<std::string> Parameters::apply(std::string_view text) {
    const auto line = parse_line(text);
    if (!line.asks) {
        set(program_, line);
        return std::nullopt;
    }
    if (line.asked_part.empty()) return get(line.key);
    read_file();
    for (const auto* values : {&file_, &program_}) {
        const auto key = values->find(line.key);
        if (key == values->end()) continue;
        const auto value = key->second.find(*line.value);
        if (value == key->second.end()) continue;
        const auto part = value->second.find(line.asked_part);
        if (part != value->second.end()) return expanded(part->second);
    }
    return std::nullopt;
}

std::optional<std::string> Parameters::get(const std::string& key) {
    if (const char* value = std::getenv(key.c_str()); value != nullptr) return expanded(value);
    read_file();
    for (const auto* values : {&file_, &program_}) {
        const auto found = values->find(key);
        if (found == values->end()) continue;
        if (found->second.size() > 1)
            throw ConfigError(key + " has " + std::to_string(found->second.size()) +
                              " values; ask for a part of one, as in KEY=VALUE PART");
        return expanded(found->second.begin()->first);
    }
    return std::nullopt;
}

std::string Parameters::origin(const std::string& key) {
    if (std::getenv(key.c_str()) != nullptr) return "environment variable " + key;
    read_file();
    return file_.contains(key) ? file_read_ : "SCR_Config";
}

std::vector<std::string> Parameters::keys() {
    read_file();
    std::set<std::string> names;
    for (const auto* values : {&file_, &program_})
        for (const auto& [key, of_key] : *values) names.insert(key);
    return {names.begin(), names.end()};
}

}  // namespace scr_on_tailrace
