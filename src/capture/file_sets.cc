#include "capture/file_sets.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/log.h"
#include "storage/system_path.h"

namespace tailrace::internal {

namespace {

constexpr std::string_view ending = ".files";

// Gives the owner all rights to the directory and to those in it. Follows no link. What fails shows when
// the directories are removed.
void make_writable(int above, const std::string& name) {
    const Descriptor found = open_descriptor(name, O_PATH | O_DIRECTORY | O_NOFOLLOW, above);
    // A descriptor of this kind can be given rights only in this way.
    if (!found.valid() || chmod(fmt::format("/proc/self/fd/{}", found.get()).c_str(), S_IRWXU) != 0) return;
    const int opened = openat(found.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(opened), closedir);  // closes it
    if (entries == nullptr) {
        ::close(opened);
        return;
    }
    while (const dirent* entry = readdir(entries.get())) {
        const std::string below = entry->d_name;
        if (below != "." && below != "..") make_writable(opened, below);
    }
}

}  // namespace

std::string file_set_name(uint32_t run, int rank, uint64_t number) {
    return fmt::format("r{:04}.p{:05}.{}{}", run, rank, number, ending);
}

bool is_file_set(const DirectoryEntry& entry) {
    return entry.is_directory && entry.name.ends_with(ending);
}

void remove_file_sets(Storage& local, const std::string& directory) {
    const auto entries = local.list(directory);
    if (!entries.ok()) return;  // whatever needs the directory reports that
    for (const auto& entry : *entries) {
        if (!is_file_set(entry)) continue;
        const Status removed = remove_directory_tree(join_path(directory, entry.name));
        if (!removed.ok())
            log(LogLevel::warning, "files of a session that has ended could not be removed: {}",
                removed.message());
    }
}

Status remove_directory_tree(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error == std::errc::permission_denied) {
        make_writable(AT_FDCWD, path);
        std::filesystem::remove_all(path, error);
    }
    if (!error) return {};
    return errno_status(error.value(), fmt::format("removing the directory '{}' with its contents", path));
}

}  // namespace tailrace::internal
