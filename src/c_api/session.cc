// Sessions: the calls of tailrace.h onto Checkpointer. The core checks names, sizes and epochs. The
// checks here are for mistakes that cannot occur there, such as NULL.
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "agent_process/agent_door.h"
#include "base/log.h"
#include "c_api/objects.h"
#include "c_api/open_session.h"

using namespace tailrace::internal;

namespace tailrace::internal {

namespace {

Result<ResizableMemory> resizable(tailrace_find_function find, tailrace_resize_function resize, void* user) {
    TAILRACE_TRY(not_null(reinterpret_cast<const void*>(find), "find"));
    TAILRACE_TRY(not_null(reinterpret_cast<const void*>(resize), "resize"));
    ResizableMemory memory;
    memory.find = [find, user] {
        uint64_t bytes = 0;
        void* const begin = find(user, &bytes);
        return std::span(static_cast<std::byte*>(begin), bytes);
    };
    memory.resize = [resize, user](uint64_t bytes) { return resize(user, bytes) == 0; };
    return memory;
}

// What a rank does before the session is opened.
Result<Config> prepare(const tailrace_options* options, tailrace_session& session) {
    TAILRACE_ASSIGN(auto config, settings_of(options, session.transport->size()));
    SystemStorageOptions local;
    // Program threads write the node-local tier by plain copies, for which queues gain nothing.
    local.engine = IoEngine::posix;
    local.rules.own_in = config.local_dir;
    TAILRACE_ASSIGN(session.local, make_system_storage(local));
    SystemStorageOptions shared;
    shared.engine = config.io_engine;
    shared.queue_depth = config.queue_depth;
    TAILRACE_ASSIGN(session.shared, make_system_storage(shared));
    return config;
}

// Collective. It succeeds on all ranks, or on none.
Status open(const tailrace_options* options, const std::shared_ptr<Transport>& transport,
            tailrace_session** session) {
    TAILRACE_TRY(not_null(transport.get(), "transport"));
    // Lives longer than the common call: an open session is closed by all ranks together.
    std::shared_ptr<tailrace_session> opened;
    const tailrace_session* handle = nullptr;
    const Status done = together(*transport, [&]() -> Status {
        TAILRACE_TRY(not_null(session, "session"));
        *session = nullptr;
        opened = std::make_shared<tailrace_session>();
        opened->transport = transport;
        TAILRACE_ASSIGN(auto config, prepare(options, *opened));
        TAILRACE_ASSIGN(opened->checkpointer, Checkpointer::open(std::move(config), transport, opened->local,
                                                                 opened->shared, &system_agent_door()));
        opened->files = std::make_unique<OwnFiles>(*opened->checkpointer, *opened->local);
        handle = HandleTable<tailrace_session>::instance().add(opened);
        return {};
    });
    if (done.ok())
        *session = opened.get();
    else if (handle != nullptr)
        HandleTable<tailrace_session>::instance().take(handle);
    return done;
}

constexpr std::chrono::milliseconds shortest_wait(1);

// Converts the seconds of the C interface, where less than zero waits for ever, to the milliseconds
// of the core, where zero or less does.
Result<std::chrono::milliseconds> to_milliseconds(double seconds) {
    if (std::isnan(seconds)) return Status(Code::invalid_argument, "the time to wait is not a number");
    if (seconds < 0) return std::chrono::milliseconds(-1);
    constexpr double longest_seconds = 1e9;  // thirty years
    const double milliseconds = std::ceil(std::min(seconds, longest_seconds) * 1e3);
    return std::max(shortest_wait, std::chrono::milliseconds(static_cast<int64_t>(milliseconds)));
}

// Runs `work(checkpointer)` on a session that is alive.
template <class Work>
tailrace_code on_session(tailrace_session* handle, Work&& work) noexcept {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto session, alive(handle, "session"));
        return work(*session->checkpointer);
    });
}

Status restore(Checkpointer& checkpointer, uint64_t epoch, std::span<const std::string> names,
               uint64_t* restored) {
    TAILRACE_ASSIGN(const uint64_t found, checkpointer.restore(epoch_or_newest(epoch), names));
    if (restored != nullptr) *restored = found;
    return {};
}

}  // namespace

Status agree_on_arguments(tailrace_session& session, const Status& mine) {
    const Status all = agree(*session.transport, mine);
    return mine.ok() ? all : mine;
}

void log_warning(const std::string& sentence) {
    log(LogLevel::warning, "{}", sentence);
}

tailrace_code open_session(const tailrace_options* options, std::shared_ptr<Transport> transport,
                           tailrace_session** session) {
    return call([&] { return open(options, transport, session); });
}

}  // namespace tailrace::internal

tailrace_code tailrace_open(const tailrace_options* options, tailrace_session** session) {
    return call([&]() -> Status {
        TAILRACE_TRY(not_null(session, "session"));
        *session = nullptr;
        return open(options, make_single_transport(), session);
    });
}

tailrace_code tailrace_close(tailrace_session* handle) {
    return call([&]() -> Status {
        if (handle == nullptr) return {};
        TAILRACE_TRY(alive(handle, "session").status());
        std::shared_ptr<tailrace_session> session = HandleTable<tailrace_session>::instance().take(handle);
        if (session == nullptr) return {};  // another thread was faster
        std::vector<std::weak_ptr<tailrace_reader>> readers;
        {
            MutexLock lock(session->mutex);
            readers.swap(session->readers);
            session->closed = true;
        }
        for (const auto& weak : readers) {
            if (auto reader = weak.lock()) reader->end();
        }
        session->files->end();
        return session->checkpointer->close();
    });
}

std::weak_ptr<tailrace_session> tailrace::internal::watch_session(const tailrace_session* session) {
    return HandleTable<tailrace_session>::instance().find(session);
}

void tailrace::internal::close_if_open(const std::weak_ptr<tailrace_session>& watched,
                                       const char* by) noexcept {
    const auto session = watched.lock();
    if (session == nullptr || !alive(session.get(), "session").ok()) return;
    log(LogLevel::warning,
        "{} was called while a session was open, so the session is closed now. To learn of failures, "
        "call tailrace_close first",
        by);
    if (tailrace_close(session.get()) != TAILRACE_OK)
        log(LogLevel::error, "closing a session in {}: {}", by, tailrace_last_error());
}

int tailrace_rank(const tailrace_session* handle) {
    return call_for(-1, [&] {
        auto session = alive(handle, "session");
        return session.ok() ? (*session)->checkpointer->rank() : -1;
    });
}

int tailrace_rank_count(const tailrace_session* handle) {
    return call_for(0, [&] {
        auto session = alive(handle, "session");
        return session.ok() ? (*session)->checkpointer->rank_count() : 0;
    });
}

const char* tailrace_setting(const tailrace_session* handle, const char* key) {
    thread_local std::string value;
    return call_for<const char*>(nullptr, [&]() -> const char* {
        auto session = alive(handle, "session");
        if (!session.ok() || key == nullptr) return nullptr;
        auto found = get_config((*session)->checkpointer->config(), key);
        if (!found.ok()) return nullptr;
        value = std::move(*found);
        return value.c_str();
    });
}

tailrace_code tailrace_register(tailrace_session* session, const char* name, void* memory, uint64_t bytes) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        return checkpointer.register_region(name, memory, bytes);
    });
}

tailrace_code tailrace_register_array(tailrace_session* session, const char* name, void* memory,
                                      const tailrace_array* array) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        TAILRACE_ASSIGN(const auto piece, to_piece(array));
        return checkpointer.register_array(name, memory, piece, to_layout(*array));
    });
}

tailrace_code tailrace_register_replicated(tailrace_session* session, const char* name, void* memory,
                                           uint64_t bytes) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        if (bytes == 0)
            return Status(
                Code::invalid_argument,
                fmt::format("replicated value \"{}\": it has no bytes; nothing was registered", name));
        const uint64_t begin = 0;
        tailrace_array whole{};
        whole.type = TAILRACE_BYTES;
        whole.dimensions = 1;
        whole.global_shape = whole.local_shape = &bytes;
        whole.offset = &begin;
        whole.flags = TAILRACE_ARRAY_OVERLAP;
        TAILRACE_ASSIGN(const auto piece, to_piece(&whole));
        return checkpointer.register_array(name, memory, piece, to_layout(whole));
    });
}

tailrace_code tailrace_register_resizable(tailrace_session* session, const char* name,
                                          tailrace_find_function find, tailrace_resize_function resize,
                                          void* user) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        TAILRACE_ASSIGN(auto memory, resizable(find, resize, user));
        return checkpointer.register_resizable(name, std::move(memory));
    });
}

tailrace_code tailrace_register_list(tailrace_session* session, const char* name, tailrace_type type,
                                     uint64_t width, tailrace_find_function find,
                                     tailrace_resize_function resize, void* user) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        TAILRACE_ASSIGN(const auto element, to_type(type));
        if (width == 0 || width > max_stream_bytes / element_bytes(element))
            return Status(Code::invalid_argument,
                          fmt::format("list \"{}\": an item of {} elements: 1 to {} are possible; nothing "
                                      "was done",
                                      name, width, max_stream_bytes / element_bytes(element)));
        TAILRACE_ASSIGN(auto memory, resizable(find, resize, user));
        return checkpointer.register_list(name, {element, width}, std::move(memory));
    });
}

tailrace_code tailrace_set_list_owner(tailrace_session* session, const char* name,
                                      tailrace_owner_function owner, void* user) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        ListOwner chosen;
        if (owner != nullptr)
            chosen = [owner, user](uint64_t index, uint64_t items, int rank_count) {
                return owner(user, index, items, rank_count);
            };
        return checkpointer.set_list_owner(name, std::move(chosen));
    });
}

tailrace_code tailrace_update(tailrace_session* session, const char* name, void* memory, uint64_t bytes) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        return checkpointer.update_region(name, memory, bytes);
    });
}

tailrace_code tailrace_update_array(tailrace_session* session, const char* name, void* memory,
                                    const tailrace_array* array) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        TAILRACE_ASSIGN(const auto piece, to_piece(array));
        return checkpointer.update_array(name, memory, piece, to_layout(*array));
    });
}

tailrace_code tailrace_unregister(tailrace_session* session, const char* name) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(name, "name"));
        return checkpointer.unregister(name);
    });
}

tailrace_code tailrace_save(tailrace_session* session, uint64_t epoch) {
    return on_session(session, [&](Checkpointer& checkpointer) { return checkpointer.save(epoch); });
}

tailrace_code tailrace_capture(tailrace_session* session, uint64_t epoch) {
    return on_session(session, [&](Checkpointer& checkpointer) { return checkpointer.capture(epoch); });
}

tailrace_code tailrace_give_up(tailrace_session* session, uint64_t epoch, const char* why) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        // The other ranks wait for this one, whatever the arguments.
        const Status reason(Code::aborted, why == nullptr || *why == '\0' ? "no reason was given" : why);
        const Status done = checkpointer.give_up(epoch, reason);
        const bool as_asked = done.code() == reason.code() && done.message() == reason.message();
        return as_asked ? not_null(why, "why") : done;
    });
}

tailrace_code tailrace_epoch_state(tailrace_session* session, uint64_t epoch, tailrace_epoch_info* info) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        TAILRACE_TRY(not_null(info, "info"));
        TAILRACE_ASSIGN(const auto state, checkpointer.state(epoch));
        to_c(state, *info);
        return {};
    });
}

tailrace_code tailrace_wait(tailrace_session* session, uint64_t epoch, double seconds) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        // Other ranks may wait for this one here, whatever the arguments.
        const auto longest = to_milliseconds(seconds);
        const Status waited = checkpointer.wait(epoch, longest.ok() ? *longest : shortest_wait);
        return longest.ok() ? waited : longest.status();
    });
}

tailrace_code tailrace_wait_all(tailrace_session* session, double seconds) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        const auto longest = to_milliseconds(seconds);
        const Status waited = checkpointer.wait_all(longest.ok() ? *longest : shortest_wait);
        return longest.ok() ? waited : longest.status();
    });
}

tailrace_code tailrace_should_save(tailrace_session* session, int* yes) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        // The call counts on the other ranks, so it counts here, whatever the arguments.
        const auto answer = checkpointer.should_save();
        TAILRACE_TRY(not_null(yes, "yes"));
        *yes = 0;
        TAILRACE_TRY(answer.status());
        *yes = *answer ? 1 : 0;
        return {};
    });
}

tailrace_code tailrace_should_stop(tailrace_session* handle, const char** why) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto session, alive(handle, "session"));
        const auto answer = session->checkpointer->should_stop();
        TAILRACE_TRY(not_null(why, "why"));
        *why = nullptr;
        TAILRACE_TRY(answer.status());
        if (!*answer) return {};
        MutexLock lock(session->mutex);
        if (!session->stop_reason) session->stop_reason = **answer;
        *why = session->stop_reason->c_str();
        return {};
    });
}

tailrace_code tailrace_list(tailrace_session* session, tailrace_epoch_info** epochs, size_t* count) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto alive, alive(session, "session"));
        auto checked = not_null(epochs, "epochs");
        if (checked.ok()) checked = not_null(count, "count");
        TAILRACE_TRY(agree_on_arguments(*alive, checked));
        *epochs = nullptr;
        *count = 0;
        TAILRACE_ASSIGN(const auto found, alive->checkpointer->list());
        if (found.empty()) return {};
        auto* out = static_cast<tailrace_epoch_info*>(std::calloc(found.size(), sizeof(tailrace_epoch_info)));
        if (out == nullptr)
            return Status(Code::out_of_memory,
                          fmt::format("there is no memory for a list of {} epochs", found.size()));
        for (size_t i = 0; i < found.size(); ++i) to_c(found[i], out[i]);
        *epochs = out;
        *count = found.size();
        return {};
    });
}

void tailrace_list_free(tailrace_epoch_info* epochs) {
    std::free(epochs);
}

tailrace_code tailrace_restore(tailrace_session* session, uint64_t epoch, uint64_t* restored) {
    return on_session(session, [&](Checkpointer& checkpointer) -> Status {
        return restore(checkpointer, epoch, {}, restored);
    });
}

tailrace_code tailrace_restore_some(tailrace_session* session, uint64_t epoch, const char* const* names,
                                    size_t name_count, uint64_t* restored) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto alive, alive(session, "session"));
        std::vector<std::string> wanted;
        const auto checked = catching([&]() -> Status {
            TAILRACE_TRY(not_null(names, "names"));
            if (name_count == 0)
                return Status(Code::invalid_argument,
                              "no names were given; tailrace_restore restores everything that is registered");
            for (size_t i = 0; i < name_count; ++i) {
                TAILRACE_TRY(not_null(names[i], fmt::format("names[{}]", i).c_str()));
                wanted.emplace_back(names[i]);
            }
            return {};
        });
        TAILRACE_TRY(agree_on_arguments(*alive, checked));
        return restore(*alive->checkpointer, epoch, wanted, restored);
    });
}
