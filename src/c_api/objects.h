// The objects behind the opaque types of tailrace.h.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_api/call.h"
#include "c_api/handles.h"
#include "config/config.h"
#include "files/own_files.h"
#include "session/checkpointer.h"
#include "tailrace.h"
#include "threads/mutex.h"

// Files are read when they are loaded. Keys set in code are kept apart, because the environment
// comes between them.
struct tailrace_options {
    tailrace::internal::Config from_files;
    bool has_file = false;
    std::vector<std::pair<std::string, std::string>> from_code;
};

// A session's readers use members of the session. So the session ends them if it is closed before
// them.
struct tailrace_reader {
    const pid_t process = getpid();
    std::shared_ptr<tailrace::internal::Storage> storage;  // if the reader has no session
    tailrace::internal::Mutex mutex;                       // guards `reader`
    std::shared_ptr<tailrace::internal::EpochReader> reader GUARDED_BY(mutex);
    std::string passed_over;  // a copy: the program's pointer to it may outlive the EpochReader

    void begin(std::shared_ptr<tailrace::internal::EpochReader> opened) {
        passed_over = opened->passed_over();
        tailrace::internal::MutexLock lock(mutex);
        reader = std::move(opened);
    }
    // Null once the session is closed.
    std::shared_ptr<tailrace::internal::EpochReader> get() {
        tailrace::internal::MutexLock lock(mutex);
        return reader;
    }
    void end() {
        tailrace::internal::MutexLock lock(mutex);
        reader = nullptr;
    }
};

// Members are destroyed from last to first, so storages and transport outlive the checkpointer.
struct tailrace_session {
    const pid_t process = getpid();
    std::shared_ptr<tailrace::internal::Transport> transport;
    std::shared_ptr<tailrace::internal::Storage> local, shared;
    std::unique_ptr<tailrace::internal::Checkpointer> checkpointer;
    std::unique_ptr<tailrace::internal::OwnFiles> files;
    tailrace::internal::Mutex mutex;  // guards the readers that end with the session, and the reason to stop
    std::vector<std::weak_ptr<tailrace_reader>> readers GUARDED_BY(mutex);
    bool closed GUARDED_BY(mutex) = false;  // if set, no reader is added any more
    // Set once and never changed, because the program has a pointer to its text.
    std::optional<std::string> stop_reason GUARDED_BY(mutex);
};

namespace tailrace::internal {

// The object behind a handle, or the reason why there is none. `what` is "session", "reader" or
// "options". A fork does not copy the threads and queues behind sessions and readers. In the child
// nothing would do the work or end a wait, and it may not recycle its parent's captured parts. So
// the child gets an error.
template <class Object>
Result<std::shared_ptr<Object>> alive(const Object* handle, const char* what) {
    TAILRACE_TRY(not_null(handle, what));
    std::shared_ptr<Object> object = HandleTable<Object>::instance().find(handle);
    if (object == nullptr)
        return Status(Code::failed_state,
                      fmt::format("this {} has been closed, or was never opened; nothing was done", what));
    if constexpr (requires { object->process; }) {
        if (object->process != getpid())
            return Status(
                Code::failed_state,
                fmt::format("this {} belongs to process {}, which opened it; this process is its child; "
                            "nothing was done",
                            what, object->process));
    }
    return object;
}

// An epoch as the interface takes it. Nothing stands for TAILRACE_NEWEST.
inline std::optional<uint64_t> epoch_or_newest(uint64_t epoch) {
    return epoch == TAILRACE_NEWEST ? std::nullopt : std::optional(epoch);
}

// For collective calls. A mistake in one rank's arguments fails the call on every rank, because the
// others would wait for that rank. Collective.
Status agree_on_arguments(tailrace_session& session, const Status& mine);

// A reader that the session ends when it is closed, if the reader is still there. The caller closes it.
Result<tailrace_reader*> reader_of(tailrace_session& session, std::unique_ptr<EpochReader> opened);

// The settings of a session: defaults, files, environment, code, completed for that many ranks.
Result<Config> settings_of(const tailrace_options* options, int rank_count);

// invalid_argument if it is no tailrace_type.
Result<ElementType> to_type(const tailrace_type& given);
Result<ArrayPiece> to_piece(const tailrace_array* array);
// The layout of an array that to_piece has accepted.
MemoryLayout to_layout(const tailrace_array& array);
void to_c(const EpochInfo& info, tailrace_epoch_info& out);
void to_c(const Region& region, tailrace_region_info& out);

}  // namespace tailrace::internal
