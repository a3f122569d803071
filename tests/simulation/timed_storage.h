// TimedStorage: a storage whose operations take virtual time, and are points where another task may go on.
//
// A server does one operation after the other: each takes `operation`, and its bytes at `bytes_per_second`.
// Several storages may share a server.
#pragma once

#include <functional>
#include <memory>

#include "simulation/virtual_executor.h"
#include "storage/storage.h"

namespace tailrace::internal::testing_support {

struct ServerCosts {
    std::chrono::nanoseconds operation{0}, jitter{0};
    double bytes_per_second = 0;  // 0: no limit
};

class Server {
  public:
    Server(VirtualExecutor& executor, ServerCosts costs)
        : executor_(executor), costs_(costs), dice_(executor.random_number()) {}
    // Returns when the operation is done.
    void serve(std::string_view operation, uint64_t bytes);
    // What the server was busy for.
    std::chrono::nanoseconds busy() const { return busy_; }
    // From now on files are said to be synced, and are not. To see whether a test finds it.
    void lose_syncs() { loses_syncs_ = true; }
    bool loses_syncs() const { return loses_syncs_; }
    // From now on one write of a hundred is said to be done, and is not.
    void lose_writes() { loses_writes_ = true; }
    bool loses_this_write() { return loses_writes_ && dice_.chance(0.01); }

  private:
    VirtualExecutor& executor_;
    const ServerCosts costs_;
    Dice dice_;
    SteadyClock::time_point free_from_{};
    std::chrono::nanoseconds busy_{0};
    bool loses_syncs_ = false, loses_writes_ = false;
};

// `renamed` is called after each rename that went well, by the task that did it.
using Renamed = std::function<void(const std::string& to)>;
std::shared_ptr<Storage> timed(std::shared_ptr<Storage> inner, std::shared_ptr<Server> server,
                               Renamed renamed = {});

}  // namespace tailrace::internal::testing_support
