// The in-process transport: `hosts.size()` ranks that are threads (or just objects) of one process.
// The tests use it to run a whole cluster in memory, and make_single_transport() uses it with one
// rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tailrace::internal {

// Transport i belongs to rank i on machine hosts[i]. Each may outlive the others. `concurrent` is
// what the ranks report. If it is false, post/poll/start_* fail, which shows that nobody uses them.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(const std::vector<std::string>& hosts,
                                                                   bool concurrent = true);

}  // namespace tailrace::internal
