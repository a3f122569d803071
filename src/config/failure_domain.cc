#include "config/failure_domain.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

namespace tailrace::internal {

namespace {

constexpr std::string_view file_prefix = "file:";
constexpr std::string_view command_prefix = "command:";
constexpr size_t max_domain_bytes = 256;

Result<std::string> domain_in_file(const std::string& path, const std::string& host) {
    std::ifstream file(path);
    if (!file) return errno_status(errno, fmt::format("opening {} for this machine's failure domain", path));
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name, domain;
        if (!(words >> name >> domain) || name.starts_with('#')) continue;
        if (name == host) return domain.substr(0, max_domain_bytes);
    }
    return Status(Code::not_found, fmt::format("{} has no line for {}", path, host));
}

Result<std::string> domain_by_command(const std::string& command) {
    FILE* const output = ::popen(command.c_str(), "re");
    if (output == nullptr)
        return errno_status(errno, fmt::format("running \"{}\" for this machine's failure domain", command));
    std::string text(max_domain_bytes, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), output));
    const int status = ::pclose(output);
    text = text.substr(0, text.find('\n'));
    // A command that prints more than was read ends by SIGPIPE, which is no reason to disbelieve it.
    const bool failed = status < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 0);
    if (failed || text.empty())
        return Status(Code::failed_state,
                      fmt::format("\"{}\", run for this machine's failure domain, {}", command,
                                  failed ? fmt::format("ended with status {}", WEXITSTATUS(status))
                                         : std::string("printed nothing")));
    return text;
}

}  // namespace

Status check_failure_domain(std::string_view setting) {
    for (const auto prefix : {file_prefix, command_prefix})
        if (setting.starts_with(prefix) && setting.size() > prefix.size()) return {};
    if (setting.empty()) return {};
    return Status(Code::invalid_argument, "file:PATH, command:CMD or nothing is expected");
}

Result<std::string> find_failure_domain(const std::string& setting, const std::string& host) {
    TAILRACE_TRY(check_failure_domain(setting));
    if (setting.starts_with(file_prefix)) return domain_in_file(setting.substr(file_prefix.size()), host);
    if (setting.starts_with(command_prefix)) return domain_by_command(setting.substr(command_prefix.size()));
    return host;
}

}  // namespace tailrace::internal
