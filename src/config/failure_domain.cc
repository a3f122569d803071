#include "config/failure_domain.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace tailrace::internal {

namespace {

constexpr std::string_view file_prefix = "file:";
constexpr std::string_view command_prefix = "command:";
constexpr size_t max_domain_bytes = 256;

// The status by which a shell, or timeout(1), says that a command was killed.
constexpr int killed_by(int signal) {
    return 128 + signal;
}

// All ranks wait for the file, so it has to be one that ends.
Result<std::string> domain_in_file(const std::string& path, const std::string& host) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
        return Status(Code::invalid_argument,
                      fmt::format("{} should name this machine's failure domain, but is not a file", path));
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

// In the quotes of a shell.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::string how_it_ended(int status, std::chrono::seconds longest) {
    if (status == killed_by(SIGKILL))
        return fmt::format("was killed; it may take {} s at most", longest.count());
    return fmt::format("ended with status {}", status);
}

// All ranks wait for the command, so timeout(1) ends it and all that it has started.
Result<std::string> domain_by_command(const std::string& command, std::chrono::seconds longest) {
    const auto limited = fmt::format("exec timeout -s KILL {} sh -c {}", longest.count(), quoted(command));
    const auto what = fmt::format("\"{}\", run for this machine's failure domain,", command);
    FILE* const output = ::popen(limited.c_str(), "re");
    if (output == nullptr) return errno_status(errno, what);
    std::string text(max_domain_bytes, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), output));
    const int ended = ::pclose(output);
    const int status = WIFSIGNALED(ended) ? killed_by(WTERMSIG(ended)) : WEXITSTATUS(ended);
    // A command that prints more than was read ends by SIGPIPE, which is no reason to disbelieve it.
    const bool cut = text.size() == max_domain_bytes && status == killed_by(SIGPIPE);
    if (status != 0 && !cut)
        return Status(Code::failed_state, fmt::format("{} {}", what, how_it_ended(status, longest)));
    text = text.substr(0, text.find('\n'));
    if (text.empty()) return Status(Code::failed_state, what + " printed nothing");
    return text;
}

}  // namespace

Status check_failure_domain(std::string_view setting) {
    for (const auto prefix : {file_prefix, command_prefix})
        if (setting.starts_with(prefix) && setting.size() > prefix.size()) return {};
    if (setting.empty()) return {};
    return Status(Code::invalid_argument, "file:PATH, command:CMD or nothing is expected");
}

Result<std::string> find_failure_domain(const std::string& setting, const std::string& host,
                                        std::chrono::seconds longest) {
    TAILRACE_TRY(check_failure_domain(setting));
    if (setting.starts_with(file_prefix)) return domain_in_file(setting.substr(file_prefix.size()), host);
    if (setting.starts_with(command_prefix))
        return domain_by_command(setting.substr(command_prefix.size()), longest);
    return host;
}

}  // namespace tailrace::internal
