#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"
#include "text.h"

namespace tailrace::tool {

namespace {

constexpr auto redraw_every = std::chrono::milliseconds(100);
constexpr size_t bar_characters = 20;

}  // namespace

Progress::Progress(std::string label, uint64_t total_bytes)
    : label_(std::move(label)), total_bytes_(total_bytes), on_terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::add(uint64_t bytes) {
    done_bytes_ += bytes;
    const auto now = Clock::now();
    if (!on_terminal_ || (drawn_ && now - last_drawn_ < redraw_every)) return;
    last_drawn_ = now;
    drawn_ = true;
    draw();
}

void Progress::expect(uint64_t bytes) {
    total_bytes_ = done_bytes_ + bytes;
    if (drawn_) draw();
}

void Progress::clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
}

double Progress::seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::draw() const {
    const double share =
        total_bytes_ == 0
            ? 1
            : std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
    const double rate = seconds() > 0 ? static_cast<double>(done_bytes_) / seconds() : 0;
    const auto filled = static_cast<size_t>(share * bar_characters);
    std::string left;
    if (rate > 0 && done_bytes_ < total_bytes_) {
        const auto seconds_left =
            static_cast<uint64_t>(static_cast<double>(total_bytes_ - done_bytes_) / rate + 0.5);
        left = fmt::format(", {} left", age_text(seconds_left));
    }
    const std::string line =
        fmt::format("\r{} [{}{}] {:3.0f} % of {}, {:.0f} MiB/s{}\x1b[K", label_, std::string(filled, '#'),
                    std::string(bar_characters - filled, '.'), share * 100, format_bytes(total_bytes_),
                    rate / static_cast<double>(MiB), left);
    std::fputs(line.c_str(), stderr);
}

}  // namespace tailrace::tool
