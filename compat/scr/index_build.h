// index_build.h - datasets that are complete and not in the index, or in it as failed: what their epochs say
// of them, without a session.
//
// The region scr/dataset of each rank has the dataset's line of the index, as an index of one
// (Client::complete). It has the name and the flags. A dataset of the bypass way is there only if its files
// still have their sizes, no later dataset has had its name, and nobody has written the files since: a later
// dataset that was not completed may have written over them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tailrace.hpp>

#include "index.h"
#include "prefix.h"

namespace scr_on_tailrace {

class KnownDatasets {
  public:
    // `directory` is that of the checkpoints.
    KnownDatasets(const Prefix& prefix, std::string directory);

    // The dataset of an epoch. Throws tailrace::Error if it is not complete, and says why.
    Dataset by_id(uint64_t id) const;
    // The one dataset of that name. Throws tailrace::Error if there is none, or more than one.
    Dataset by_name(const std::string& name) const;

  private:
    struct Epoch {
        std::string directory;
        std::filesystem::file_time_type written;  // when its files were last, complete or not
    };

    void look_in(const std::string& directory);
    tailrace::Reader open(uint64_t id) const;
    void expect_last_of_name(const Dataset& dataset) const;
    void expect_files(const Dataset& dataset) const;

    const Prefix& prefix_;
    const std::string directory_;
    std::map<uint64_t, Epoch> epochs_;
};

// From "5" or "scr.dataset.5". Throws tailrace::Error if it is no id.
uint64_t id_of(const std::string& text);

}  // namespace scr_on_tailrace
