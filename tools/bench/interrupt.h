// Ctrl-C (and SIGTERM) as a flag, so that whoever works can stop at a good place and clean up. A second one
// ends the program at once.
#pragma once

#include <atomic>

namespace tailrace::tool {

class Interrupt {
  public:
    Interrupt();   // from here on
    ~Interrupt();  // what was before
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    const std::atomic<bool>& flag() const;
};

}  // namespace tailrace::tool
