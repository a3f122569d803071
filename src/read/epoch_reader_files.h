// The files an epoch reader reads from, opened when first needed and kept open, a bounded number at a time.
//
// Thread-safe. A file handed out stays open as long as somebody holds it, also when the cache let it go.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class ReadableFiles {
  public:
    explicit ReadableFiles(size_t most_open) : most_open_(most_open) {}

    // Adds a file, without opening it; its number. Not while open() may run. `storage` must outlive this.
    uint32_t add(Storage& storage, std::string path, DirectIo direct);

    Result<std::shared_ptr<File>> open(uint32_t number);

    // Opens the first ones, as many as are kept open.
    Status open_all();

    // File::route; cached for a file that cannot be opened.
    Route route(uint32_t number);
    const std::string& path(uint32_t number) const { return files_[number].path; }

  private:
    struct Known {
        Storage* storage = nullptr;
        std::string path;
        DirectIo direct = DirectIo::off;
    };
    struct Open {
        uint32_t number = 0;
        std::shared_ptr<File> file;
    };

    const size_t most_open_;
    std::vector<Known> files_;
    Mutex mutex_;
    std::list<Open> open_ GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace tailrace::internal
