// epochs_directory.h - where the epochs of datasets lie: those of checkpoints in PREFIX/.scr/tailrace, and
// those of outputs in a directory of their own below it, as a session with purpose = outputs keeps them.
#pragma once

#include <string>

#include "index.h"

namespace scr_on_tailrace {

inline constexpr const char* job = "scr";

// `directory` is that of the checkpoints, in both.
inline std::string outputs_in(const std::string& directory) {
    return directory + "/" + job + ".outputs";
}
inline std::string directory_of(const Dataset& dataset, const std::string& directory) {
    return dataset.is_checkpoint() ? directory : outputs_in(directory);
}

}  // namespace scr_on_tailrace
