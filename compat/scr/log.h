// log.h - what the library says: a line on stderr for each failure, and for what is worth knowing. Any thread
// may call.
#pragma once

#include <string_view>

namespace scr_on_tailrace {

// The rank that lines of this process name; -1: none.
void log_as(int rank);
// A call that has failed, and why.
void complain(std::string_view call, std::string_view why);
void inform(std::string_view sentence);

}  // namespace scr_on_tailrace
