#include "aggregate/local_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "threads/mutex.h"

namespace tailrace::internal {

LocalReader::LocalReader(Storage& storage, std::vector<LocalStream> streams, uint64_t chunk_bytes)
    : storage_(storage), streams_(std::move(streams)), chunk_bytes_(chunk_bytes) {
    skip_finished();
}

void LocalReader::skip_finished() {
    while (stream_ < streams_.size() && offset_ >= streams_[stream_].info.stream_bytes) {
        ++stream_;
        offset_ = 0;
    }
}

std::optional<LocalChunk> LocalReader::next() {
    if (at_end()) return std::nullopt;
    const StreamInfo& info = streams_[stream_].info;
    LocalChunk chunk{stream_, info.rank, offset_, std::min(chunk_bytes_, info.stream_bytes - offset_)};
    offset_ += chunk.bytes;
    skip_finished();
    return chunk;
}

Status LocalReader::read(const LocalChunk& chunk, std::span<std::byte> target) {
    const LocalStream& stream = streams_[chunk.stream];
    TAILRACE_ASSIGN(auto file, file_of(stream.path));
    const uint64_t offset = stream.path_offset + chunk.stream_offset;
    TAILRACE_ASSIGN(const size_t bytes, file->read_at(target, offset));
    if (bytes != target.size()) {
        return Status(Code::corrupt,
                      fmt::format("reading {} bytes at offset {} of the captured part {}: only {} are there",
                                  target.size(), offset, stream.path, bytes));
    }
    return Status();
}

Result<LocalBytes> LocalReader::fetch(const LocalChunk& chunk, uint64_t block_bytes,
                                      std::span<std::byte> target) {
    const LocalStream& stream = streams_[chunk.stream];
    TAILRACE_ASSIGN(auto file, file_of(stream.path));
    const uint64_t whole_bytes = chunk.bytes / block_bytes * block_bytes;
    auto view = file->view(stream.path_offset + chunk.stream_offset, whole_bytes);
    LocalChunk rest = chunk;
    // A view only saves a copy. Without one, for example for want of address space, the chunk is
    // read.
    const std::byte* blocks = view.ok() ? view->get() : nullptr;
    if (blocks != nullptr) {
        rest.stream_offset += whole_bytes;
        rest.bytes -= whole_bytes;
    }
    if (rest.bytes > 0) TAILRACE_TRY(read(rest, target.first(rest.bytes)));
    if (blocks == nullptr) return LocalBytes{nullptr, {}, rest.bytes};
    return LocalBytes{*view, {blocks, whole_bytes}, rest.bytes};
}

Status LocalReader::reason(const LocalChunk& chunk, const LocalBytes& fetched, const Status& failure,
                           std::span<std::byte> target) {
    if (!fetched.view || failure.code() != Code::io_error) return failure;
    Status unread = read(chunk, target.first(chunk.bytes));
    return unread.ok() ? failure : unread;
}

Result<std::shared_ptr<File>> LocalReader::file_of(const std::string& path) {
    MutexLock lock(mutex_);
    std::shared_ptr<File>& file = files_[path];
    if (!file) {
        auto opened = storage_.open(path, {Access::read, DirectIo::off});
        if (opened.status().code() == Code::not_found)
            return Status(Code::corrupt,
                          fmt::format("a captured part is missing: {}", opened.status().message()));
        TAILRACE_TRY(opened.status());
        file = std::move(*opened);
    }
    return file;
}

}  // namespace tailrace::internal
