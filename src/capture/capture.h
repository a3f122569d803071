// Capture: one pass over a rank's regions into a file of the node-local tier, copy and checksum together.
//
// Invariants: nothing under a final part name is ever incomplete: the stream is written first, the header
// last, under the name with ".unfinished", and the rename comes after. A part that is recycled gets that name
// before the first byte of it changes, and loses its header. After a failure the part is gone and no other
// was touched.
//
// On file systems in memory the part is mapped and copied into; since fresh pages cost more than the copy,
// the file and mapping of a part that is no longer needed can be recycled. Elsewhere it is written.
//
// Not thread-safe: one capture at a time. It brings its own helpers for large regions.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/strides.h"
#include "base/status.h"
#include "base/worker.h"
#include "format/manifest.h"
#include "format/part_file.h"
#include "storage/storage.h"

namespace tailrace {

// A region of the program's memory, as it is registered now. `memory` begins with its first byte and is as
// long as the region; where strides are given the bytes lie by these.
struct RegionSource {
    std::string name;
    std::span<const std::byte> memory;
    std::optional<ArrayPiece> array;
    Strides strides = {};
};

// A part in the node-local tier that this rank has written.
struct OwnPart {
    EpochKey key;
    std::string path;
    StreamInfo stream;
    std::unique_ptr<File> file;    // kept open when mapped
    std::span<std::byte> mapping;  // of the file, at least header and stream; empty when not mapped
};

// Threads that share a number of equal pieces of work with the caller.
class CopyTeam {
  public:
    explicit CopyTeam(size_t helpers);
    ~CopyTeam();
    // Calls work(i) for every i below count, from the caller and the helpers. Returns when all calls are
    // over, because `work` uses what its maker has on the stack. If calls threw, the first exception is
    // thrown on.
    void run(size_t count, const std::function<void(size_t)>& work);
    size_t threads() const { return helpers_.size() + 1; }

  private:
    void help(const std::stop_token& stop);
    void take(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;
    std::condition_variable has_work_, done_;
    const std::function<void(size_t)>* work_ = nullptr;
    size_t count_ = 0, next_ = 0, finished_ = 0;
    std::exception_ptr thrown_;
    bool stopping_ = false;
    std::vector<Worker> helpers_;  // last: they use the members above
};

class Capture {
  public:
    struct Options {
        std::string directory;  // exists, and is made again should it be removed
        uint32_t threads = 1;
        bool checksum = true;
        bool sync = false;  // also sync file and directory, for tiers that survive a power cut
    };
    // `storage` must outlive the capture and every OwnPart it made.
    Capture(Storage& storage, Options options);
    ~Capture();

    // Whether these regions can be captured at all; touches nothing.
    Status check(const PartHeader& header, std::span<const RegionSource> regions) const;

    // header: everything but `stream`, whose rank must be set. `recycled`: a part whose space may be used;
    // it is gone in any case, also after a failure.
    Result<OwnPart> capture(PartHeader header, std::span<const RegionSource> regions,
                            std::optional<OwnPart> recycled);

  private:
    struct Piece;  // of work
    struct Sink;   // where the stream goes
    PartManifest manifest_of(const PartHeader& header, std::span<const RegionSource> regions) const;
    Result<std::unique_ptr<File>> open_unfinished(const std::string& path);
    bool take_over(const OwnPart& recycled, uint64_t file_bytes, const std::string& unfinished_path);
    Result<OwnPart> write_part(const PartHeader& header, PartManifest& manifest,
                               std::span<const RegionSource> regions, std::optional<OwnPart> recycled,
                               const std::string& unfinished_path);
    Status copy_regions(PartManifest& manifest, std::span<const RegionSource> regions, const Sink& sink);
    Status with_space(Status failure, uint64_t needed) const;

    Storage& storage_;
    const Options options_;
    std::unique_ptr<CopyTeam> team_;  // made when the first large capture comes
};

}  // namespace tailrace
