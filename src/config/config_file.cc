// The way from a TOML file into a Config. It ends in set_config(), as every way does.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "config/config.h"
#include "config/text_file.h"

namespace tailrace::internal {

namespace {

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
