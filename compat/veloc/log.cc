#include "log.h"

#include <tailrace.h>
#include <unistd.h>

#include <atomic>

#include "common/log.h"
#include "log_file.h"

const char* const on_tailrace::interface_name = "veloc";

namespace veloc_on_tailrace {

using on_tailrace::write_line;

namespace {

std::atomic<int> log_file{-1};  // never closed: threads of tailrace's may be about to write

void take_line(tailrace_log_level, const char* message, void*) {
    write_line(log_file, message);
}

}  // namespace

void log_to(const std::string& directory) {
    const auto path = log_path(directory, "client");
    std::string why;
    const int file = open_log(path, why);
    if (file < 0) {
        complain("log_prefix", path + " cannot be opened for writing: " + why);
        return;
    }
    log_file = file;
    tailrace_set_log(take_line, nullptr);
}

void complain(std::string_view call, std::string_view why) {
    const std::string sentence = std::string(call) + ": " + std::string(why);
    write_line(STDERR_FILENO, sentence);
    if (const int file = log_file; file >= 0) write_line(file, sentence);
}

void inform(std::string_view sentence) {
    const int file = log_file;
    write_line(file >= 0 ? file : STDERR_FILENO, sentence);
}

}  // namespace veloc_on_tailrace
