// FileTree: a new directory of this user, in which files are reached by relative names.
//
// Every name is walked from the open directory, component by component, and no link is followed. So
// whatever lies there, nothing outside is read or written. A program writes into the directory by
// path, with any library; what it has left there is looked at in this way.
//
// The destructor removes the directory with everything in it. Removing follows no link either.
//
// Names have passed check_file_name (format/file_table.h). Thread-safe, except that a file is created
// by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "storage/storage.h"
#include "storage/system_path.h"

namespace tailrace::internal {

// The longest path that system calls take, with the zero behind it.
inline constexpr size_t max_path_bytes = 4096;

// Whose the directory is in which a tree is made.
enum class TreeParent {
    own,     // of this user alone, by the rules of the node-local tier (docs/security.md)
    chosen,  // the user's choice; links in its path are followed
};

// A file as it was found. If it is opened later, it must be the same.
struct FoundFile {
    uint64_t bytes = 0;
    uint32_t rights = 0;
    dev_t device = 0;
    ino_t inode = 0;
    timespec modified{};
};

// A file that is made, with room for its bytes. It is filled as memory. The destructor removes a file that
// was not finished, so that its name is free again.
class NewFile {
  public:
    // `name` is its name in `directory`, and `path` is for sentences.
    NewFile(std::string path, Descriptor file, Descriptor directory, std::string name)
        : path_(std::move(path)),
          name_(std::move(name)),
          file_(std::move(file)),
          directory_(std::move(directory)) {}
    ~NewFile();
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    Status reserve(uint64_t bytes);
    std::span<std::byte> memory() const { return memory_; }
    // Gives the file its rights. `durable`: when it returns ok, the bytes are on the disk.
    Status finish(uint32_t rights, bool durable);

  private:
    const std::string path_, name_;
    Descriptor file_, directory_;
    std::span<std::byte> memory_;
    bool finished_ = false;
};

class FileTree {
  public:
    // Makes the directory `name` in `directory`. It and the directories in it have the rights
    // `directory_rights`, less the umask. already_exists if the name is taken.
    static Result<std::shared_ptr<FileTree>> make(const std::string& directory, const std::string& name,
                                                  TreeParent parent, mode_t directory_rights);
    ~FileTree();
    FileTree(const FileTree&) = delete;
    FileTree& operator=(const FileTree&) = delete;

    const std::string& path() const { return path_; }
    std::string path_of(std::string_view name) const { return path_ + "/" + std::string(name); }
    // The path for the program. invalid_argument if it is longer than systems take.
    Result<std::string> usable_path(std::string_view name) const;

    // Makes the directories above the file.
    Status make_directories_of(std::string_view name) const;
    // Makes the file, which must not exist, and the directories above it.
    Result<std::unique_ptr<NewFile>> create(std::string_view name, uint64_t bytes) const;

    // not_found if nothing has that name. invalid_argument if it is no file, or is reached through a
    // link.
    Result<FoundFile> look(std::string_view name) const;
    // The file that look() has found. io_error if it is another one by now, or has changed.
    Result<std::unique_ptr<File>> open(std::string_view name, const FoundFile& found) const;

    // The names of everything but directories, sorted.
    std::vector<std::string> names() const;

    // Gives the directory another path on the same file system, where nothing may be, and keeps it.
    Status move_to(const std::string& path);

  private:
    FileTree(std::string path, Descriptor directory, mode_t directory_rights)
        : path_(std::move(path)), directory_(std::move(directory)), directory_rights_(directory_rights) {}
    // The directory of the file, and the name in it.
    struct Place {
        Descriptor directory;
        std::string name;
    };
    Result<Place> place_of(std::string_view name, bool make) const;
    Result<FoundFile> found_at(std::string_view name, int descriptor) const;

    std::string path_;  // empty once it has moved
    Descriptor directory_;
    const mode_t directory_rights_;
};

}  // namespace tailrace::internal
