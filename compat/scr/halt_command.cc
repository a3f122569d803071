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
    "usage: scr_halt [CONDITION...] [PREFIX...]\n"
    "       scr_halt --list | --remove | --unset-CONDITION... [PREFIX...]\n"
    "\n"
    "Asks the job of each PREFIX, by default of the working directory, to save once more and stop. The\n"
    "program learns of it by SCR_Should_exit or SCR_Need_checkpoint, about a second later. It stops when "
    "one\n"
    "of the conditions holds. Conditions add up with those of earlier calls; the job that stops takes them\n"
    "away.\n"
    "\n"
    "  -c, --checkpoints N    After this many checkpoints from now on (without a condition: 1)\n"
    "  -a, --after TIME       At this time\n"
    "  -b, --before TIME      Early enough that the last checkpoint is written by this time\n"
    "  -s, --seconds N        How many seconds the last checkpoint gets, before the time of --before and\n"
    "                         before the end of the job, in place of SCR_HALT_SECONDS\n"
    "  -i, --immediate        At the next steps. No run is killed\n"
    "  -l, --list             Say what was asked for, and change nothing\n"
    "  -r, --remove           Take all conditions back\n"
    "      --unset-checkpoints, --unset-after, --unset-before, --unset-seconds\n"
    "                         Take this condition back; --unset-reason does it with --immediate\n"
    "  -v, --verbose          Has no effect: everything is said anyway\n"
    "  -h, --help             Print this\n"
    "\n"
    "TIME is 2026-11-24T18:00:00 or 18:00, in the local zone, or seconds since 1970.\n"
    "The exit status is 0, 1 or more if an order could not be given, and 2 for wrong usage.\n"
    "\n"
    "  scr_halt                                     after the next checkpoint\n"
    "  scr_halt --before 18:00 --seconds 600        at 17:50\n"
    "  scr_halt --checkpoints 10 /scratch/run7      after ten more checkpoints\n";

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

enum class What { order, list, remove };

struct Request {
    What what = What::order;
    std::vector<std::string> conditions;  // arguments of tailrace halt

    void add(std::vector<std::string> more) { conditions.insert(conditions.end(), more.begin(), more.end()); }
};

std::vector<std::string> arguments_of(const Request& request) {
    switch (request.what) {
        case What::list:
            return {};
        case What::remove:
            return {"--cancel"};
        case What::order:
            break;
    }
    std::vector<std::string> all = {"--add"};
    const std::vector<std::string> next = {"--after", "1"};
    const auto& conditions = request.conditions.empty() ? next : request.conditions;
    all.insert(all.end(), conditions.begin(), conditions.end());
    return all;
}

// Options without a short form of their own.
enum : int { unset_checkpoints = 256, unset_before, unset_after, unset_seconds, unset_reason };

constexpr option options[] = {{"immediate", no_argument, nullptr, 'i'},
                              {"checkpoints", required_argument, nullptr, 'c'},
                              {"after", required_argument, nullptr, 'a'},
                              {"before", required_argument, nullptr, 'b'},
                              {"seconds", required_argument, nullptr, 's'},
                              {"list", no_argument, nullptr, 'l'},
                              {"remove", no_argument, nullptr, 'r'},
                              {"unset-checkpoints", no_argument, nullptr, unset_checkpoints},
                              {"unset-before", no_argument, nullptr, unset_before},
                              {"unset-after", no_argument, nullptr, unset_after},
                              {"unset-seconds", no_argument, nullptr, unset_seconds},
                              {"unset-reason", no_argument, nullptr, unset_reason},
                              {"all", no_argument, nullptr, 'z'},
                              {"user", required_argument, nullptr, 'u'},
                              {"every", no_argument, nullptr, 'e'},
                              {"verbose", no_argument, nullptr, 'v'},
                              {"help", no_argument, nullptr, 'h'},
                              {nullptr, 0, nullptr, 0}};

// Whether the option is a condition or takes one back.
bool add_condition(Request& request, int chosen, const char* argument) {
    switch (chosen) {
        case 'i':
            request.add({"--now"});
            return true;
        case 'c':
            request.add({"--after", argument});
            return true;
        case 'a':
            request.add({"--at", argument});
            return true;
        case 'b':
            request.add({"--before", argument});
            return true;
        case 's':
            request.add({"--stop-before", std::string(argument) + "s"});
            return true;
        case unset_checkpoints:
            request.add({"--without", "after"});
            return true;
        case unset_before:
            request.add({"--without", "before"});
            return true;
        case unset_after:
            request.add({"--without", "at"});
            return true;
        case unset_seconds:
            request.add({"--without", "stop-before"});
            return true;
        case unset_reason:
            request.add({"--without", "now"});
            return true;
        default:
            return false;
    }
}

// The exit status, if the command ends here.
int parse(int argc, char** argv, Request& request, bool& ends) {
    ends = true;
    for (int chosen = 0; (chosen = getopt_long(argc, argv, "ic:a:b:s:lrzu:evh", options, nullptr)) != -1;) {
        if (add_condition(request, chosen, optarg)) continue;
        switch (chosen) {
            case 'l':
                if (request.what == What::order) request.what = What::list;
                break;
            case 'r':
                request.what = What::remove;
                break;
            case 'v':
                break;
            case 'z':
            case 'u':
                std::fputs(
                    "scr_halt: an order belongs to a prefix, not to a user; name the prefixes of the "
                    "jobs\n",
                    stderr);
                return 1;
            case 'e':
                std::fputs("scr_halt: an order lies in the prefix, which all nodes see; leave out --every\n",
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
    ends = false;
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Request request;
    bool ends = false;
    if (const int status = parse(argc, argv, request, ends); ends) return status;
    std::vector<std::string> prefixes(argv + optind, argv + argc);
    if (prefixes.empty()) prefixes = {"."};
    int worst = 0;
    for (const auto& prefix : prefixes) {
        std::vector<std::string> command = {tailrace_command(), "halt"};
        for (const auto& argument : arguments_of(request)) command.push_back(argument);
        command.push_back(prefix + "/.scr/tailrace");
        if (const int status = run(command); status != 0) worst = status;
    }
    return worst;
}
