// The entry for the MPI face of collective files (libtailrace_mpi). It opens a collective file of
// this machine's file systems on a given transport. It is a private interface between libraries
// built together, not for programs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "collective/collective_file.h"
#include "tailrace.h"

namespace tailrace::internal {

// Collective. `hints` by name, as in collective/hints.h. A mistake in one rank's hints fails the
// call on every rank.
TAILRACE_API Result<std::unique_ptr<collective::CollectiveFile>> open_collective(
    std::shared_ptr<Transport> transport, const std::string& path, collective::Mode mode,
    const Result<std::map<std::string, std::string>>& hints);

}  // namespace tailrace::internal
