// FileTable: the names and rights of the files that a rank has saved (docs/format.md, "Files of the
// program").
//
// A file NAME is a region "file/NAME" of plain bytes. The table is the region "file/", which no file
// can have. It is not needed to find a file's bytes.
//
// Pure. The decoder takes every byte as hostile. It returns corrupt and what was wrong, or a table
// whose names could lie together in one directory and lead nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal {

inline constexpr std::string_view file_table_region = "file/";
// A component of a name, as file systems take it.
inline constexpr size_t max_file_component_bytes = 255;
// Directories of a name, so that making and removing them stays cheap.
inline constexpr size_t max_file_directories = 64;
// Read, write and execute, for owner, group and others. A file never gets other rights from an epoch.
inline constexpr uint32_t file_rights = 0777;

struct SavedFile {
    std::string name;  // relative, with "/" between directories
    uint32_t rights = 0;
    bool operator==(const SavedFile&) const = default;
};

// "file/NAME".
std::string file_region(std::string_view name);

// invalid_argument, with what to do, unless the name leads to a place in the directory that it is taken
// from: it must not be absolute, nor have empty components, "." or "..". Its region's name must not be
// too long.
Status check_file_name(std::string_view name);

// The names of files that can lie together in one directory.
class FileNames {
  public:
    // invalid_argument if it is no name of a file, or one of the two would be a directory of the other;
    // already_exists if it is there. Nothing is added then.
    Status add(std::string_view name);
    // What add would return.
    Status check(std::string_view name) const;
    bool contains(std::string_view name) const { return files_.contains(std::string(name)); }

  private:
    std::unordered_set<std::string> files_, directories_;
};

// A table has at most this for each region of the rank, of which it is one.
inline constexpr uint64_t most_table_entry_bytes = 32 + max_region_name_bytes;
std::vector<std::byte> encode_file_table(std::span<const SavedFile> files);
Result<std::vector<SavedFile>> decode_file_table(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
