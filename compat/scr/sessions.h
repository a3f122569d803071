// sessions.h - a program's tailrace sessions: one for its checkpoints, and one for its outputs, which are the
// datasets that are no checkpoints. Outputs lie in a directory of their own, DIRECTORY/scr.outputs, and have
// their own retention. The ids of both are different.
//
// The session of outputs is opened with the first output, or at once if an earlier run had some, because it
// finishes what that run has left on the nodes.
//
// Calls throw tailrace::Error. Those that open and close are collective.
#pragma once

#include <optional>
#include <string>
#include <tailrace.hpp>

#include "common/ranks.h"
#include "index.h"
#include "settings.h"

namespace scr_on_tailrace {

class Sessions {
  public:
    // `directory` is for the epochs of checkpoints. What is passed here must outlive this.
    Sessions(on_tailrace::Ranks& ranks, const Settings& settings, std::string directory);

    void open_checkpoints();
    // Does nothing if they are open.
    void open_outputs();
    // Closes both, the checkpoints last. Throws what went wrong first.
    void close();

    bool is_open() const { return checkpoints_.has_value(); }
    tailrace::Session& checkpoints() { return *checkpoints_; }
    tailrace::Session& outputs() { return *outputs_; }  // if there are some
    // The one of a dataset. It is open.
    tailrace::Session& of(const Dataset& dataset);
    // The directory that gets an output's files as the program wrote them; empty if none does. Outputs are
    // open.
    std::string files_of_output(uint64_t id) const;
    // How many outputs may wait for their names: as many as the retention leaves there.
    size_t most_unplaced() const;
    const std::string& directory() const { return directory_; }

  private:
    // What both have in common.
    tailrace::Options options(const char* purpose) const;

    on_tailrace::Ranks& ranks_;
    const Settings& settings_;
    const std::string directory_;
    std::optional<tailrace::Session> checkpoints_;
    std::optional<tailrace::Session> outputs_;
};

}  // namespace scr_on_tailrace
