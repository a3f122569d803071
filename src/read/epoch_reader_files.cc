#include "read/epoch_reader_files.h"

#include <algorithm>

#include "catalog/catalog.h"
#include "threads/mutex.h"

namespace tailrace::internal {

uint32_t ReadableFiles::add(ReadableFile file) {
    MutexLock lock(mutex_);
    files_.push_back(std::move(file));
    return static_cast<uint32_t>(files_.size() - 1);
}

const ReadableFile& ReadableFiles::known(uint32_t number) const {
    MutexLock lock(mutex_);
    return files_[number];
}

Result<std::shared_ptr<File>> ReadableFiles::open(uint32_t number) {
    const auto is_it = [number](const Open& entry) { return entry.number == number; };
    {
        MutexLock lock(mutex_);
        auto found = std::find_if(open_.begin(), open_.end(), is_it);
        if (found != open_.end()) {
            open_.splice(open_.begin(), open_, found);
            return open_.front().file;
        }
    }
    // Open outside the lock, because opening on a remote file system takes time. Two threads may
    // both open the file; then the second one's handle is kept.
    const ReadableFile& of = known(number);
    auto opened = open_shared_file(*of.storage, of.path, of.direct);
    if (opened.status().code() == Code::not_found && !of.otherwise.empty()) {
        auto moved = open_shared_file(*of.storage, of.otherwise, of.direct);
        if (moved.ok()) opened = std::move(moved);
    }
    // Something else has taken the file's place, such as a directory.
    if (opened.status().code() == Code::invalid_argument)
        return Status(Code::corrupt, opened.status().message());
    TAILRACE_TRY(opened.status());
    std::shared_ptr<File> file = std::move(*opened);
    std::list<Open> closing;  // destroyed, and so closed, after the lock is released
    MutexLock lock(mutex_);
    auto found = std::find_if(open_.begin(), open_.end(), is_it);
    if (found != open_.end()) closing.splice(closing.begin(), open_, found);
    open_.push_front({number, file});
    if (open_.size() > max_open_) closing.splice(closing.begin(), open_, std::prev(open_.end()));
    return file;
}

Route ReadableFiles::route(uint32_t number) {
    const auto file = open(number);
    return file.ok() ? (*file)->route() : Route::cached;
}

Status ReadableFiles::open_all() {
    uint32_t count = 0;
    {
        MutexLock lock(mutex_);
        count = static_cast<uint32_t>(std::min(files_.size(), max_open_));
    }
    for (uint32_t number = 0; number < count; ++number) TAILRACE_TRY(open(number).status());
    return {};
}

}  // namespace tailrace::internal
