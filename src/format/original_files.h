// OriginalFiles: which data of an epoch lies in files as the program wrote them (setting files_as =
// original), the names in the directory JOB.files where they are, and the mark that makes such a directory
// complete (docs/format.md, "Original files").
//
//   JOB.files/e000000012                    complete: it holds the mark
//   JOB.files/e000000012.r0003.unfinished   while it is written or removed, or a later run has the name
//
// Pure. The decoder takes every byte as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "format/file_table.h"
#include "format/manifest.h"

namespace tailrace::internal {

// A rank that has this region wants its files written as they were. It holds nothing, and no file can have
// its name.
inline constexpr std::string_view original_files_region = "file//original";

// The name of the file whose bytes the region holds, if the region can be a file's (format/file_table.h).
std::optional<std::string_view> file_of_region(const Region& region);

// The regions from this number on lie apart: PartManifest::files_apart, and nothing but files from there on.
// regions.size() if none does.
size_t first_region_apart(const PartManifest& manifest);
// The bytes at the stream's end that lie apart: from the first of these regions on.
uint64_t apart_bytes(const PartManifest& manifest);
// The files that lie apart.
std::vector<std::string> names_apart(const PartManifest& manifest);

// invalid_argument: another rank of the epoch has used the name, and all of its files lie together.
Status name_is_taken(uint32_t rank, std::string_view name);
// Adds a rank's file to those of an epoch. invalid_argument if they cannot lie together.
Status add_name_apart(FileNames& names, uint32_t rank, std::string_view name);

std::string original_files_directory(std::string_view job);  // JOB.files
std::string original_files_name(uint64_t epoch);             // e000000012
std::optional<uint64_t> parse_original_files_name(std::string_view text);

std::string unfinished_files_name(EpochKey key);  // e000000012.r0003.unfinished
std::optional<EpochKey> parse_unfinished_files_name(std::string_view text);

// ---- the mark -----------------------------------------------------------------------------------

// No file of the program may have this name there.
inline const std::string file_list_name = "tailrace.complete";

struct ListedFile {
    std::string name;  // relative; passes check_file_name
    uint32_t rights = 0;
    uint64_t bytes = 0;
    std::optional<uint32_t> crc;  // CRC32C of the whole file; none if the epoch has no checksums
    bool operator==(const ListedFile&) const = default;
};

struct FileList {
    std::string job;
    EpochKey key;
    std::vector<ListedFile> files;
    bool operator==(const FileList&) const = default;
};

// Lines of text. "\n" and "\\" stand for these characters in a name.
std::string encode_file_list(const FileList& list);
// corrupt if it is cut off or wrong anywhere.
Result<FileList> decode_file_list(std::string_view text);

}  // namespace tailrace::internal
