// The way from a TOML file into a Config. It ends in set_config(), as every way does.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/units.h"
#include "config/config.h"

namespace tailrace::internal {

namespace {

Result<std::string> read_text_file(const std::string& path) {
    const std::string attempted = fmt::format("reading the configuration file {}", path);
    // Open without waiting, so that neither a pipe that nobody writes nor a terminal can hold a job
    // up.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return errno_status(errno, attempted);
    struct stat info {};
    if (::fstat(file, &info) == 0 && S_ISFIFO(info.st_mode)) {
        ::close(file);
        return Status(Code::invalid_argument,
                      attempted +
                          ": it is a pipe, which gives its text only once, but every process of a job reads "
                          "the configuration: name a file");
    }
    std::string text;
    std::array<char, 16384> piece;
    for (;;) {
        const ssize_t got = ::read(file, piece.data(), piece.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const int error = errno;
            ::close(file);
            return errno_status(error, attempted);
        }
        if (got == 0) break;
        text.append(piece.data(), static_cast<size_t>(got));
        if (text.size() > MiB) {
            ::close(file);
            return Status(Code::invalid_argument, attempted + ": longer than 1 MiB, so it is something else");
        }
    }
    ::close(file);
    // Tables of dotted keys nest as deep as there are dots, and the parser destroys its tables
    // recursively.
    constexpr std::ptrdiff_t max_dots = 1000;
    if (std::count(text.begin(), text.end(), '.') > max_dots)
        return Status(Code::invalid_argument,
                      fmt::format("{}: more than {} dots, so it is something else", attempted, max_dots));
    return text;
}

// The value in the form that set_config takes, or what is wrong with its type.
Result<std::string> text_of(const ConfigKey& key, const toml::node& node) {
    const bool is_text_key = key.type == "text";
    if (const auto* text = node.as_string()) return text->get();
    if (!is_text_key) {
        if (const auto* number = node.as_integer()) return std::to_string(number->get());
        if (const auto* truth = node.as_boolean()) return std::string(truth->get() ? "on" : "off");
    }
    return Status(Code::invalid_argument,
                  is_text_key ? fmt::format("{}: text in quotes is expected", key.name)
                              : fmt::format("{}: a value of type {} is expected", key.name, key.type));
}

Status apply_toml(Config& config, const toml::table& table, const std::string& path) {
    const auto& keys = config_keys();
    for (const auto& [toml_name, node] : table) {
        const std::string_view name = toml_name.str();
        const std::string where = fmt::format("{}, line {}", path, toml_name.source().begin.line);
        const auto key = std::find_if(keys.begin(), keys.end(),
                                      [&](const ConfigKey& known) { return known.name == name; });
        if (key == keys.end())
            return set_config(config, name, "").with_context(where);  // says what is nearest
        Result<std::string> value = text_of(*key, node);
        if (!value.ok()) return value.status().with_context(where);
        TAILRACE_TRY(set_config(config, name, *value).with_context(where));
    }
    return {};
}

}  // namespace

Status load_config_file(Config& config, const std::string& path) {
    TAILRACE_ASSIGN(const std::string text, read_text_file(path));
    Config changed = config;  // a refused file changes nothing
    try {
        TAILRACE_TRY(apply_toml(changed, toml::parse(text, path), path));
    } catch (const toml::parse_error& error) {
        return Status(Code::invalid_argument,
                      fmt::format("{}, line {}: {}", path, error.source().begin.line, error.description()));
    }
    config = std::move(changed);
    return {};
}

}  // namespace tailrace::internal
