#include "tier_settings.h"

#include <cstdlib>

namespace tailrace::internal::tool {

Result<Config> tier_settings(const std::string& local_dir) {
    Config config;
    const char* file = std::getenv("TAILRACE_CONFIG");
    if (file != nullptr && *file != '\0') TAILRACE_TRY(load_config_file(config, file));
    TAILRACE_TRY(load_config_environment(config));
    if (!local_dir.empty()) config.local_dir = local_dir;
    if (config.shared_dir.empty()) config.shared_dir.assign(1, '/');
    constexpr int any_number_of_ranks = 1 << 20;
    TAILRACE_TRY(complete_config(config, any_number_of_ranks));
    return config;
}

}  // namespace tailrace::internal::tool
