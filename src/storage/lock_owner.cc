// /proc/locks names the process that took the lock. That process may have died since and left the
// lock to a process that inherited the descriptor, and another process may have its number by now.
// So the number is trusted only if one of the process's own descriptors holds the lock, which
// /proc/PID/fdinfo tells. The system does not tell this of another user's process. Then the process
// is named together with its user, who has to be asked anyway.
#include "storage/lock_owner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tailrace::internal {

namespace {

// The holder, if the line says that a process has a lock on `inode`; otherwise 0. (A shared lock
// keeps us out as well.) Such lines look like "1: FLOCK  ADVISORY  WRITE 9749 fe:00:9994748 0 EOF".
pid_t holder(std::istringstream line, const std::string& inode) {
    std::string number, kind, strictness, mode, locked;
    pid_t process = 0;
    line >> number >> kind >> strictness >> mode >> process >> locked;
    return line && kind == "FLOCK" && (mode == "WRITE" || mode == "READ") && locked == inode ? process : 0;
}

bool bears_lock(pid_t process, const std::string& inode) {
    std::error_code error;
    const std::filesystem::directory_iterator descriptors(fmt::format("/proc/{}/fdinfo", process), error),
        end;
    for (auto descriptor = descriptors; !error && descriptor != end; descriptor.increment(error)) {
        std::ifstream info(descriptor->path());
        const std::string mark = "lock:";
        for (std::string line; std::getline(info, line);)
            if (line.starts_with(mark) &&
                holder(std::istringstream(line.substr(mark.size())), inode) == process)
                return true;
    }
    return false;
}

}  // namespace

std::optional<LockOwner> lock_owner(int directory) {
    struct stat info {};
    if (fstat(directory, &info) != 0) return std::nullopt;
    const auto inode =
        fmt::format("{:02x}:{:02x}:{}", major(info.st_dev), minor(info.st_dev), uint64_t{info.st_ino});
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);)
        if (const pid_t process = holder(std::istringstream(line), inode); process > 0) {
            struct stat of_process {};
            const bool there = stat(fmt::format("/proc/{}", process).c_str(), &of_process) == 0;
            const bool own = !there || of_process.st_uid == geteuid();
            if (bears_lock(process, inode))
                return LockOwner{process, own ? std::nullopt : std::optional(of_process.st_uid)};
            if (own || access(fmt::format("/proc/{}/fdinfo", process).c_str(), R_OK) == 0)
                return std::nullopt;
            return LockOwner{process, of_process.st_uid};
        }
    return std::nullopt;
}

}  // namespace tailrace::internal
