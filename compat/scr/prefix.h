// prefix.h - the directory below which a program's files lie, SCR_PREFIX, and what they are called there.
// Pure but for the working directory and links in the prefix itself.
#pragma once

#include <string>

namespace scr_on_tailrace {

class Prefix {
  public:
    // `path` is absolute.
    explicit Prefix(std::string path);

    const std::string& path() const { return path_; }
    // The path of a file below the prefix, as in "ckpt.5/rank_3". A name that is not absolute counts from the
    // working directory. Throws tailrace::Error if the file is not below the prefix, or in .scr.
    std::string key_of(const std::string& name) const;
    std::string path_of(const std::string& key) const { return path_ + "/" + key; }

  private:
    const std::string path_;
    const std::string real_;  // the same without links
};

// Throws tailrace::Error for a key that comes from a file and leads out of the prefix, or to what the library
// has there.
void check_key(const std::string& key);

// Without "." and "..", and absolute.
std::string absolute(const std::string& name);
std::string base_of(const std::string& path);

}  // namespace scr_on_tailrace
