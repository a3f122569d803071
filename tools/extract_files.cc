#include "extract_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "files/file_tree.h"
#include "files/restored_files.h"
#include "format/file_table.h"
#include "storage/system_path.h"

namespace tailrace::internal::tool {

namespace {

constexpr mode_t usual_rights = 0777;

struct RankFiles {
    uint32_t rank = 0;
    std::vector<EpochFile> files;
};

Result<std::vector<RankFiles>> find_files(EpochReader& reader, std::optional<uint32_t> rank) {
    std::vector<RankFiles> found;
    for (uint32_t r = rank.value_or(0); r < (rank ? *rank + 1 : reader.rank_count()); ++r) {
        TAILRACE_ASSIGN(auto files, files_of(reader, r));
        if (!files.empty()) found.push_back({r, std::move(files)});
    }
    if (!found.empty()) return found;
    return Status(Code::not_found,
                  fmt::format("{}{} has no files of the program; `tailrace show` shows its contents",
                              rank ? fmt::format("rank {} of ", *rank) : "", to_string(reader.key())));
}

bool can_lie_together(const std::vector<RankFiles>& ranks) {
    FileNames names;
    for (const auto& of_rank : ranks)
        for (const auto& file : of_rank.files)
            if (!names.add(file.name).ok()) return false;
    return true;
}

// Nothing may be there: the directory would hold files of two epochs.
Status check_place(const std::string& directory) {
    struct stat there {};
    if (directory.empty()) return Status(Code::invalid_argument, "'' is not the name of a directory");
    if (lstat(directory.c_str(), &there) == 0)
        return Status(
            Code::already_exists,
            fmt::format("'{}' exists already, and was left as it is: name a directory that does not exist",
                        directory));
    if (errno == ENOENT) return {};
    return errno_status(errno, fmt::format("looking at '{}'", directory));
}

Status sync_directory(const std::string& path) {
    const Descriptor directory = open_descriptor(path, O_RDONLY | O_DIRECTORY);
    if (directory.valid() && fsync(directory.get()) == 0) return {};
    return path_error(errno, "syncing the directory", path);
}

// The files are on the disk, and their names are not yet.
Status sync_directories(const std::string& root) {
    namespace fs = std::filesystem;
    std::error_code error;
    for (fs::recursive_directory_iterator at(root, error), end; !error && at != end; at.increment(error))
        if (at->symlink_status().type() == fs::file_type::directory)
            TAILRACE_TRY(sync_directory(at->path().string()));
    if (error) return errno_status(error.value(), fmt::format("looking through '{}'", root));
    return sync_directory(root);
}

// A process with this one's number was killed while it extracted.
Status explained(const Status& failure, const std::string& path) {
    if (failure.code() != Code::already_exists) return Status(Code::io_error, failure.message());
    return Status(Code::io_error,
                  fmt::format("'{}' exists: a run that was killed has left it; remove it", path));
}

}  // namespace

Result<std::vector<ExtractedFile>> extract_files(EpochReader& reader, const std::string& directory,
                                                 std::optional<uint32_t> rank, bool by_rank) {
    std::string target = directory;
    while (target.size() > 1 && target.back() == '/') target.pop_back();
    TAILRACE_TRY(check_place(target));
    TAILRACE_ASSIGN(const auto ranks, find_files(reader, rank));
    const bool apart = by_rank || !can_lie_together(ranks);
    const auto partial = fmt::format("{}.partial.{}", target.substr(target.rfind('/') + 1), getpid());
    auto tree = FileTree::make(parent_of(target), partial, TreeParent::chosen, usual_rights);
    // The code must not be not_found: a missing directory is not a missing epoch.
    if (!tree.ok()) return explained(tree.status(), join_path(parent_of(target), partial));
    std::vector<ExtractedFile> extracted;
    for (const auto& of_rank : ranks) {
        const auto below = apart ? fmt::format("rank{:05}", of_rank.rank) : std::string();
        TAILRACE_TRY(write_files(reader, of_rank.rank, of_rank.files, **tree, below, true));
        for (const auto& file : of_rank.files)
            extracted.push_back(
                {of_rank.rank, file.name, apart ? below + "/" + file.name : file.name, file.bytes});
    }
    TAILRACE_TRY(sync_directories((*tree)->path()));
    TAILRACE_TRY((*tree)->move_to(target));
    TAILRACE_TRY(sync_directory(parent_of(target)));
    return extracted;
}

}  // namespace tailrace::internal::tool
