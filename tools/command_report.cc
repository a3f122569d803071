// tailrace report: draws results and records as a page. The drawing is a Python program (tools/report), since
// that is where the plotting libraries are; this finds it and an interpreter, and becomes it. Its options are
// its own.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "command.h"

namespace tailrace::tool {

namespace {

// Installed beside the command, else in the source tree that it was built from.
std::string program_directory() {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto installed = (self.parent_path() / TAILRACE_REPORT_INSTALLED).lexically_normal();
    if (!error && std::filesystem::exists(installed / "__main__.py", error)) return installed.string();
    return TAILRACE_REPORT_SOURCE;
}

Exit run(const std::vector<std::string>& arguments) {
    const char* chosen = std::getenv("TAILRACE_PYTHON");
    const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
    // -B: leaves no bytecode behind where the program is installed.
    std::vector<std::string> words = {python, "-B", program_directory()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execvp(python.c_str(), pointers.data());
    return report(
        Status(Code::not_found,
               fmt::format("starting {}: {}; `tailrace report` is a Python program: install Python 3.10 or "
                           "newer with matplotlib, or set TAILRACE_PYTHON to an interpreter",
                           python, std::strerror(errno))));
}

}  // namespace

Command add_report(CLI::App& program) {
    CLI::App* command = program.add_subcommand(
        "report", "Draw results of bench and tune, and records of sessions, as an HTML page");
    command->set_help_flag();  // the Python program's help names its options
    command->prefix_command();
    return [command](Storage&) { return run(command->remaining()); };
}

}  // namespace tailrace::tool
