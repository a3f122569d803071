// FilePhase: the thread of a global aggregator that reads and writes windows of the file, beside the exchange
// of the next ones.
//
// Data enters and leaves in images: memory that stands for a window, byte for byte. A window is written as
// few segments: one per run, or, where data sieving pays, one over several runs and the holes between them,
// which are read first. Only the holes inside one window are ever filled, so aggregators of one call do not
// touch each other's bytes.
//
// Failures stay in the task; the file's bytes in that window are then undefined, all else is intact.
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

// A part of a window that is read or written at once.
struct Segment {
    uint64_t begin = 0, end = 0;
    bool operator==(const Segment&) const = default;
};

// How wide a hole may be that is read or written along with what lies around it, in bytes; 0: none.
struct Sieving {
    uint64_t read_hole_bytes = 0;
    uint64_t write_hole_bytes = 0;
};

enum class Sieve { automatic, always, never };

// Of a file system by its name (SpaceInfo::file_system): not behind a network, and not in user space.
bool is_local(std::string_view file_system);

// What pays on a file system of that name (SpaceInfo::file_system). An operation on a local file system costs
// about as much as moving some KiB; one on a file system behind a network or in user space as much as 64 KiB.
Sieving sieving_for(std::string_view file_system, Sieve reads, Sieve writes);

// The segments of a window's runs. A hole that holds a whole block of block_bytes beyond the file's present
// end (file_bytes) is never filled when writing: holes of a new file stay holes. For reads pass UINT64_MAX.
// What is before the end may be a hole of a new file all the same, as another aggregator may have written
// behind it: FilePhase leaves out whole blocks of zeros that it has read.
std::vector<Segment> make_segments(std::span<const Request> runs, uint64_t hole_bytes, uint64_t file_bytes,
                                   uint64_t block_bytes);

// One window on its way between an image and the file. Belongs to whoever submits it, and must stay, with
// what its spans point to, until `finished`.
struct FileTask {
    bool writes = false;
    FileWindow window;
    std::span<std::byte> image;                   // of the window
    std::vector<std::span<const Request>> lists;  // sorted runs; what is read or written
    std::atomic<bool> finished = false;           // after it, for the submitter to see:
    Status status;
    MergeCounts merged;
    uint64_t runs = 0;                      // after coalescing
    bool at_begin = false, at_end = false;  // of the window: does a run reach its border?
    uint64_t operations = 0;                // of the file
    uint64_t file_end = UINT64_MAX;         // a read met the end of the file: what lies beyond is zeros
    double seconds = 0;
};

class FilePhase {
  public:
    // `wake` is called from the thread whenever a task has finished. `open_file` is called in the thread at
    // once, whether or not there will be a task, and before every task.
    using OpenFile = std::function<Result<File*>()>;
    FilePhase(OpenFile open_file, Sieving sieving, uint64_t block_bytes, std::function<void()> wake);
    ~FilePhase();

    void submit(FileTask* task);

    // What it holds for the filling of holes: as much as a window at most. Not while a task is under way.
    uint64_t memory_bytes() const { return spare_.size(); }

  private:
    void run();
    Status carry_out(File& file, FileTask& task);
    Status write(File& file, FileTask& task, const std::vector<Request>& runs);
    Status read(File& file, FileTask& task, const std::vector<Request>& runs);
    Status write_segment(File& file, FileTask& task, std::span<const Request> runs);

    const OpenFile open_file_;
    const Sieving sieving_;
    const uint64_t block_bytes_;
    const std::function<void()> wake_;
    BoundedQueue<FileTask*> tasks_;
    std::vector<std::byte> spare_;  // what lies around holes
    Worker worker_;                 // last: its thread uses all of the above
};

}  // namespace tailrace::internal::collective
