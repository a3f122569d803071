// log.h - what the layers say: a line on stderr for each failure, and for what is worth knowing. Any thread
// may call.
#pragma once

#include <string_view>

namespace on_tailrace {

// Whose interface this is, such as "scr", for the lines. Each library defines it.
extern const char* const interface_name;

// The rank that lines of this process name; -1: none.
void log_as(int rank);
void write_line(int file, std::string_view sentence);

// A call that has failed, and why.
void complain(std::string_view call, std::string_view why);
void inform(std::string_view sentence);

}  // namespace on_tailrace
