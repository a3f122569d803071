#include "files/file_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "capture/file_sets.h"
#include "format/file_table.h"
#include "storage/own_directories.h"
#include "storage/posix_file.h"
#include "storage/transfer_engine.h"

namespace tailrace::internal {

namespace {

constexpr int directory_flags = O_RDONLY | O_DIRECTORY;
constexpr mode_t new_file_rights = 0600;

Status not_followed(const std::string& path, std::string_view what) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is {}; tailrace neither reads nor writes files through it", path, what));
}

std::string_view kind_of(mode_t mode) {
    if (S_ISLNK(mode)) return "a symbolic link";
    return S_ISDIR(mode) ? "a directory" : "a device, pipe or socket";
}

Result<Descriptor> open_parent(const std::string& directory, TreeParent parent) {
    const int links = parent == TreeParent::own ? O_NOFOLLOW : 0;
    Descriptor opened = open_descriptor(directory, directory_flags | links);
    struct stat info {};
    if (!opened.valid() || fstat(opened.get(), &info) != 0)
        return path_error(errno, "opening the directory", directory);
    if (parent == TreeParent::chosen) return opened;
    if (const auto why = why_no_own_directory(info, geteuid()); !why.empty())
        return Status(
            Code::invalid_argument,
            fmt::format("the directory '{}' is not trusted, and nothing was made in it: {}", directory, why));
    return opened;
}

// A component of a name, which must be a directory. `mode` is what lies there, or 0.
Descriptor open_component(int above, const std::string& component, mode_t& mode) {
    Descriptor opened = open_descriptor(component, directory_flags | O_NOFOLLOW, above);
    const int error = errno;
    struct stat info {};
    if (!opened.valid() && fstatat(above, component.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
        mode = info.st_mode;
    errno = error;
    return opened;
}

bool same(const FoundFile& a, const FoundFile& b) {
    return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
           a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec;
}

}  // namespace

// ---- NewFile ------------------------------------------------------------------------------------

NewFile::~NewFile() {
    if (!memory_.empty()) munmap(memory_.data(), memory_.size());
    if (!finished_) (void)unlinkat(directory_.get(), name_.c_str(), 0);
}

// The space is reserved, so that filling the memory cannot fail.
Status NewFile::reserve(uint64_t bytes) {
    if (bytes == 0) return {};
    if (const int error = reserve_or_fill(file_.get(), bytes); error != 0)
        return errno_status(error, fmt::format("reserving {} bytes for '{}'", bytes, path_));
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (memory == MAP_FAILED)
        return errno_status(errno, fmt::format("mapping {} bytes of '{}'", bytes, path_));
    memory_ = {static_cast<std::byte*>(memory), bytes};
    return {};
}

Status NewFile::finish(uint32_t rights, bool durable) {
    if (durable && !memory_.empty() && msync(memory_.data(), memory_.size(), MS_SYNC) != 0)
        return errno_status(errno, fmt::format("writing {} bytes of '{}'", memory_.size(), path_));
    if (fchmod(file_.get(), rights & file_rights) != 0)
        return path_error(errno, fmt::format("giving the rights {:o} to", rights & file_rights), path_);
    if (durable && fsync(file_.get()) != 0) return path_error(errno, "syncing", path_);
    if (const int error = file_.close(); error != 0) return path_error(error, "closing", path_);
    finished_ = true;
    return {};
}

// ---- FileTree -----------------------------------------------------------------------------------

Result<std::shared_ptr<FileTree>> FileTree::make(const std::string& directory, const std::string& name,
                                                 TreeParent parent, mode_t directory_rights) {
    const auto path = join_path(directory, name);
    TAILRACE_ASSIGN(const Descriptor above, open_parent(directory, parent));
    if (mkdirat(above.get(), name.c_str(), directory_rights) != 0)
        return path_error(errno, "making the directory", path);
    Descriptor made = open_descriptor(name, directory_flags | O_NOFOLLOW, above.get());
    if (!made.valid()) {
        const int error = errno;
        (void)unlinkat(above.get(), name.c_str(), AT_REMOVEDIR);
        return path_error(error, "opening the directory", path);
    }
    return std::shared_ptr<FileTree>(new FileTree(path, std::move(made), directory_rights));
}

FileTree::~FileTree() {
    if (path_.empty()) return;
    if (const Status removed = remove_directory_tree(path_); !removed.ok())
        log(LogLevel::warning, "{}", removed.message());
}

Result<std::string> FileTree::usable_path(std::string_view name) const {
    auto path = path_of(name);
    if (path.size() < max_path_bytes) return path;
    return Status(
        Code::invalid_argument,
        fmt::format(
            "the path of \"{}\" would have {} bytes, but systems allow {}; use a shorter name, or a shorter "
            "local_dir than {}",
            shortened(name), path.size(), max_path_bytes - 1, path_));
}

Result<FileTree::Place> FileTree::place_of(std::string_view name, bool make) const {
    Place place;
    place.directory = open_descriptor(".", directory_flags, directory_.get());
    if (!place.directory.valid()) return path_error(errno, "opening the directory", path_);
    size_t from = 0;
    for (size_t end = name.find('/'); end != std::string_view::npos; end = name.find('/', from)) {
        const auto path = path_of(name.substr(0, end));
        const std::string component(name.substr(from, end - from));
        if (make && mkdirat(place.directory.get(), component.c_str(), directory_rights_) != 0 &&
            errno != EEXIST)
            return path_error(errno, "making the directory", path);
        mode_t found = 0;
        Descriptor below = open_component(place.directory.get(), component, found);
        if (found != 0 && !S_ISDIR(found))
            return not_followed(path, S_ISREG(found) ? "a file" : kind_of(found));
        if (!below.valid()) return path_error(errno, "opening the directory", path);
        place.directory = std::move(below);
        from = end + 1;
    }
    place.name = name.substr(from);
    return place;
}

Status FileTree::make_directories_of(std::string_view name) const {
    return place_of(name, true).status();
}

Result<std::unique_ptr<NewFile>> FileTree::create(std::string_view name, uint64_t bytes) const {
    TAILRACE_ASSIGN(auto place, place_of(name, true));
    Descriptor file = open_descriptor(place.name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                                      place.directory.get(), new_file_rights);
    if (!file.valid()) return path_error(errno, "making", path_of(name));
    auto made = std::make_unique<NewFile>(path_of(name), std::move(file), std::move(place.directory),
                                          std::move(place.name));
    TAILRACE_TRY(made->reserve(bytes));
    return made;
}

Result<FoundFile> FileTree::found_at(std::string_view name, int descriptor) const {
    struct stat info {};
    if (fstat(descriptor, &info) != 0) return path_error(errno, "looking at", path_of(name));
    if (!S_ISREG(info.st_mode)) return not_followed(path_of(name), kind_of(info.st_mode));
    return FoundFile{static_cast<uint64_t>(info.st_size), static_cast<uint32_t>(info.st_mode) & file_rights,
                     info.st_dev, info.st_ino, info.st_mtim};
}

Result<FoundFile> FileTree::look(std::string_view name) const {
    TAILRACE_ASSIGN(const auto place, place_of(name, false));
    // Without the right to read it, so that a file is found whatever its rights are.
    const Descriptor file = open_descriptor(place.name, O_PATH | O_NOFOLLOW, place.directory.get());
    if (!file.valid()) return path_error(errno, "looking at", path_of(name));
    return found_at(name, file.get());
}

Result<std::unique_ptr<File>> FileTree::open(std::string_view name, const FoundFile& found) const {
    TAILRACE_ASSIGN(auto place, place_of(name, false));
    // O_NONBLOCK, because a pipe under that name must not block us.
    Descriptor file = open_descriptor(place.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, place.directory.get());
    if (!file.valid()) return path_error(errno, "opening for reading", path_of(name));
    TAILRACE_ASSIGN(const auto now, found_at(name, file.get()));
    if (!same(now, found))
        return Status(Code::io_error, fmt::format("'{}' has changed while it was captured: it had {} bytes "
                                                  "and has {}, or was written to; close it "
                                                  "before the save, and do not write to it again",
                                                  path_of(name), found.bytes, now.bytes));
    static const auto engine = std::make_shared<PosixEngine>();
    return make_posix_file(engine, path_of(name), std::move(file), Descriptor(), {Access::read},
                           Route::cached, false);
}

std::vector<std::string> FileTree::names() const {
    namespace fs = std::filesystem;
    std::vector<std::string> names;
    std::error_code error;
    const auto skip = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(path_, skip, error), end; !error && at != end;
         at.increment(error))
        if (std::error_code ignored; !fs::is_directory(at->symlink_status(ignored)))
            names.push_back(at->path().string().substr(path_.size() + 1));
    std::sort(names.begin(), names.end());
    return names;
}

Status FileTree::move_to(const std::string& path) {
    if (std::rename(path_.c_str(), path.c_str()) != 0)
        return errno_status(errno, fmt::format("renaming '{}' to '{}'", path_, path));
    path_.clear();
    return {};
}

}  // namespace tailrace::internal
