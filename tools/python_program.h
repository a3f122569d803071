// The subcommands that are Python programs: their names, their places, and how they are started.
//
// Each lies in a directory of its own: tools/NAME in the source tree, share/tailrace/NAME when
// installed. It parses its own options and has its own --help, so it gets the rest of the command
// line unchanged.
#pragma once

#include <string>
#include <vector>

#include "command.h"

namespace tailrace::internal::tool {

struct PythonProgram {
    std::string name;
    std::string about;  // one line, for the list of commands
    std::string needs;  // packages that it needs
    // It calls this command, and so gets its path as `--tailrace PATH` in front of the arguments.
    bool calls_tailrace = false;
    // It is started with SIGINT blocked, and takes the signal when it has begun. Before that Python would
    // answer with a traceback.
    bool takes_interrupts = false;
};

const std::vector<PythonProgram>& python_programs();

// Replaces this process by the program with these arguments. The interpreter is TAILRACE_PYTHON, or
// python3 if that is not set. Returns only if the program cannot be started, after saying so.
Exit become(const PythonProgram& program, const std::vector<std::string>& arguments);

}  // namespace tailrace::internal::tool
