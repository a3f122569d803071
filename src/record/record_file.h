// RecordFile: a file that grows line by line, up to a bound. When the next text would make it too
// long, the file is renamed to NAME.1, which replaces an earlier NAME.1, and a new one is begun
// with `head`.
//
// Nothing is synced: after a power cut some records may be missing. A failure leaves whole lines,
// except for the last one, and later text begins a new line. Belongs to one thread at a time. One
// session at a time writes a file.
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
    RecordFile(Storage& storage, std::string path, uint64_t max_bytes)
        : storage_(storage), path_(std::move(path)), max_bytes_(max_bytes) {}

    // Sets what every new file begins with.
    void set_head(std::string head) { head_ = std::move(head); }
    Status append(std::string_view text);

    const std::string& path() const { return path_; }

  private:
    Storage& storage_;
    const std::string path_;
    const uint64_t max_bytes_;
    std::string head_;
};

// Where a job's records go: <directory>/<job>-<hash of the shared directory's path>.jsonl.
std::string record_path(const std::string& directory, const std::string& job, const std::string& shared_dir);

// Removes the oldest record files of a directory, known by their names, beyond `keep`. Files that
// cannot be removed stay.
void drop_old_records(Storage& storage, const std::string& directory, size_t keep);

}  // namespace tailrace::internal
