// Space: where a run has its files: a directory of its own in DIR, and one in the node-local directory of
// every machine. Both go when the run ends, also by a failure, Ctrl-C or SIGTERM. Each holds a locked file
// for as long as the run lives: what a killed run has left, the next one finds unlocked and removes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sync.h"

namespace mpi_bench {

// Calls `clean` on SIGINT, SIGTERM or SIGHUP, on a thread of its own, and then lets the signal end the
// program. One at a time.
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
    // Collective, as all members but the destructor are. `name` is what no other run has at the same time.
    Space(const std::string& shared_parent, const std::string& local_parent, const std::string& name);
    // Removes what close() has not: ranks that failed have nobody to wait for.
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    // An empty directory for a strategy's files; the one before goes. Its name is new: nodes of a network
    // file system remember for a while what is no longer there.
    std::string new_place();
    // Where the node-local tier of such a space goes.
    static std::string tier(const std::string& local_parent, const std::string& name);
    void remove_parts();  // that tier
    // Refuses (std::invalid_argument on all ranks) what does not fit: bytes in all in the shared directory,
    // and of this rank in the node-local one. Where both are on one file system, it has to hold both.
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
