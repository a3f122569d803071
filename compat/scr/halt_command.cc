// scr_halt: asks a job to stop, by `tailrace halt` on the session of its prefix. It looks for `tailrace`
// beside itself, and then in PATH.
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr const char* usage =
    "usage: scr_halt [--immediate | --checkpoints N | --after TIME | --list | --remove] [PREFIX...]\n"
    "\n"
    "  -c, --checkpoints N  After this many checkpoints from now on (the default: 1)\n"
    "  -i, --immediate      At the next steps\n"
    "  -a, --after TIME     At this time: 18:00, 2026-11-24T18:00, or seconds since 1970\n"
    "  -l, --list           Say what was asked for\n"
    "  -r, --remove         Take the order back; so does --unset-checkpoints or another --unset\n"
    "\n"
    "Without PREFIX the working directory is meant.\n";

std::string tailrace_command() {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto beside = self.parent_path() / "tailrace";
    return !error && ::access(beside.c_str(), X_OK) == 0 ? beside.string() : "tailrace";
}

int run(std::vector<std::string> command) {
    std::vector<char*> arguments;
    for (auto& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        ::execvp(arguments[0], arguments.data());
        std::fprintf(stderr, "scr_halt: %s cannot be started: %s\n", arguments[0], std::strerror(errno));
        ::_exit(127);
    }
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 1;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const option options[] = {{"immediate", no_argument, nullptr, 'i'},
                              {"checkpoints", required_argument, nullptr, 'c'},
                              {"after", required_argument, nullptr, 'a'},
                              {"before", required_argument, nullptr, 'b'},
                              {"seconds", required_argument, nullptr, 's'},
                              {"list", no_argument, nullptr, 'l'},
                              {"remove", no_argument, nullptr, 'r'},
                              {"unset-checkpoints", no_argument, nullptr, 'r'},
                              {"unset-before", no_argument, nullptr, 'r'},
                              {"unset-after", no_argument, nullptr, 'r'},
                              {"unset-seconds", no_argument, nullptr, 'r'},
                              {"unset-reason", no_argument, nullptr, 'r'},
                              {"verbose", no_argument, nullptr, 'v'},
                              {"help", no_argument, nullptr, 'h'},
                              {nullptr, 0, nullptr, 0}};
    std::vector<std::string> order = {"--after", "1"};
    for (int chosen = 0; (chosen = getopt_long(argc, argv, "ic:a:b:s:lrvh", options, nullptr)) != -1;) {
        switch (chosen) {
            case 'i':
                order = {"--now"};
                break;
            case 'c':
                order = {"--after", optarg};
                break;
            case 'a':
                order = {"--at", optarg};
                break;
            case 'l':
                order = {};
                break;
            case 'r':
                order = {"--cancel"};
                break;
            case 'v':
                break;
            case 'b':
            case 's':
                std::fputs(
                    "scr_halt: to stop before a time, set TAILRACE_JOB_END and SCR_HALT_SECONDS when the job "
                    "starts\n",
                    stderr);
                return 1;
            case 'h':
                std::fputs(usage, stdout);
                return 0;
            default:
                std::fputs(usage, stderr);
                return 2;
        }
    }
    std::vector<std::string> prefixes(argv + optind, argv + argc);
    if (prefixes.empty()) prefixes = {"."};
    int worst = 0;
    for (const auto& prefix : prefixes) {
        std::vector<std::string> command = {tailrace_command(), "halt"};
        command.insert(command.end(), order.begin(), order.end());
        command.push_back(prefix + "/.scr/tailrace");
        if (const int status = run(command); status != 0) worst = status;
    }
    return worst;
}
