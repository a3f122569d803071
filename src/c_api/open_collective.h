// The door for the MPI face of collective files (libtailrace_mpi): a collective file of this machine's file
// systems on a given transport. A private interface between libraries built together, not for programs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "collective/collective_file.h"
#include "tailrace.h"

namespace tailrace::internal {

// Collective. `hints` by name, as in collective/hints.h; what is wrong with one rank's is every rank's
// failure.
TAILRACE_API Result<std::unique_ptr<collective::CollectiveFile>> open_collective(
    std::shared_ptr<Transport> transport, const std::string& path, collective::Mode mode,
    const Result<std::map<std::string, std::string>>& hints);

}  // namespace tailrace::internal
