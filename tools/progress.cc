#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

constexpr auto redraw_every = std::chrono::milliseconds(100);
constexpr auto line_every = std::chrono::seconds(30);
constexpr size_t bar_characters = 20;

}  // namespace

Progress::Progress(std::string label, uint64_t total_bytes)
    : label_(std::move(label)), total_bytes_(total_bytes), on_terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::add(uint64_t bytes) {
    done_bytes_ += bytes;
    const auto now = Clock::now();
    if (!on_terminal_) {
        if (now - last_drawn_ < line_every) return;
        last_drawn_ = now;
        std::fputs(fmt::format("{}: {}\n", label_, numbers()).c_str(), stderr);
        return;
    }
    if (drawn_ && now - last_drawn_ < redraw_every) return;
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

void Progress::finished(std::string_view step) const {
    if (!on_terminal_) std::fputs(fmt::format("{}: {}: {}\n", label_, step, numbers()).c_str(), stderr);
}

double Progress::share() const {
    if (total_bytes_ == 0) return 1;
    return std::min(1.0, static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
}

std::string Progress::numbers() const {
    const double rate = seconds() > 0 ? static_cast<double>(done_bytes_) / seconds() : 0;
    std::string left;
    if (rate > 0 && done_bytes_ < total_bytes_) {
        const auto seconds_left =
            static_cast<uint64_t>(static_cast<double>(total_bytes_ - done_bytes_) / rate + 0.5);
        left = fmt::format(", {} left", age_text(seconds_left));
    }
    return fmt::format("{:3.0f} % of {}, {:.0f} MiB/s{}", share() * 100, format_bytes(total_bytes_),
                       rate / static_cast<double>(MiB), left);
}

void Progress::draw() const {
    const auto filled = static_cast<size_t>(share() * bar_characters);
    const std::string line = fmt::format("\r{} [{}{}] {}\x1b[K", label_, std::string(filled, '#'),
                                         std::string(bar_characters - filled, '.'), numbers());
    std::fputs(line.c_str(), stderr);
}

}  // namespace tailrace::internal::tool
