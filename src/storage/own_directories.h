// Directories that are this user's alone, with the files in them, in one directory that may be anybody's:
// what the node-local tier is made of. Other users of the machine may plant what they like under the names
// that a session will look for; nothing of that is written, read or followed.
//
// Whom to believe is decided by the pure functions; OwnDirectories opens. A directory is opened without
// following a link, checked, and kept open: files in it are reached from there (openat), so that nobody can
// put another directory in its place meanwhile. At each use the path is looked at again, so one that was
// removed and made anew is found, and checked as the first one was.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "storage/system_path.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// What speaks against believing it, for a sentence that begins with its path ("it belongs to user ...");
// empty: nothing. `user`: who asks. A directory of ours may be open to others: it is closed when it is taken,
// and its files are looked at.
std::string why_no_own_directory(const struct stat& info, uid_t user);
std::string why_no_own_file(const struct stat& info, uid_t user);
// ... and that nobody else may have written since.
std::string why_no_private_file(const struct stat& info, uid_t user);
// A directory that others may use as well, for directories of our own: the user's choice, unless anybody may
// replace what is in it.
std::string why_no_common_directory(const struct stat& info);

// "user 1001 (name)".
std::string user_text(uid_t user);

class OwnDirectories {
  public:
    // Empty: there are none.
    explicit OwnDirectories(const std::string& base);

    const std::string& base() const { return base_; }
    bool is_base(const std::string& path) const;
    // Whether `path` is a directory (or other name) in the base, and so to be this user's alone.
    bool holds(const std::string& path) const;

    // The directory at `path`, which holds(). not_found when it is missing; `make`: then it is made.
    // invalid_argument when it is not believed.
    Result<std::shared_ptr<Descriptor>> open(const std::string& path, bool make);

  private:
    Result<std::shared_ptr<Descriptor>> take(const std::string& path, bool make) const;
    Result<Descriptor> open_base(bool make) const;

    const std::string base_;
    Mutex mutex_;
    std::map<std::string, std::shared_ptr<Descriptor>> opened_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
