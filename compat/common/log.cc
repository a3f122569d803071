#include "log.h"

#include <unistd.h>

#include <atomic>
#include <string>

namespace on_tailrace {

namespace {

std::atomic<int> own_rank{-1};

}  // namespace

void log_as(int rank) {
    own_rank = rank;
}

void write_line(int file, std::string_view sentence) {
    std::string line = std::string(interface_name) + " on tailrace";
    if (const int rank = own_rank; rank >= 0) line += ", rank " + std::to_string(rank);
    line += ": ";
    line += sentence;
    line += '\n';
    // One write, so that lines of several processes do not mix. Where it fails there is nobody to tell.
    [[maybe_unused]] const auto written = ::write(file, line.data(), line.size());
}

void complain(std::string_view call, std::string_view why) {
    inform(std::string(call) + ": " + std::string(why));
}

void inform(std::string_view sentence) {
    write_line(STDERR_FILENO, sentence);
}

}  // namespace on_tailrace
