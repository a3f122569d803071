// LocalReader: hands out a node's captured streams chunk by chunk (Algorithm 4).
//
// next() only advances a position, and belongs to the owner's thread. read() and fetch() do the
// I/O; any number of writers may call them at once. Files are opened at their first chunk and
// closed with the reader. corrupt means that a captured part is lost: it is missing, or shorter
// than it was.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flush/flush_job.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

struct LocalChunk {
    size_t stream = 0;  // number within the reader
    uint32_t rank = 0;
    uint64_t stream_offset = 0;  // a multiple of chunk_bytes
    uint64_t bytes = 0;          // chunk_bytes, or less at the end of a stream; never 0
};

// A chunk's bytes. Whole blocks may lie in memory already; the rest of the chunk, or all of it, is
// in a buffer.
struct LocalBytes {
    View view;  // keeps `blocks` valid
    std::span<const std::byte> blocks{};
    uint64_t buffered_bytes = 0;  // what follows the blocks, at the start of the buffer
};

class LocalReader {
  public:
    // The storage must outlive the reader.
    LocalReader(Storage& storage, std::vector<LocalStream> streams, uint64_t chunk_bytes);

    // Empty once every stream has been handed out.
    std::optional<LocalChunk> next();
    bool at_end() const { return stream_ == streams_.size(); }

    // Fills `target`, which has exactly chunk.bytes.
    Status read(const LocalChunk& chunk, std::span<std::byte> target);

    // As read(), for a chunk that is to be written. If the captured part is in memory already, its
    // whole blocks of `block_bytes` are taken from there, and only the rest goes to `target`. The
    // caller may write the blocks to a file, but may not read them (File::view).
    Result<LocalBytes> fetch(const LocalChunk& chunk, uint64_t block_bytes, std::span<std::byte> target);

    // Why a chunk that was fetched could not be written. If the captured part was cut short under
    // its view, the system only says that memory was bad (EFAULT). Then this returns what reading
    // the part says, otherwise `failure`. `target` is the one of fetch(); its content is lost.
    Status reason(const LocalChunk& chunk, const LocalBytes& fetched, const Status& failure,
                  std::span<std::byte> target);

  private:
    Result<std::shared_ptr<File>> file_of(const std::string& path);
    void skip_finished();

    Storage& storage_;
    const std::vector<LocalStream> streams_;
    const uint64_t chunk_bytes_;
    size_t stream_ = 0;  // of the next chunk
    uint64_t offset_ = 0;

    Mutex mutex_;
    std::map<std::string, std::shared_ptr<File>> files_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
