#include "log.h"

#include <unistd.h>

#include <atomic>
#include <string>

namespace scr_on_tailrace {

namespace {

std::atomic<int> own_rank{-1};

}  // namespace

void log_as(int rank) {
    own_rank = rank;
}

void complain(std::string_view call, std::string_view why) {
    inform(std::string(call) + ": " + std::string(why));
}

void inform(std::string_view sentence) {
    std::string line = "scr on tailrace";
    if (const int rank = own_rank; rank >= 0) line += ", rank " + std::to_string(rank);
    line += ": ";
    line += sentence;
    line += '\n';
    // One write, so that lines of several processes do not mix. Where it fails there is nobody to tell.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace scr_on_tailrace
