// The subcommands that are Python programs: which, where they lie, and how they are started.
//
// Each lies in a directory of its own, tools/NAME in the source tree and share/tailrace/NAME installed, and
// takes what follows its name on the command line as it stands: its options and its --help are its own.
#pragma once

#include <string>
#include <vector>

#include "command.h"

namespace tailrace::internal::tool {

struct PythonProgram {
    std::string name;
    std::string about;  // one line, for the list of commands
    std::string needs;  // what is to be installed for it
};

const std::vector<PythonProgram>& python_programs();

// Replaces this process by the program with these arguments, run by the interpreter in TAILRACE_PYTHON,
// python3 unless given. Returns only when that cannot be started, after saying so.
Exit become(const PythonProgram& program, const std::vector<std::string>& arguments);

}  // namespace tailrace::internal::tool
