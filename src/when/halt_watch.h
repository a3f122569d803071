// HaltWatch: looks for the halt file, at rank 0, about once a second while the program asks.
//
// A thread of its own does that, because the shared directory may answer late, and neither the
// program nor messages must wait for it. Any thread may call any member. finish() ends the thread.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "storage/storage.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"
#include "when/halt_file.h"

namespace tailrace::internal {

class HaltWatch {
  public:
    // `storage` must outlive it.
    HaltWatch(Storage& storage, std::string directory)
        : storage_(storage), directory_(std::move(directory)) {}
    ~HaltWatch() { finish(); }

    // The program asks. Orders a look if the last one began a second ago or earlier, and returns
    // what the last one has found. The first call starts the thread.
    std::optional<Halt> ask(Priority priority);
    // The order has been obeyed: removes the file, unless it holds another order by now.
    void obeyed(const Halt& halt);
    void finish() { looking_.finish(); }

  private:
    void look();

    Storage& storage_;
    const std::string directory_;
    Mutex mutex_;
    bool begun_ GUARDED_BY(mutex_) = false;
    bool under_way_ GUARDED_BY(mutex_) = false;
    std::optional<SteadyClock::time_point> looked_ GUARDED_BY(mutex_);
    std::optional<Halt> found_ GUARDED_BY(mutex_);
    std::string complaint_ GUARDED_BY(mutex_);  // what was said last, so that it is said once
    WorkQueue looking_;
};

}  // namespace tailrace::internal
