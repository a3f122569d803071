// tailrace config: prints every setting with its default and its meaning, as a TOML file that can
// be loaded as it is.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "command.h"
#include "config/config.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

std::string environment_name(std::string_view key) {
    std::string name = "TAILRACE_";
    for (char c : key) name += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return name;
}

// Some settings have no default value: the machine is asked, or the user gives one. They are shown
// as comments.
bool has_value(const ConfigKey& key) {
    Config config;
    auto before = get_config(config, key.name);
    return !key.default_value.empty() && before.ok() &&
           set_config(config, key.name, key.default_value).ok() && *get_config(config, key.name) == *before;
}

Exit run(bool json) {
    if (json) {
        nlohmann::ordered_json keys = nlohmann::ordered_json::array();
        for (const ConfigKey& key : config_keys())
            keys.push_back({{"name", key.name},
                            {"type", key.type},
                            {"default", key.default_value},
                            {"environment", environment_name(key.name)},
                            {"help", key.help}});
        print_json({{"keys", std::move(keys)}});
        return exit_ok;
    }
    print(
        "# Settings of tailrace. Later ones win: defaults, this file (TAILRACE_CONFIG names it),\n"
        "# environment variables TAILRACE_<KEY>, options set in the program.\n");
    for (const ConfigKey& key : config_keys()) {
        print(fmt::format("\n# {}\n# {}\n", key.help, key.type));
        print(
            fmt::format("{}{} = {}\n", has_value(key) ? "" : "# ", key.name, toml_value(key.default_value)));
    }
    return exit_ok;
}

}  // namespace

Command add_config(CLI::App& program) {
    auto json = std::make_shared<bool>(false);
    CLI::App* command = program.add_subcommand("config", "Print every setting as a commented TOML file");
    command->add_flag("--json", *json, "Print one JSON document");
    command->footer("  tailrace config > tailrace.toml\n  TAILRACE_CONFIG=tailrace.toml mpiexec ./program");
    return [json](Storage&) { return run(*json); };
}

}  // namespace tailrace::internal::tool
