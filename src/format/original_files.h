// OriginalFiles: the names in the directory JOB.files, where the files of epochs lie as the program wrote
// them (setting files_as = original), and the mark that makes such a directory complete
// (docs/format.md, "Original files").
//
//   JOB.files/e000000012.r0003.unfinished   while it is written
//   JOB.files/e000000012                    complete: it holds the mark
//   JOB.files/e000000012.r0003.removed      while it is removed
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

namespace tailrace::internal {

// A rank that has this region wants its files written as they were as well. It holds nothing, and no file can
// have its name.
inline constexpr std::string_view original_files_region = "file//original";

std::string original_files_directory(std::string_view job);  // JOB.files
std::string original_files_name(uint64_t epoch);             // e000000012
std::optional<uint64_t> parse_original_files_name(std::string_view text);

struct OriginalFilesWork {
    EpochKey key;
    bool removed = false;  // otherwise unfinished
    bool operator==(const OriginalFilesWork&) const = default;
};
std::string to_string(const OriginalFilesWork& work);
std::optional<OriginalFilesWork> parse_original_files_work(std::string_view text);

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
