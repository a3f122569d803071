// A progress line on a terminal's stderr: bar, bytes, MiB/s, time left. If stderr is not a
// terminal, a line is printed every 30 seconds and for each step that finished() names, so that a
// reader of a job's log sees that it goes on.
//
// Thread-compatible. The destructor removes the line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tailrace::internal::tool {

class Progress {
  public:
    Progress(std::string label, uint64_t total_bytes);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void add(uint64_t bytes);
    // Sets the number of bytes to come from now on, whatever was set before.
    void expect(uint64_t bytes);
    // Tells that a step has ended. If stderr is not a terminal, prints a line with the time left.
    void finished(std::string_view step) const;
    // Removes the line, so that something else can be printed. The next add() shows it again.
    void clear();

    double seconds() const;

  private:
    using Clock = std::chrono::steady_clock;
    void draw() const;
    double share() const;         // of the bytes
    std::string numbers() const;  // "40 % of 1.0 GiB, 512 MiB/s, 3 s left"

    const std::string label_;
    uint64_t total_bytes_;
    const bool on_terminal_;
    const Clock::time_point start_ = Clock::now();
    Clock::time_point last_drawn_ = start_;
    uint64_t done_bytes_ = 0;
    bool drawn_ = false;
};

}  // namespace tailrace::internal::tool
