// Space: the places of a run's files. A run has a directory of its own in DIR, and one in the
// node-local directory of every machine. Both are removed when the run ends, also after a failure,
// Ctrl-C or SIGTERM. Each holds a file that is locked as long as the run lives. So the next run
// finds the lock of a killed run released, and removes what it has left.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sync.h"

namespace mpi_bench {

// On SIGINT, SIGTERM or SIGHUP, calls `clean` on a thread of its own, and then lets the signal end
// the program. There can be only one at a time.
class SignalWatch {
  public:
    explicit SignalWatch(std::function<void()> clean);
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;
    SignalWatch& operator=(const SignalWatch&) = delete;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

class Space {
  public:
    // Collective, as all members except the destructor are. No other run may have `name` at the
    // same time.
    Space(const std::string& shared_parent, const std::string& local_parent, const std::string& name);
    // Removes what close() has not. Ranks that failed have nobody to wait for.
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    // An empty directory for a strategy's files. The previous one is removed. Its name is new,
    // because nodes of a network file system remember removed files for a while.
    std::string new_place();
    // The place of the node-local tier of such a space.
    static std::string tier(const std::string& local_parent, const std::string& name);
    void remove_parts();  // removes that tier
    // Throws std::invalid_argument on all ranks if something does not fit: `shared_bytes` in all in the
    // shared directory, `local_bytes` of this rank in the node-local one. If both are on one file system, it
    // must have room for both.
    void check_room(uint64_t shared_bytes, uint64_t local_bytes) const;
    void close();

  private:
    const std::string shared_, local_, tier_;
    const Node node_;
    int rank_ = 0;
    uint64_t places_ = 0;
    int shared_lock_ = -1, local_lock_ = -1;
    bool closed_ = false;
    std::unique_ptr<SignalWatch> watch_;
};

}  // namespace mpi_bench
