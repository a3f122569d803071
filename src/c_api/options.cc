#include <cstdlib>

#include "c_api/objects.h"

using namespace tailrace::internal;

namespace tailrace::internal {

Result<Config> settings_of(const tailrace_options* handle, int rank_count) {
    std::shared_ptr<tailrace_options> options;
    if (handle != nullptr) {
        TAILRACE_ASSIGN(options, alive(handle, "options"));
    } else {
        options = std::make_shared<tailrace_options>();
    }
    Config config = options->from_files;
    const char* file = std::getenv("TAILRACE_CONFIG");
    if (!options->has_file && file != nullptr && *file != '\0')
        TAILRACE_TRY(load_config_file(config, file).with_context("TAILRACE_CONFIG"));
    TAILRACE_TRY(load_config_environment(config));
    for (const auto& [key, value] : options->from_code) TAILRACE_TRY(set_config(config, key, value));
    TAILRACE_TRY(complete_config(config, rank_count));
    return config;
}

}  // namespace tailrace::internal

tailrace_options* tailrace_options_new(void) {
    return call_for<tailrace_options*>(nullptr, [] {
        return HandleTable<tailrace_options>::instance().add(std::make_shared<tailrace_options>());
    });
}

void tailrace_options_free(tailrace_options* options) {
    call_for(0, [&] {
        HandleTable<tailrace_options>::instance().take(options);
        return 0;
    });
}

tailrace_code tailrace_options_load(tailrace_options* handle, const char* toml_path) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto options, alive(handle, "options"));
        TAILRACE_TRY(not_null(toml_path, "toml_path"));
        TAILRACE_TRY(load_config_file(options->from_files, toml_path));
        options->has_file = true;
        return {};
    });
}

tailrace_code tailrace_options_set(tailrace_options* handle, const char* key, const char* value) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto options, alive(handle, "options"));
        TAILRACE_TRY(not_null(key, "key"));
        TAILRACE_TRY(not_null(value, "value"));
        Config scratch;  // refuses a bad value here, where the program can tell which call it was
        TAILRACE_TRY(set_config(scratch, key, value));
        options->from_code.emplace_back(key, value);
        return {};
    });
}
