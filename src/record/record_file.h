// RecordFile: a file that grows line by line and never beyond a bound: when the next text would make it
// longer, the file becomes NAME.1 (what had that name goes) and a new one is begun with `head`.
//
// Nothing is synced: a record that a power cut takes is a record less. A failure leaves whole lines, but for
// the last, and what is appended later begins a line of its own. Belongs to one thread at a time; one session
// at a time writes a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "storage/storage.h"

namespace tailrace::internal {

class RecordFile {
  public:
    // The storage must outlive it. The directory is made when the first text comes.
    RecordFile(Storage& storage, std::string path, uint64_t most_bytes)
        : storage_(storage), path_(std::move(path)), most_bytes_(most_bytes) {}

    // What every new file begins with.
    void set_head(std::string head) { head_ = std::move(head); }
    Status append(std::string_view text);

    const std::string& path() const { return path_; }

  private:
    Storage& storage_;
    const std::string path_;
    const uint64_t most_bytes_;
    std::string head_;
};

// Where a job's records go: <directory>/<job>-<hash of the shared directory's path>.jsonl.
std::string record_path(const std::string& directory, const std::string& job, const std::string& shared_dir);

// Removes the oldest record files of a directory, known by such names, beyond `keep`. What cannot be removed
// stays.
void drop_old_records(Storage& storage, const std::string& directory, size_t keep);

}  // namespace tailrace::internal
