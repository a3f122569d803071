// Signals by their names, as settings write them: "TERM USR1". Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailrace::internal {

// The numbers of the signals in a list with blanks or commas between them, each once. A name may
// begin with SIG. Only signals by which systems ask a program to end are taken: TERM, INT, HUP, QUIT,
// USR1, USR2, XCPU. The others mean something else, or cannot be caught.
Result<std::vector<int>> parse_signals(std::string_view text);

// "TERM"; "signal 35" for those that parse_signals does not take.
std::string signal_text(int number);

}  // namespace tailrace::internal
