#include "config/local_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "storage/own_directories.h"

namespace tailrace::internal {

namespace {

bool is_usable_directory(const std::string& path) {
    std::error_code error;
    return std::filesystem::is_directory(path, error) && ::access(path.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

std::string default_local_dir() {
    constexpr int max_names = 32;
    std::string base = "/dev/shm";
    if (!is_usable_directory(base)) {
        const char* temporary = std::getenv("TMPDIR");
        base = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
    }
    const std::string usual = fmt::format("{}/tailrace-{}", base, ::getuid());
    std::string free, refused;
    for (int i = 0; i < max_names; ++i) {
        const std::string path = i == 0 ? usual : fmt::format("{}.{}", usual, i);
        struct stat info {};
        if (::lstat(path.c_str(), &info) != 0) {
            if (errno == ENOENT && free.empty()) free = path;
            continue;
        }
        std::string why = why_no_own_directory(info, ::geteuid());
        if (why.empty()) why = why_no_common_directory(info);
        if (why.empty()) {
            free = path;
            break;
        }
        if (refused.empty()) refused = fmt::format("{} is not used for the node-local tier: {}", path, why);
    }
    if (!refused.empty() && !free.empty()) log(LogLevel::warning, "{}; {} is used instead", refused, free);
    return free.empty() ? usual : free;
}

}  // namespace tailrace::internal
