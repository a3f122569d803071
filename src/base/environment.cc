#include "base/environment.h"

#include <unistd.h>

extern char** environ;

namespace tailrace::internal {

std::vector<EnvironmentVariable> environment_variables(std::string_view prefix) {
    std::vector<EnvironmentVariable> found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const size_t equals = text.find('=');
        if (equals != std::string_view::npos && text.starts_with(prefix))
            found.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
    return found;
}

}  // namespace tailrace::internal
