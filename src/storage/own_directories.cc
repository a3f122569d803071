#include "storage/own_directories.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr mode_t others_write = S_IWGRP | S_IWOTH, others_rights = S_IRWXG | S_IRWXO;
constexpr mode_t all_rights = 07777;
constexpr mode_t own_rights = S_IRWXU;
constexpr size_t max_opened = 64;

// Without superfluous slashes.
std::string normal(const std::string& path) {
    std::string result;
    for (const char c : path)
        if (c != '/' || result.empty() || result.back() != '/') result += c;
    if (result.size() > 1 && result.back() == '/') result.pop_back();
    return result;
}

std::string of_another(const struct stat& info, uid_t user) {
    return fmt::format("it belongs to {}, not to {}", user_text(info.st_uid), user_text(user));
}

bool same(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Status refused(const std::string& path, const std::string& why, std::string_view what_to_do) {
    return Status(Code::invalid_argument,
                  fmt::format("the directory '{}' is not trusted, and nothing in it was "
                              "read or written: {}; {}",
                              path, why, what_to_do));
}

}  // namespace

std::string user_text(uid_t user) {
    passwd found{};
    passwd* entry = nullptr;
    std::array<char, 4096> text{};
    if (getpwuid_r(user, &found, text.data(), text.size(), &entry) != 0 || entry == nullptr)
        return fmt::format("user {}", user);
    return fmt::format("user {} ({})", user, entry->pw_name);
}

std::string why_no_own_directory(const struct stat& info, uid_t user) {
    if (S_ISLNK(info.st_mode)) return "it is a symbolic link";
    if (!S_ISDIR(info.st_mode)) return "it is not a directory";
    return info.st_uid == user ? "" : of_another(info, user);
}

std::string why_no_own_file(const struct stat& info, uid_t user) {
    if (info.st_uid != user) return of_another(info, user);
    return info.st_nlink > 1 ? fmt::format("it has {} names (hard links)", info.st_nlink) : "";
}

std::string why_no_private_file(const struct stat& info, uid_t user) {
    if (const auto why = why_no_own_file(info, user); !why.empty()) return why;
    if ((info.st_mode & others_write) != 0)
        return fmt::format(
            "users other than its owner may write to it (mode {:04o}); if you trust all of them, chmod go-w "
            "makes it usable",
            info.st_mode & all_rights);
    return "";
}

std::string why_no_common_directory(const struct stat& info) {
    if (!S_ISDIR(info.st_mode)) return "it is not a directory";
    if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0)
        return fmt::format(
            "everybody may write to it and it has no sticky bit (mode {:04o}), so anybody could "
            "replace its entries",
            info.st_mode & all_rights);
    return "";
}

OwnDirectories::OwnDirectories(const std::string& base) : base_(normal(base)) {}

bool OwnDirectories::is_base(const std::string& path) const {
    return !base_.empty() && normal(path) == base_;
}

bool OwnDirectories::holds(const std::string& path) const {
    return !base_.empty() && !is_base(path) && is_base(parent_of(path));
}

Result<std::shared_ptr<Descriptor>> OwnDirectories::open(const std::string& path, bool make) {
    const std::string plain = normal(path);
    MutexLock lock(mutex_);
    const auto known = opened_.find(plain);
    const auto opened = known == opened_.end() ? nullptr : known->second;
    struct stat kept {
    }, found{};
    if (opened && fstat(opened->get(), &kept) == 0 && lstat(plain.c_str(), &found) == 0 && same(kept, found))
        return opened;
    opened_.erase(plain);
    TAILRACE_ASSIGN(auto fresh, take(plain, make));
    // Who goes through all directories there ever were (an agent) must not keep a descriptor of each.
    if (opened_.size() >= max_opened) opened_.clear();
    return opened_[plain] = std::move(fresh);
}

// The user chose the base, so links in its path are followed.
Result<Descriptor> OwnDirectories::open_base(std::string_view doing) const {
    Descriptor base = open_descriptor(base_, O_RDONLY | O_DIRECTORY);
    struct stat info {};
    if (!base.valid() || fstat(base.get(), &info) != 0) return path_error(errno, doing, base_);
    if (const auto why = why_no_common_directory(info); !why.empty())
        return refused(base_, why,
                       "take that right away (chmod o-w), set the bit (chmod +t), or name a directory in it, "
                       "which is then made for you alone");
    return base;
}

Result<std::shared_ptr<Descriptor>> OwnDirectories::take(const std::string& path, bool make) const {
    constexpr int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    const std::string name = path.substr(path.rfind('/') + 1);
    TAILRACE_ASSIGN(const Descriptor base, open_base("opening the directory"));
    if (make && mkdirat(base.get(), name.c_str(), own_rights) == 0)
        (void)fsync(base.get());  // a file system that cannot do this keeps names in its own way
    else if (make && errno != EEXIST)
        return path_error(errno, "making the directory", path);
    auto directory = std::make_shared<Descriptor>(open_descriptor(name, flags, base.get()));
    const int error = errno;
    struct stat info {};
    if (directory->valid() ? fstat(directory->get(), &info) != 0
                           : fstatat(base.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
        return path_error(directory->valid() ? errno : error, "opening the directory", path);
    if (const auto why = why_no_own_directory(info, geteuid()); !why.empty())
        return refused(path, why, "remove it, or choose another directory");
    if (!directory->valid()) return path_error(error, "opening the directory", path);
    if ((info.st_mode & others_rights) != 0 && fchmod(directory->get(), own_rights) != 0)
        return path_error(errno, "closing to others the directory", path);
    return directory;
}

}  // namespace tailrace::internal
