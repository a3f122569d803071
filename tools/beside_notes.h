// What ls says of directories that lie in a shared directory beside its epochs: outputs, and original files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "storage/storage.h"

namespace tailrace::internal::tool {

struct BesideNotes {
    struct Outputs {
        std::string job, directory;
        std::vector<uint64_t> epochs;  // under their final names
    };
    struct OriginalFiles {
        std::string job, directory;
        std::vector<uint64_t> epochs;  // complete
        size_t unfinished = 0;
    };
    std::vector<Outputs> outputs;
    std::vector<OriginalFiles> original_files;

    std::vector<std::string> texts() const;
};

// `job`: only this job's; empty: all. What cannot be listed is passed over.
BesideNotes find_beside(Storage& storage, const std::string& directory, const std::string& job);
// Adds "outputs" and "original_files".
void add_to(nlohmann::ordered_json& json, const BesideNotes& notes);

}  // namespace tailrace::internal::tool
