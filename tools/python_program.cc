#include "python_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tailrace::internal::tool {

namespace {

// The directory is installed beside the command, or lies in the source tree that the command was
// built from.
std::string directory_of(const std::string& name) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    const auto installed = (self.parent_path() / TAILRACE_PYTHON_INSTALLED / name).lexically_normal();
    if (!error && std::filesystem::exists(installed / "__main__.py", error)) return installed.string();
    return std::string(TAILRACE_PYTHON_SOURCE) + "/" + name;
}

}  // namespace

const std::vector<PythonProgram>& python_programs() {
    static const std::vector<PythonProgram> programs = {
        // Python, because libraries of Python define these formats.
        {"convert", "Convert checkpoints: torch.save, DCP, safetensors, one file per rank, tailrace, VELOC",
         "Python 3.10 or newer with the tailrace package and PyTorch"},
        // Python, because reading strace's lines is work on text, and the benchmarks use the same
        // reader.
        {"profile", "Run a program and show its opens, reads, writes, seeks and syncs",
         "Python 3.10 or newer"},
        // Python, because it starts and watches other programs, and users may want to read what it
        // does.
        {"run", "Run a program, and when it dies, start it again on the nodes that are left",
         "Python 3.10 or newer", true, true},
        // Python, because the plotting libraries are Python's.
        {"report", "Draw results of bench, tune and profile, and records of sessions, as an HTML page",
         "Python 3.10 or newer with matplotlib"},
    };
    return programs;
}

Exit become(const PythonProgram& program, const std::vector<std::string>& arguments) {
    const char* chosen = std::getenv("TAILRACE_PYTHON");
    const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
    // -B keeps Python from writing bytecode where the program is installed.
    std::vector<std::string> words = {python, "-B", directory_of(program.name)};
    if (program.calls_tailrace) {
        std::error_code error;
        words.insert(words.end(), {"--tailrace", std::filesystem::read_symlink("/proc/self/exe", error)});
    }
    if (program.takes_interrupts) {
        sigset_t interrupt;
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        (void)pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    }
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execvp(python.c_str(), pointers.data());
    return report(
        Status(Code::not_found, fmt::format("starting {}: {}; `tailrace {}` is a Python program: "
                                            "install {}, or set TAILRACE_PYTHON to an interpreter",
                                            python, std::strerror(errno), program.name, program.needs)));
}

}  // namespace tailrace::internal::tool
