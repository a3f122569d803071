// log_file.h - the files into which the library and veloc-backend write what they say.
#pragma once

#include <string>

namespace veloc_on_tailrace {

// DIRECTORY/veloc-KIND-HOST-UID.log, as VELOC calls it.
std::string log_path(const std::string& directory, const std::string& kind);
// Opens it to append lines, and makes it if it is not there. The directory may be everybody's. So only a
// regular file is taken that is this user's own and has no second name, and nothing waits. After a failure
// the result is -1, and `why` says what is wrong.
int open_log(const std::string& path, std::string& why);

}  // namespace veloc_on_tailrace
