// Files of the program: the calls of tailrace.h onto OwnFiles.
#include <cstring>

#include "c_api/objects.h"

using namespace tailrace::internal;

namespace {

static_assert(TAILRACE_MAX_PATH_BYTES == max_path_bytes);

template <class Work>
tailrace_code on_files(tailrace_session* handle, Work&& work) noexcept {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto session, alive(handle, "session"));
        return work(*session->files);
    });
}

// Looks at the program's memory before anything is done.
Status check_room(const char* name, const char* path) {
    TAILRACE_TRY(not_null(name, "name"));
    return not_null(path, "path");
}

Status check_fits(uint64_t needed, uint64_t path_bytes) {
    if (needed <= path_bytes) return {};
    return Status(Code::invalid_argument,
                  fmt::format("the path needs room for {} bytes, and there is room for {}; "
                              "TAILRACE_MAX_PATH_BYTES are always enough",
                              needed, path_bytes));
}

Status write_path(const std::string& found, char* path, uint64_t path_bytes) {
    const size_t needed = found.size() + 1;
    TAILRACE_TRY(check_fits(needed, path_bytes));
    std::memcpy(path, found.c_str(), needed);
    return {};
}

}  // namespace

tailrace_code tailrace_files_begin(tailrace_session* session) {
    return on_files(session, [](OwnFiles& files) { return files.begin(); });
}

tailrace_code tailrace_files_route(tailrace_session* session, const char* name, char* path,
                                   uint64_t path_bytes) {
    return on_files(session, [&](OwnFiles& files) -> Status {
        TAILRACE_TRY(check_room(name, path));
        // A name whose path the program does not learn is not routed: the save would miss the file.
        if (const uint64_t needed = files.path_bytes(name); needed <= max_path_bytes)
            TAILRACE_TRY(check_fits(needed, path_bytes));
        TAILRACE_ASSIGN(const auto routed, files.route(name));
        return write_path(routed, path, path_bytes);
    });
}

tailrace_code tailrace_files_save(tailrace_session* session, uint64_t epoch, int whole) {
    return on_files(session, [&](OwnFiles& files) { return files.save(epoch, whole != 0); });
}

tailrace_code tailrace_files_restore(tailrace_session* handle, uint64_t epoch, unsigned flags,
                                     uint64_t* restored) {
    return call([&]() -> Status {
        TAILRACE_ASSIGN(auto session, alive(handle, "session"));
        Status checked;
        if ((flags & ~TAILRACE_FILES_OF_ALL_RANKS) != 0)
            checked =
                Status(Code::invalid_argument,
                       fmt::format("flags {:#x}: only TAILRACE_FILES_OF_ALL_RANKS is known; nothing was "
                                   "done",
                                   flags));
        TAILRACE_TRY(agree_on_arguments(*session, checked));
        TAILRACE_ASSIGN(
            const uint64_t found,
            session->files->restore(epoch_or_newest(epoch), (flags & TAILRACE_FILES_OF_ALL_RANKS) != 0));
        if (restored != nullptr) *restored = found;
        return {};
    });
}

tailrace_code tailrace_files_find(tailrace_session* session, uint32_t rank, const char* name, char* path,
                                  uint64_t path_bytes) {
    return on_files(session, [&](OwnFiles& files) -> Status {
        TAILRACE_TRY(check_room(name, path));
        const auto whose = rank == TAILRACE_ANY_RANK ? std::nullopt : std::optional(rank);
        TAILRACE_ASSIGN(const auto found, files.find(whose, name));
        return write_path(found, path, path_bytes);
    });
}

tailrace_code tailrace_files_count(tailrace_session* session, uint32_t rank, size_t* count) {
    return on_files(session, [&](OwnFiles& files) -> Status {
        TAILRACE_TRY(not_null(count, "count"));
        TAILRACE_ASSIGN(const auto* of_rank, files.files(rank));
        *count = of_rank->size();
        return {};
    });
}

tailrace_code tailrace_files_at(tailrace_session* session, uint32_t rank, size_t index,
                                tailrace_files_info* info) {
    return on_files(session, [&](OwnFiles& files) -> Status {
        TAILRACE_TRY(not_null(info, "info"));
        TAILRACE_ASSIGN(const auto* of_rank, files.files(rank));
        if (index >= of_rank->size())
            return Status(Code::not_found, fmt::format("there is no file {} of rank {}: it saved {}", index,
                                                       rank, of_rank->size()));
        const EpochFile& file = (*of_rank)[index];
        *info = {};
        info->name = file.name.c_str();
        info->bytes = file.bytes;
        info->rank = rank;
        info->rights = file.rights;
        return {};
    });
}

tailrace_code tailrace_files_release(tailrace_session* session) {
    return on_files(session, [](OwnFiles& files) -> Status {
        files.release();
        return {};
    });
}
