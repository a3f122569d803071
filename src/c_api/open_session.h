// The entry for transports that live in libraries of their own (libtailrace_mpi). It does
// everything that tailrace_open does, on a given transport. It is a private interface between
// libraries built together, not for programs.
#pragma once

#include <memory>
#include <string>

#include "tailrace.h"
#include "transport/transport.h"

namespace tailrace::internal {

TAILRACE_API tailrace_code open_session(const tailrace_options* options, std::shared_ptr<Transport> transport,
                                        tailrace_session** session);

// A reference to a session that does not keep it alive. Empty if it is not open.
TAILRACE_API std::weak_ptr<tailrace_session> watch_session(const tailrace_session* session);
// Closes a session that the program has left open, and says so in the log. `by` is the call that
// ends what the session needs. Does nothing if it is closed already.
TAILRACE_API void close_if_open(const std::weak_ptr<tailrace_session>& session, const char* by) noexcept;

// Logs a line, for libraries that do not see the log itself.
TAILRACE_API void log_warning(const std::string& sentence);

// Records a failure for tailrace_last_error() of this thread and returns its code. Throws nothing.
TAILRACE_API tailrace_code set_last_error(const Status& status);

}  // namespace tailrace::internal
