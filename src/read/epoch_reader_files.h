// The files that an epoch reader reads from. They are opened when first needed and kept open, up to
// a bounded number.
//
// Thread-safe. A file that was handed out stays open as long as somebody holds it, even if it is no
// longer among those kept open.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// `storage` must outlive whoever reads from it.
struct ReadableFile {
    Storage* storage = nullptr;
    std::string path;
    DirectIo direct = DirectIo::off;
    std::string otherwise;  // its path if it is not there; may be empty
};

class ReadableFiles {
  public:
    explicit ReadableFiles(size_t max_open) : max_open_(max_open) {}

    // Adds a file without opening it, and returns its number.
    uint32_t add(ReadableFile file);

    Result<std::shared_ptr<File>> open(uint32_t number);

    // Opens the first files, as many as are kept open.
    Status open_all();

    // The file's File::route, or `cached` if the file cannot be opened.
    Route route(uint32_t number);
    const std::string& path(uint32_t number) const { return known(number).path; }

  private:
    struct Open {
        uint32_t number = 0;
        std::shared_ptr<File> file;
    };
    const ReadableFile& known(uint32_t number) const;

    const size_t max_open_;
    mutable Mutex mutex_;
    std::deque<ReadableFile> files_ GUARDED_BY(mutex_);  // never move, never change
    std::list<Open> open_ GUARDED_BY(mutex_);            // most recently used first
};

}  // namespace tailrace::internal
