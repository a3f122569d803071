// FilePhase: the thread of a global aggregator that reads and writes windows of the file while the
// next ones are exchanged.
//
// Data enters and leaves in images. An image is memory that stands for a window, byte for byte. A
// window is written as a few stretches. A stretch has one run or, if data sieving pays, several
// runs and the holes between them, which are read first. Only holes inside one window are ever
// filled, so aggregators of one call do not touch each other's bytes.
//
// Failures stay in the task. The file's bytes in that window are then undefined, and all others are
// intact.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "requests/requests.h"
#include "storage/storage.h"
#include "threads/queue.h"
#include "threads/worker.h"

namespace tailrace::internal::collective {

// Bytes of a window that are read or written at once.
struct Stretch {
    uint64_t begin = 0, end = 0;
    bool operator==(const Stretch&) const = default;
};

// How wide a hole may be that is read or written along with the bytes around it. 0: no hole is.
struct Sieving {
    uint64_t read_hole_bytes = 0;
    uint64_t write_hole_bytes = 0;
};

enum class Sieve { automatic, always, never };

// Whether a file system of that name (SpaceInfo::file_system) is local: neither behind a network
// nor in user space.
bool is_local(std::string_view file_system);

// The sieving that pays on a file system of that name (SpaceInfo::file_system). On a local file
// system an operation costs about as much as moving some KiB; behind a network or in user space, as
// much as 64 KiB.
Sieving sieving_for(std::string_view file_system, Sieve reads, Sieve writes);

// The stretches of a window's runs. For writes, a hole that holds a whole block of block_bytes
// beyond the file's present end (file_bytes) is never filled, so that holes of a new file stay
// holes. For reads pass UINT64_MAX. A hole before the end may belong to a new file as well, because
// another aggregator may have written behind it. So FilePhase leaves out whole blocks of zeros that
// it has read.
std::vector<Stretch> make_stretches(std::span<const Request> runs, uint64_t hole_bytes, uint64_t file_bytes,
                                    uint64_t block_bytes);

// One window on its way between an image and the file. It belongs to the submitter, and must stay
// until `finished`, together with the targets of its spans.
struct FileTask {
    bool writes = false;
    FileWindow window;
    std::span<std::byte> image;                   // for the window
    std::vector<std::span<const Request>> lists;  // sorted runs to read or write
    std::atomic<bool> finished = false;           // when set, the submitter may read these:
    Status status;
    MergeCounts merged;
    uint64_t runs = 0;                      // after coalescing
    bool at_begin = false, at_end = false;  // whether a run reaches that border of the window
    uint64_t operations = 0;                // operations of the file
    uint64_t file_end = UINT64_MAX;         // where a read met the end of the file; zeros lie beyond
    double seconds = 0;
};

class FilePhase {
  public:
    // The thread calls `wake` whenever a task has finished. It calls `open_file` at once, whether
    // or not there will be a task, and before every task.
    using OpenFile = std::function<Result<File*>()>;
    FilePhase(OpenFile open_file, Sieving sieving, uint64_t block_bytes, std::function<void()> wake);
    ~FilePhase();

    void submit(FileTask* task);

    // The memory that it holds to fill holes: at most as much as a window. Do not call while a task
    // is under way.
    uint64_t memory_bytes() const { return spare_.size(); }

  private:
    void run();
    Status carry_out(File& file, FileTask& task);
    Status write(File& file, FileTask& task, const std::vector<Request>& runs);
    Status read(File& file, FileTask& task, const std::vector<Request>& runs);
    Status write_stretch(File& file, FileTask& task, std::span<const Request> runs);

    const OpenFile open_file_;
    const Sieving sieving_;
    const uint64_t block_bytes_;
    const std::function<void()> wake_;
    BoundedQueue<FileTask*> tasks_;
    std::vector<std::byte> spare_;  // bytes around holes
    Worker worker_;                 // last: its thread uses all of the above
};

}  // namespace tailrace::internal::collective
