// veloc-backend CONFIG [--disable-ec]: for scripts that start VELOC's backend before their program. There is
// none here: threads of the program do the work, or `tailrace agent`. So it checks the configuration, writes
// the log file that scripts look into, and returns. It may be called any number of times.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "config.h"
#include "log_file.h"

using namespace veloc_on_tailrace;

namespace {

constexpr const char* usage =
    "usage: veloc-backend CONFIG [--disable-ec]\n"
    "Checks the configuration and returns: tailrace needs no backend.\n";

// Why the lines are not in the file; empty if they are.
std::string append(const std::string& path, const std::string& lines) {
    std::string why;
    const int file = open_log(path, why);
    if (file < 0) return why;
    if (::write(file, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
        why = std::string("not all lines were written: ") + std::strerror(errno);
    if (::close(file) != 0 && why.empty()) why = std::strerror(errno);
    return why;
}

}  // namespace

int main(int argc, char** argv) {
    std::string config_file;
    int files = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument(argv[i]);
        if (argument == "--help") {
            std::fputs(usage, stdout);
            return 0;
        }
        if (argument == "--disable-ec") continue;
        config_file = argument;
        ++files;
    }
    if (files != 1 || config_file.starts_with("--")) {
        std::fputs(usage, stderr);
        return 2;
    }
    try {
        const auto configuration = settings_of(read_file(config_file), config_file, environment());
        std::string lines = "veloc-backend on tailrace: " + config_file +
                            " is in order; threads of the program, or `tailrace agent`, do the work\n";
        for (const auto& note : configuration.notes) lines += note + "\n";
        const auto& directory = configuration.log_file_directory;
        const auto path = log_path(directory.empty() ? "/dev/shm" : directory, "backend");  // as VELOC's
        const auto why = append(path, lines);
        if (why.empty()) return 0;
        std::fprintf(stderr, "veloc-backend: %s cannot be written: %s\n", path.c_str(), why.c_str());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "veloc-backend: %s\n", error.what());
    }
    return 1;
}
