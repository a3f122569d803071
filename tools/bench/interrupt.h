// Turns Ctrl-C (and SIGTERM, and the loss of the terminal) into a flag, so that the benchmark can
// stop at a good place and clean up. A second one ends the program at once.
#pragma once

#include <array>
#include <atomic>

namespace tailrace::internal::tool {

class Interrupt {
  public:
    Interrupt();   // catches signals from here on
    ~Interrupt();  // restores the former handlers
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    const std::atomic<bool>& flag() const;

  private:
    using Handler = void (*)(int);
    std::array<Handler, 3> before_ = {};
    Handler before_pipe_ = nullptr;
};

}  // namespace tailrace::internal::tool
