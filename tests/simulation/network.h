// Network: transports for a simulated job. Messages and transfers take virtual time, and can be lost together
// with a rank.
//
// Two ranks' messages keep their order; those of different ranks overtake each other. A message takes
// `latency`, and up to `jitter` more. Transfers that end at one host share its link one after the other. A
// rank that is lost neither sends nor receives any more, and its own calls fail; nobody is told, as in a job
// whose launcher has not noticed yet. end() is the launcher's: from then on every call fails.
//
// Under a VirtualExecutor only, which runs one rank at a time: nothing here is locked.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulation/credit_watch.h"
#include "simulation/virtual_executor.h"
#include "transport/transport.h"

namespace tailrace::internal::testing_support {

struct NetworkCosts {
    std::chrono::nanoseconds latency{0}, jitter{0};
    double bytes_per_second = 0;  // of each host's link, in each direction; 0: no limit
};

class Network {
  public:
    // `watch`, if given, sees all messages and receives. It outlives the transports.
    Network(VirtualExecutor& executor, std::vector<std::string> hosts, NetworkCosts costs, bool concurrent,
            CreditWatch* watch = nullptr);
    ~Network();
    // One for each rank. They keep what they need of the network alive.
    std::vector<std::unique_ptr<Transport>> transports();
    // `tell` hears of ranks that meet in different collective calls, which then fail. In a real job they
    // would wait for ever, or take each other's bytes.
    void on_differing_calls(std::function<void(const std::string&)> tell);
    void lose(int rank);
    void end();
    // A fault to be found: from now on each message that gives a credit comes twice.
    void double_credits();

  private:
    class Wires;
    class WireTransfer;
    class WireTransport;
    const std::shared_ptr<Wires> wires_;
};

}  // namespace tailrace::internal::testing_support
