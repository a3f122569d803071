// small_file.h - a small text file that is read and replaced as a whole. Whoever reads it meets the old text
// or the new one, also after a crash.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <tailrace_types.hpp>

namespace on_tailrace {

// For a failed operation on a file, by errno. `left` says what is as it was.
[[noreturn]] void failed_file(const std::string& what, const std::string& path, const std::string& left);

// A file that is open. Each operation throws tailrace::Error.
class OpenFile {
  public:
    // `rights` are those of a file that is made, but for the umask.
    OpenFile(const std::string& path, int flags, unsigned rights, const std::string& left);
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile();

    // Fails if another process has it for so long. File systems without such locks have one program at a
    // time.
    void lock(std::chrono::milliseconds longest) const;
    // Throws unless it is a regular file of a small file's size.
    void expect_small() const;
    std::string read() const;
    // Not narrowed by the umask.
    void set_rights(unsigned rights) const;
    void write(std::string_view text) const;
    void sync() const;

  private:
    const std::string path_, left_;
    const int file_;
};

// Anything but a regular file of at most 64 MiB is refused, also one that would block its reader. Throws
// tailrace::Error.
std::string read_file(const std::string& path, const std::string& left);
// Writes PATH.new, and then renames it. The file keeps its rights; a new one may be read and written by all
// that the umask lets. What lies at PATH.new is removed, and never followed or written.
void replace_file(const std::string& path, std::string_view text, const std::string& left);

}  // namespace on_tailrace
