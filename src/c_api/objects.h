// What stands behind the opaque types of tailrace.h.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "c_api/call.h"
#include "c_api/handles.h"
#include "checkpoint/checkpointer.h"
#include "config/config.h"
#include "tailrace.h"

// Files are read when they are loaded; keys set in code are kept apart, because the environment comes
// between.
struct tailrace_options {
    tailrace::Config from_files;
    bool has_file = false;
    std::vector<std::pair<std::string, std::string>> from_code;
};

// A session's readers use what belongs to the session, so it ends them when it is closed before them.
struct tailrace_reader {
    std::shared_ptr<tailrace::Storage> storage;  // of a reader without a session
    std::mutex mutex;                            // guards `reader`
    std::shared_ptr<tailrace::EpochReader> reader;

    // Null once the session is closed.
    std::shared_ptr<tailrace::EpochReader> get() {
        std::lock_guard lock(mutex);
        return reader;
    }
    void end() {
        std::lock_guard lock(mutex);
        reader = nullptr;
    }
};

// Destroyed from the last member to the first: storages and transport outlive the checkpointer.
struct tailrace_session {
    std::shared_ptr<tailrace::Transport> transport;
    std::shared_ptr<tailrace::Storage> local, shared;
    std::unique_ptr<tailrace::Checkpointer> checkpointer;
    std::mutex mutex;  // guards `readers`
    std::vector<std::weak_ptr<tailrace_reader>> readers;
};

namespace tailrace {

// The object behind a handle, or why there is none. `what` is "session", "reader" or "options".
template <class Object>
Result<std::shared_ptr<Object>> alive(const Object* handle, const char* what) {
    TAILRACE_TRY(not_null(handle, what));
    std::shared_ptr<Object> object = HandleTable<Object>::instance().find(handle);
    if (object == nullptr)
        return Status(Code::failed_state,
                      fmt::format("this {} has been closed, or never was one; nothing was done", what));
    return object;
}

// The settings of a session: defaults, files, environment, code, completed for that many ranks.
Result<Config> settings_of(const tailrace_options* options, int rank_count);

Result<ArrayPiece> to_piece(const tailrace_array* array);
void to_c(const EpochInfo& info, tailrace_epoch_info& out);
void to_c(const Region& region, tailrace_region_info& out);

}  // namespace tailrace
