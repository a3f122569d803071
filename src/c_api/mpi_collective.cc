// The C interface of collective files. It is an adapter: MPI's datatypes become lists, and handles
// become objects.
#include <fmt/format.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/caught.h"
#include "base/text.h"
#include "c_api/cancellation.h"
#include "c_api/handles.h"
#include "c_api/mpi_flatten.h"
#include "c_api/open_collective.h"
#include "c_api/open_session.h"
#include "tailrace_mpi_collective.h"
#include "transport/mpi_call.h"
#include "transport/mpi_transport.h"

using namespace tailrace::internal;

struct tailrace_file {
    std::unique_ptr<collective::CollectiveFile> file;
    // The view: the type as it was given until it is needed, then its blocks.
    uint64_t displacement = 0;
    MPI_Datatype filetype = MPI_DATATYPE_NULL;  // ours to free
    std::optional<collective::FileView> view;
    std::string description;

    ~tailrace_file() { forget_type(); }
    void forget_type() {
        int finalized = 0;
        if (filetype == MPI_DATATYPE_NULL) return;
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) MPI_Type_free(&filetype);
    }
};

struct tailrace_io {
    std::shared_ptr<collective::Pending> pending;
};

namespace {

constexpr std::string_view hint_prefix = "tailrace_", interposer_hint = "tailrace_mpiio";

// Like c_api/call.h, but the outcome is kept by libtailrace.
template <class Work>
tailrace_code call(Work&& work) noexcept {
    const CancellationDelayed delayed;
    return set_last_error(catching(work));
}

template <class Object>
Result<std::shared_ptr<Object>> alive(Object* handle, const char* what) {
    std::shared_ptr<Object> object = HandleTable<Object>::instance().find(handle);
    if (object) return object;
    return Status(handle == nullptr ? Code::invalid_argument : Code::failed_state,
                  fmt::format("this {} {}; nothing was done", what,
                              handle == nullptr ? "is NULL" : "has been closed, or was never opened"));
}

// For calls that talk to other ranks.
Result<std::shared_ptr<tailrace_file>> usable(tailrace_file* handle) {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized != 0)
        return Status(Code::failed_state,
                      "MPI was finalized while a collective file was open; nothing was done");
    return alive(handle, "file");
}

// Without a communicator there is no rank to talk to.
Status check(MPI_Comm communicator, const std::string& path) {
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0)
        return Status(Code::failed_state, fmt::format("opening '{}' collectively: MPI is not running", path));
    if (communicator == MPI_COMM_NULL)
        return Status(Code::invalid_argument, fmt::format("opening '{}' on MPI_COMM_NULL", path));
    MPI_Comm_test_inter(communicator, &inter);
    if (inter != 0)
        return Status(Code::invalid_argument,
                      fmt::format("opening '{}' on an intercommunicator: merge it first", path));
    return Status();
}

// Checks a rank's arguments. A rank with a mistake can still tell the others.
Status check(const char* path, tailrace_file_mode mode, tailrace_file** file) {
    if (file == nullptr || path == nullptr)
        return Status(Code::invalid_argument, "the path, or the place for the file, is NULL");
    if (mode < TAILRACE_FILE_READ || mode > TAILRACE_FILE_EXISTING)
        return Status(Code::invalid_argument,
                      fmt::format("{} is not a tailrace_file_mode", static_cast<int>(mode)));
    return Status();
}

// The keys of `info` that are ours, without their prefix. The interposer's key is not a setting of
// a file.
Result<std::map<std::string, std::string>> hints_of(MPI_Info info) {
    std::map<std::string, std::string> hints;
    if (info == MPI_INFO_NULL) return hints;
    int keys = 0;
    TAILRACE_MPI_TRY(MPI_Info_get_nkeys(info, &keys), "reading an MPI_Info");
    for (int i = 0; i < keys; ++i) {
        char key[MPI_MAX_INFO_KEY + 1] = {};
        char value[MPI_MAX_INFO_VAL + 1] = {};
        int found = 0;
        TAILRACE_MPI_TRY(MPI_Info_get_nthkey(info, i, key), "reading an MPI_Info");
        const std::string_view name = key;
        if (!name.starts_with(hint_prefix) || name == interposer_hint) continue;
        TAILRACE_MPI_TRY(MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found), "reading an MPI_Info");
        if (found != 0) hints.emplace(name.substr(hint_prefix.size()), value);
    }
    return hints;
}

Result<collective::RankAccess> access_of(size_t file_count, const tailrace_file_piece* file_pieces,
                                         size_t memory_count, const tailrace_memory_piece* memory_pieces) {
    collective::RankAccess access;
    if ((file_count > 0 && file_pieces == nullptr) || (memory_count > 0 && memory_pieces == nullptr))
        return Status(Code::invalid_argument, "a list of pieces is NULL, but its count is not 0");
    for (size_t i = 0; i < memory_count; ++i)
        if (memory_pieces[i].address == nullptr && memory_pieces[i].bytes > 0)
            return Status(
                Code::invalid_argument,
                fmt::format("piece {} of the memory is NULL, but has {} bytes", i, memory_pieces[i].bytes));
    access.requests.reserve(file_count);
    for (size_t i = 0; i < file_count; ++i)
        if (file_pieces[i].bytes > 0)
            access.requests.push_back({file_pieces[i].offset, file_pieces[i].bytes});
    std::vector<collective::MemoryList::Memory> memory;
    memory.reserve(memory_count);
    for (size_t i = 0; i < memory_count; ++i)
        memory.emplace_back(static_cast<std::byte*>(memory_pieces[i].address),
                            static_cast<size_t>(memory_pieces[i].bytes));
    access.memory = collective::MemoryList(std::move(memory));
    return access;
}

Result<collective::RankAccess> access_of(tailrace_file& file, uint64_t position, void* buffer, uint64_t count,
                                         MPI_Datatype memorytype) {
    if (!file.view) {
        collective::FileView view;
        view.displacement = file.displacement;
        TAILRACE_ASSIGN(view.type,
                        collective::flatten(file.filetype == MPI_DATATYPE_NULL ? MPI_BYTE : file.filetype));
        file.view = std::move(view);
    }
    collective::RankAccess access;
    if (count == 0) return access;
    if (memorytype == MPI_DATATYPE_NULL)
        return Status(Code::invalid_argument, "elements of MPI_DATATYPE_NULL in memory");
    TAILRACE_ASSIGN(const collective::FlatType memory, collective::flatten(memorytype));
    if (memory.bytes > 0 && count > UINT64_MAX / memory.bytes)
        return Status(
            Code::invalid_argument,
            fmt::format("{} elements of {} bytes exceed 64 bits; nothing was done", count, memory.bytes));
    TAILRACE_ASSIGN(access.requests, collective::requests_of(*file.view, position, count * memory.bytes));
    access.memory = collective::memory_of(buffer, count, memory);
    return access;
}

enum class Direction { write, read };

// A mistake in a rank's arguments, or a lack of memory for them, must not keep the rank from the
// call that the others are in.
template <class Make>
collective::RankAccess access_or_refusal(Make make, tailrace_file& file) {
    Status wrong;
    try {
        Result<collective::RankAccess> access = make(file);
        if (access.ok()) return std::move(*access);
        wrong = access.status();
    } catch (...) {
        wrong = caught_status();
    }
    return {{}, {}, wrong};
}

// Runs one call. `make` gives the access, or the reason why there is none.
template <class Make>
Status run(tailrace_file* handle, Direction direction, uint64_t* bytes, Make make) {
    if (bytes != nullptr) *bytes = 0;
    TAILRACE_ASSIGN(const auto file, usable(handle));
    collective::RankAccess access = access_or_refusal(make, *file);
    TAILRACE_ASSIGN(const uint64_t moved, direction == Direction::write
                                              ? file->file->write(std::move(access))
                                              : file->file->read(std::move(access)));
    if (bytes != nullptr) *bytes = moved;
    return Status();
}

template <class Make>
Status start(tailrace_file* handle, Direction direction, tailrace_io** io, Make make) {
    if (io != nullptr) *io = nullptr;
    TAILRACE_ASSIGN(const auto file, usable(handle));
    collective::RankAccess access;
    if (io == nullptr)
        access.wrong = Status(Code::invalid_argument, "the place for the started call is NULL");
    else
        access = access_or_refusal(make, *file);
    auto started = std::make_shared<tailrace_io>();
    started->pending = direction == Direction::write ? file->file->start_write(std::move(access))
                                                     : file->file->start_read(std::move(access));
    if (io == nullptr) return started->pending->wait().status();
    *io = HandleTable<tailrace_io>::instance().add(std::move(started));
    return Status();
}

std::string describe(const std::string& path, const tailrace_file_statistics& s) {
    const std::string before_windows =
        s.cuts_after_local + s.cuts_after_global == 0
            ? ""
            : fmt::format(" ({} and {} before windows cut them)", s.requests_after_local - s.cuts_after_local,
                          s.requests_after_global - s.cuts_after_global);
    return fmt::format(
        "{}: {} ({} two-layer, {} two-phase, {} direct), {}, requests {} -> {} after local -> {} after "
        "global aggregation{}, {}, p_l {}, p_g {}, {}, {} ({} of one rank), {}, {} one after the other, {} "
        "at one global aggregator, {} of buffers per rank at most; seconds: total {:.3f}, gather {:.3f}, "
        "copy {:.3f}, exchange {:.3f}, scatter {:.3f}, file {:.3f}",
        path, counted(s.calls, "call"), s.two_layer_calls, s.two_phase_calls, s.direct_calls,
        counted(s.bytes, "byte"), s.requests, s.requests_after_local, s.requests_after_global, before_windows,
        counted(s.file_operations, "file operation"), s.local_aggregators, s.global_aggregators,
        counted(s.rounds, "round"), counted(s.messages, "message"), s.messages_of_one,
        counted(s.collectives, "collective step"), counted(s.steps, "message"),
        counted(s.receives, "receive"), counted(s.memory_bytes, "byte"), s.total_seconds, s.gather_seconds,
        s.copy_seconds, s.exchange_seconds, s.scatter_seconds, s.file_seconds);
}

}  // namespace

extern "C" {

tailrace_code tailrace_file_open(MPI_Comm communicator, const char* path, tailrace_file_mode mode,
                                 MPI_Info info, tailrace_file** file) {
    return call([&] {
        if (file != nullptr) *file = nullptr;
        const std::string name = path == nullptr ? "" : path;
        TAILRACE_TRY(check(communicator, name));
        MpiLimits limits;
        limits.only_in_calls = true;
        limits.warn = log_warning;
        TAILRACE_ASSIGN(auto transport, make_mpi_transport(communicator, limits));
        const Status arguments = check(path, mode, file);
        const auto hints = arguments.ok() ? hints_of(info) : arguments;
        const auto chosen = mode == TAILRACE_FILE_READ       ? collective::Mode::read
                            : mode == TAILRACE_FILE_WRITE    ? collective::Mode::write
                            : mode == TAILRACE_FILE_EXISTING ? collective::Mode::existing
                                                             : collective::Mode::create_new;
        TAILRACE_ASSIGN(auto opened, open_collective(std::move(transport), name, chosen, hints));
        auto object = std::make_shared<tailrace_file>();
        object->file = std::move(opened);
        *file = HandleTable<tailrace_file>::instance().add(std::move(object));
        return Status();
    });
}

tailrace_code tailrace_file_get_info(tailrace_file* file, MPI_Info* info) {
    return call([&] {
        TAILRACE_ASSIGN(const auto object, alive(file, "file"));
        if (info == nullptr) return Status(Code::invalid_argument, "the place for the MPI_Info is NULL");
        *info = MPI_INFO_NULL;
        TAILRACE_MPI_TRY(MPI_Info_create(info), "making an MPI_Info");
        for (const auto& [name, value] : object->file->hints())
            TAILRACE_MPI_TRY(MPI_Info_set(*info, (std::string(hint_prefix) + name).c_str(), value.c_str()),
                             "writing an MPI_Info");
        return Status();
    });
}

tailrace_code tailrace_file_close(tailrace_file* file) {
    return call([&] {
        TAILRACE_TRY(usable(file).status());
        const auto taken = HandleTable<tailrace_file>::instance().take(file);
        if (taken == nullptr) return Status();  // another thread was faster
        return taken->file->close();
    });
}

tailrace_code tailrace_file_sync(tailrace_file* file) {
    return call([&] {
        TAILRACE_ASSIGN(const auto object, usable(file));
        return object->file->sync();
    });
}

tailrace_code tailrace_file_write_pieces(tailrace_file* file, size_t file_count,
                                         const tailrace_file_piece* file_pieces, size_t memory_count,
                                         const tailrace_memory_piece* memory_pieces) {
    return call([&] {
        return run(file, Direction::write, nullptr, [&](tailrace_file&) {
            return access_of(file_count, file_pieces, memory_count, memory_pieces);
        });
    });
}

tailrace_code tailrace_file_read_pieces(tailrace_file* file, size_t file_count,
                                        const tailrace_file_piece* file_pieces, size_t memory_count,
                                        const tailrace_memory_piece* memory_pieces, uint64_t* bytes) {
    return call([&] {
        return run(file, Direction::read, bytes, [&](tailrace_file&) {
            return access_of(file_count, file_pieces, memory_count, memory_pieces);
        });
    });
}

tailrace_code tailrace_file_set_view(tailrace_file* file, uint64_t displacement, MPI_Datatype filetype) {
    return call([&] {
        TAILRACE_ASSIGN(const auto object, alive(file, "file"));
        if (filetype == MPI_DATATYPE_NULL)
            return Status(Code::invalid_argument, "a file view of MPI_DATATYPE_NULL; the view is as it was");
        MPI_Datatype copy = MPI_DATATYPE_NULL;
        TAILRACE_MPI_TRY(MPI_Type_dup(filetype, &copy), "keeping the type of a file view");
        object->forget_type();
        object->filetype = copy;
        object->displacement = displacement;
        object->view.reset();
        return Status();
    });
}

tailrace_code tailrace_file_write_view(tailrace_file* file, uint64_t position, const void* buffer,
                                       uint64_t count, MPI_Datatype memorytype) {
    return call([&] {
        return run(file, Direction::write, nullptr, [&](tailrace_file& object) {
            return access_of(object, position, const_cast<void*>(buffer), count, memorytype);
        });
    });
}

tailrace_code tailrace_file_read_view(tailrace_file* file, uint64_t position, void* buffer, uint64_t count,
                                      MPI_Datatype memorytype, uint64_t* bytes) {
    return call([&] {
        return run(file, Direction::read, bytes, [&](tailrace_file& object) {
            return access_of(object, position, buffer, count, memorytype);
        });
    });
}

tailrace_code tailrace_file_start_write_pieces(tailrace_file* file, size_t file_count,
                                               const tailrace_file_piece* file_pieces, size_t memory_count,
                                               const tailrace_memory_piece* memory_pieces, tailrace_io** io) {
    return call([&] {
        return start(file, Direction::write, io, [&](tailrace_file&) {
            return access_of(file_count, file_pieces, memory_count, memory_pieces);
        });
    });
}

tailrace_code tailrace_file_start_read_pieces(tailrace_file* file, size_t file_count,
                                              const tailrace_file_piece* file_pieces, size_t memory_count,
                                              const tailrace_memory_piece* memory_pieces, tailrace_io** io) {
    return call([&] {
        return start(file, Direction::read, io, [&](tailrace_file&) {
            return access_of(file_count, file_pieces, memory_count, memory_pieces);
        });
    });
}

tailrace_code tailrace_file_start_write_view(tailrace_file* file, uint64_t position, const void* buffer,
                                             uint64_t count, MPI_Datatype memorytype, tailrace_io** io) {
    return call([&] {
        return start(file, Direction::write, io, [&](tailrace_file& object) {
            return access_of(object, position, const_cast<void*>(buffer), count, memorytype);
        });
    });
}

tailrace_code tailrace_file_start_read_view(tailrace_file* file, uint64_t position, void* buffer,
                                            uint64_t count, MPI_Datatype memorytype, tailrace_io** io) {
    return call([&] {
        return start(file, Direction::read, io, [&](tailrace_file& object) {
            return access_of(object, position, buffer, count, memorytype);
        });
    });
}

tailrace_code tailrace_io_test(tailrace_io* io, int* done) {
    return call([&] {
        TAILRACE_ASSIGN(const auto object, alive(io, "started call"));
        if (done == nullptr) return Status(Code::invalid_argument, "the place for the answer is NULL");
        *done = object->pending->test() ? 1 : 0;
        return Status();
    });
}

tailrace_code tailrace_io_wait(tailrace_io* io, uint64_t* bytes) {
    return call([&] {
        TAILRACE_TRY(alive(io, "started call").status());
        const auto taken = HandleTable<tailrace_io>::instance().take(io);
        if (taken == nullptr)
            return Status(Code::failed_state, "another thread waits for this started call; nothing was done");
        const Result<uint64_t> moved = taken->pending->wait();
        if (bytes != nullptr) *bytes = moved.ok() ? *moved : 0;
        return moved.status();
    });
}

tailrace_code tailrace_file_get_statistics(tailrace_file* file, tailrace_file_statistics* statistics) {
    return call([&] {
        TAILRACE_ASSIGN(const auto object, usable(file));
        TAILRACE_ASSIGN(const collective::Statistics sum, object->file->statistics());
        if (statistics == nullptr) return Status(Code::invalid_argument, "the place for statistics is NULL");
        tailrace_file_statistics& out = *statistics;
        out = {};
        out.calls = sum.calls;
        out.direct_calls = sum.direct_calls;
        out.two_phase_calls = sum.two_phase_calls;
        out.two_layer_calls = sum.two_layer_calls;
        out.bytes = sum.bytes;
        out.requests = sum.requests;
        out.requests_after_local = sum.requests_after_local;
        out.requests_after_global = sum.requests_after_global;
        out.cuts_after_local = sum.cuts_after_local;
        out.cuts_after_global = sum.cuts_after_global;
        out.file_operations = sum.file_operations;
        out.overlapping_bytes = sum.overlapping_bytes;
        out.messages = sum.messages;
        out.messages_of_one = sum.messages_of_one;
        out.collectives = sum.collectives;
        out.steps = sum.steps;
        out.receives = sum.receives;
        out.rounds = sum.rounds;
        out.local_aggregators = sum.local_aggregators;
        out.global_aggregators = sum.global_aggregators;
        out.memory_bytes = sum.memory_bytes;
        out.total_seconds = sum.total;
        out.gather_seconds = sum.gather;
        out.copy_seconds = sum.copy;
        out.exchange_seconds = sum.exchange;
        out.scatter_seconds = sum.scatter;
        out.file_seconds = sum.file;
        return Status();
    });
}

const char* tailrace_file_describe(tailrace_file* file, const tailrace_file_statistics* statistics) {
    try {
        const std::shared_ptr<tailrace_file> object = HandleTable<tailrace_file>::instance().find(file);
        if (!object || statistics == nullptr) return nullptr;
        const tailrace_file_statistics& s = *statistics;
        object->description =
            s.calls == 0 ? object->file->path() + ": no collective calls"
                         : describe(object->file->path(), s) + "; last call: " + object->file->last_reason();
        return object->description.c_str();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

}  // extern "C"
