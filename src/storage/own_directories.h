// Directories that belong to this user alone, with the files in them, inside one directory that
// anybody may own. The node-local tier consists of them. Other users of the machine may create
// anything under the names that a session will look for. Nothing of that is written, read or
// followed.
//
// The pure functions decide what to trust; OwnDirectories opens. It opens a directory without
// following a link, checks it, and keeps it open. Files in it are reached from there (openat), so
// nobody can put another directory in its place meanwhile. Each use looks at the path again. So a
// directory that was removed and made anew is found, and checked like the first one.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "storage/system_path.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// The reason not to trust it, for a sentence that begins with its path ("it belongs to user ...").
// Empty if there is none. `user`: the user who asks. A directory of ours may be open to others: it
// is closed to them when it is taken, and its files are checked.
std::string why_no_own_directory(const struct stat& info, uid_t user);
std::string why_no_own_file(const struct stat& info, uid_t user);
// The same for a file that nobody else may have written since.
std::string why_no_private_file(const struct stat& info, uid_t user);
// The same for a directory that others may use as well and that will hold directories of our own.
// It is the user's choice, unless anybody may replace its entries.
std::string why_no_common_directory(const struct stat& info);

// "user 1001 (name)".
std::string user_text(uid_t user);

class OwnDirectories {
  public:
    // Empty: there are none.
    explicit OwnDirectories(const std::string& base);

    const std::string& base() const { return base_; }
    bool is_base(const std::string& path) const;
    // Whether `path` is a directory (or another name) in the base, and so must belong to this user
    // alone.
    bool holds(const std::string& path) const;

    // The directory at `path`, for which holds() is true. not_found if it is missing, unless `make`
    // says to make it. invalid_argument if it is not trusted.
    Result<std::shared_ptr<Descriptor>> open(const std::string& path, bool make);
    // The base itself, anew. invalid_argument if anybody may replace its entries. `doing`: what for, for a
    // sentence.
    Result<Descriptor> open_base(std::string_view doing) const;

  private:
    Result<std::shared_ptr<Descriptor>> take(const std::string& path, bool make) const;

    const std::string base_;
    Mutex mutex_;
    std::map<std::string, std::shared_ptr<Descriptor>> opened_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
