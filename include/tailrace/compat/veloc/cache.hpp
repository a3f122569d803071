// cache.hpp - veloc::cached_file_t: a file whose writes go to a node-local directory and return, while a
// thread brings them to the file's own place.
//
//     veloc::cached_file_t file("/dev/shm/me");
//     file.open("/scratch/me/out.dat", O_RDWR | O_CREAT, 0600);
//     file.pwrite(bytes, count, offset);
//     file.close();                              // does not wait
//     if (!veloc::cached_file_t::flush()) ...    // waits, and says whether all of it is on its disk
//
// Calls that return false say why on stderr. Several threads may use several files; one file is used by one
// thread at a time. The memory of a call is the program's again when it returns. The environment variable
// VELOC_POSIX_CACHE_SIZE bounds the bytes that are on their way, of all files together (65536 if it is not
// set). pwrite waits for room; a piece that is larger than that goes alone.
#ifndef TAILRACE_COMPAT_VELOC_CACHE_HPP
#define TAILRACE_COMPAT_VELOC_CACHE_HPP

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

namespace veloc_on_tailrace {
class CachedFile;
}

namespace veloc {

class cached_file_t {
  public:
    // The node-local directory. It must exist when a file is opened.
    explicit cached_file_t(const std::string& scratch_path);
    ~cached_file_t();  // closes the file

    // Opens the file with the flags and mode of open(2). It must be possible to write it. False if it cannot
    // be opened, or this object has a file open.
    bool open(const std::string& fname, int flags, mode_t mode);
    // Reads exactly so many bytes, after what has been written to this object has arrived.
    bool pread(void* buf, std::size_t count, off_t offset);
    bool pwrite(const void* buf, std::size_t count, off_t offset);
    void close();

    // Waits until what has been written to all files has arrived, and is on its disk. False if since the last
    // flush some of it has not.
    static bool flush();
    // A flush, and the end of the thread. A later write begins another one.
    static void shutdown();

  private:
    std::unique_ptr<veloc_on_tailrace::CachedFile> file_;
};

}  // namespace veloc

#endif
