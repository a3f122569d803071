// log.h - what the library says: a line for each failure on stderr, and with VELOC's key log_prefix
// everything, tailrace's own log included, in a file of this process's node and user. Any thread may call.
#pragma once

#include <string>
#include <string_view>

namespace veloc_on_tailrace {

// From now on, lines also go to DIRECTORY/veloc-client-HOST-UID.log, and tailrace's log goes there alone.
// After a failure, which is said, they stay where they were.
void log_to(const std::string& directory);

// A call that has failed, and why: stderr, and the file.
void complain(std::string_view call, std::string_view why);
// What is worth knowing: the file, or stderr if there is none.
void inform(std::string_view sentence);

}  // namespace veloc_on_tailrace
