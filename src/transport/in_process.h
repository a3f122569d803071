// The in-process transport: `hosts.size()` ranks that are threads (or just objects) of one process. Used by
// the tests to run a whole cluster in memory, and by make_single_transport() with one rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tailrace::internal {

// Transport i belongs to rank i on machine hosts[i]. Every one may outlive the others. `concurrent` as the
// ranks shall report it; with false, post/poll/start_* fail, which shows that nobody uses them.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(const std::vector<std::string>& hosts,
                                                                   bool concurrent = true);

}  // namespace tailrace::internal
