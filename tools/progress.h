// A progress line on a terminal's stderr: bar, bytes, MiB/s, time left. On anything else it stays silent.
//
// Thread-compatible. The line is gone when the object is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tailrace::tool {

class Progress {
  public:
    Progress(std::string label, uint64_t total_bytes);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void add(uint64_t bytes);
    // From now on so many bytes are to come, whatever was said before.
    void expect(uint64_t bytes);
    // Takes the line away, so that something else can be printed; the next add() brings it back.
    void clear();

    double seconds() const;

  private:
    using Clock = std::chrono::steady_clock;
    void draw() const;

    const std::string label_;
    uint64_t total_bytes_;
    const bool on_terminal_;
    const Clock::time_point start_ = Clock::now();
    Clock::time_point last_drawn_;
    uint64_t done_bytes_ = 0;
    bool drawn_ = false;
};

}  // namespace tailrace::tool
