// RoutedFiles: the files that a rank's program writes by itself, between the call that begins them and
// the save that takes them.
//
// They lie in a directory of their own in the node-local tier, and go with this object. Not
// thread-safe, except that what sources() has returned may be read by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "capture/region_copy.h"
#include "files/file_tree.h"
#include "format/file_table.h"

namespace tailrace::internal {

class RoutedFiles {
  public:
    explicit RoutedFiles(std::shared_ptr<FileTree> tree) : tree_(std::move(tree)) {}

    // The path to write the file to. Its directories are made. A name that was given before has the
    // same path. If this fails, the name is not routed.
    Result<std::string> route(std::string_view name);
    // The room that the path needs, with the zero behind it.
    uint64_t path_bytes(std::string_view name) const;

    // The regions that stand for the files as they are now: the table, then each file. They are valid
    // as long as this object. `as_original`: they are to be written as they were. invalid_argument
    // if a file was not written. Logs which files in the directory were not routed, because these are not
    // saved.
    Result<std::vector<RegionSource>> sources(bool as_original = false);

  private:
    Result<FoundFile> find(const std::string& name) const;
    void warn_of_others() const;

    std::shared_ptr<FileTree> tree_;
    FileNames names_;
    std::vector<SavedFile> files_;  // in the order in which they were routed
    std::vector<std::byte> table_;
};

}  // namespace tailrace::internal
