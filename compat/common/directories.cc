#include "directories.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tailrace_types.hpp>

namespace on_tailrace {

namespace {

[[noreturn]] void refuse(const std::string& why) {
    throw tailrace::Error(TAILRACE_IO_ERROR, why);
}

bool is_link(const std::string& path) {
    struct stat known {};
    return ::lstat(path.c_str(), &known) == 0 && S_ISLNK(known.st_mode);
}

[[noreturn]] void too_long(const std::string& which, size_t bytes) {
    refuse(which + " has " + std::to_string(bytes) +
           " bytes, which is too long for the file system, or one of its names is; choose a shorter one");
}

// Whether something lies at TOP/NAME that is a directory and no link; false if nothing does.
bool is_own_directory(const std::string& path) {
    struct stat known {};
    if (::lstat(path.c_str(), &known) != 0) {
        if (errno == ENOENT) return false;
        refuse("looking at the directory " + path + ": " + std::strerror(errno));
    }
    if (S_ISLNK(known.st_mode))
        refuse(
            path +
            " is a symbolic link, and a directory of this library should be there; it is not followed. Look "
            "who made it, and remove it, or put the directory that it names in its place");
    if (!S_ISDIR(known.st_mode))
        refuse(path + " is a file, and a directory of this library should be there; move it away");
    return true;
}

}  // namespace

void expect_room_for_directory(const std::string& key, const std::string& path) {
    const auto named = key + " = " + path;
    for (std::filesystem::path part = path;; part = part.parent_path()) {
        struct stat known {};
        const bool found = ::stat(part.c_str(), &known) == 0;
        const int error = found ? 0 : errno;
        if (error == ENAMETOOLONG) too_long("the path " + named, path.size());
        if (found && !S_ISDIR(known.st_mode))
            refuse(named + ": " + part.string() +
                   " is a file and no directory; move it away, or name another");
        if (found) return;
        if (is_link(part.string()))
            refuse(named + ": " + part.string() + " is a symbolic link that leads nowhere (" +
                   std::strerror(error) + "); remove it, or name another");
        if (error != ENOENT && error != ENOTDIR)
            refuse(named + ": looking at " + part.string() + ": " + std::strerror(error));
        if (part == part.parent_path()) return;
    }
}

void make_named_directory(const std::string& key, const std::string& path) {
    expect_room_for_directory(key, path);
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error)
        refuse("making the directory " + key + " = " + path + ": " + error.message() +
               "; make it, or name one that you may write");
}

void make_below(const std::string& top, const std::vector<std::string>& names) {
    auto path = top;
    for (const auto& name : names) {
        path += "/" + name;
        // Another rank may have made it.
        if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
            if (errno == ENAMETOOLONG) too_long("the path " + path, path.size());
            refuse("making the directory " + path + ": " + std::strerror(errno) + "; make " + top +
                   " a directory that you may write, or name another");
        }
        is_own_directory(path);
    }
}

bool is_below(const std::string& top, const std::vector<std::string>& names) {
    auto path = top;
    for (const auto& name : names) {
        path += "/" + name;
        if (!is_own_directory(path)) return false;
    }
    return true;
}

}  // namespace on_tailrace
