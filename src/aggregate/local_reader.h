// LocalReader: a node's captured streams, chunk by chunk (Algorithm 4).
//
// next() only advances a position and belongs to the owner's thread; read() does the I/O and may be called
// from any number of writers at once. Files are opened at their first chunk and closed with the reader.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aggregate/aggregator.h"
#include "storage/storage.h"

namespace tailrace {

struct LocalChunk {
    size_t stream = 0;  // number within the reader
    uint32_t rank = 0;
    uint64_t stream_offset = 0;  // a multiple of chunk_bytes
    uint64_t bytes = 0;          // chunk_bytes, or less at the end of a stream; never 0
};

class LocalReader {
  public:
    // The storage must outlive the reader.
    LocalReader(Storage& storage, std::vector<LocalStream> streams, uint64_t chunk_bytes);

    // Nothing once every stream has been handed out.
    std::optional<LocalChunk> next();
    bool at_end() const { return stream_ == streams_.size(); }

    // Fills `target` (exactly chunk.bytes). io_error when the captured part is shorter than it should be.
    Status read(const LocalChunk& chunk, std::span<std::byte> target);

  private:
    Result<std::shared_ptr<File>> file_of(const std::string& path);
    void skip_finished();

    Storage& storage_;
    const std::vector<LocalStream> streams_;
    const uint64_t chunk_bytes_;
    size_t stream_ = 0;  // the next chunk's
    uint64_t offset_ = 0;

    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<File>> files_;  // guarded by mutex_
};

}  // namespace tailrace
