#include "mpiio/mpi_files.h"

#include <strings.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal::mpiio {

namespace {

constexpr long nfs_magic = 0x6969;

class Table {
  public:
    static Table& instance() {
        static Table& table = *new Table;  // a program may end with files open
        return table;
    }
    void add(MPI_File file, std::shared_ptr<OpenFile> open) {
        MutexLock lock(mutex_);
        files_[file] = std::move(open);
    }
    std::shared_ptr<OpenFile> find(MPI_File file, bool take) {
        MutexLock lock(mutex_);
        const auto found = files_.find(file);
        if (found == files_.end()) return nullptr;
        std::shared_ptr<OpenFile> open = found->second;
        if (take) files_.erase(found);
        return open;
    }

  private:
    Mutex mutex_;
    std::unordered_map<MPI_File, std::shared_ptr<OpenFile>> files_ GUARDED_BY(mutex_);
};

// A switch as the user has set it. Unset and empty count as `fallback`.
struct Switch {
    bool on = false;
    std::string wrong{};  // if it is neither on nor off: a clause that says so
};

Switch switch_of(std::string_view name, std::string_view text, bool fallback) {
    if (text.empty()) return {fallback};
    for (const std::string_view yes : {"on", "yes", "true", "1"})
        if (text == yes) return {true};
    for (const std::string_view no : {"off", "no", "false", "0"})
        if (text == no) return {false};
    return {fallback, std::string(name) + " = \"" + std::string(text) + "\" is neither on nor off"};
}

Switch from_environment(const char* name, bool fallback) {
    const char* text = std::getenv(name);
    return switch_of(name, text == nullptr ? "" : text, fallback);
}

Switch from_info(MPI_Info info, const char* key, bool fallback) {
    std::array<char, MPI_MAX_INFO_VAL + 1> text{};
    int found = 0;
    if (info != MPI_INFO_NULL) MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text.data(), &found);
    return switch_of(key, found != 0 ? text.data() : "", fallback);
}

// Removes the name of a file system driver at the beginning ("ufs:name"), as MPI libraries do.
std::string plain_path(const char* name) {
    const std::string_view path = name;
    for (const std::string_view driver :
         {"ufs:", "xfs:", "lustre:", "gpfs:", "pvfs2:", "daos:", "testfs:", "nfs:"})
        if (path.starts_with(driver)) return std::string(path.substr(driver.size()));
    return std::string(path);
}

// NFS keeps what it read for a while, whatever other nodes write. MPI libraries lock and flush to
// handle that.
bool is_on_nfs(const std::string& path) {
    struct statfs known {};
    return statfs(path.c_str(), &known) == 0 && static_cast<long>(known.f_type) == nfs_magic;
}

// The reason why this rank leaves a file to the MPI library. Empty if it does not. `mistake`: the
// user should know.
std::string reason_to_leave(const std::string& path, int ranks, int mode, MPI_Info info, bool& mistake) {
    const Switch variable = from_environment("TAILRACE_MPIIO", true);
    const Switch hint = from_info(info, "tailrace_mpiio", true);
    for (const Switch& one : {variable, hint}) {
        mistake = !one.wrong.empty();
        if (mistake) return one.wrong;
    }
    if (!variable.on) return "TAILRACE_MPIIO is off";
    if (!hint.on) return "the hint tailrace_mpiio is off";
    if (ranks == 1) return "one rank alone has opened it";
    if ((mode & MPI_MODE_SEQUENTIAL) != 0) return "it was opened with MPI_MODE_SEQUENTIAL";
    if (is_on_nfs(path)) return "it is on NFS";
    return "";
}

void say_left(const OpenFile& file, const std::string& why) {
    write_line("tailrace: " + file.path + " is left to the MPI library: " + why);
}

// The calls on it that were left to the MPI library, and why. Empty if there were none.
std::string calls_left(const OpenFile& file) {
    struct Kind {
        std::string_view one, many;
    };
    constexpr std::array<Kind, static_cast<size_t>(Left::kinds)> kinds = {{
        {"nonblocking call (without MPI_THREAD_MULTIPLE no thread may work for it)",
         "nonblocking calls (without MPI_THREAD_MULTIPLE no thread may work for them)"},
        {"split call", "split calls"},
        {"call at the shared file pointer", "calls at the shared file pointer"},
        {"call in atomic mode", "calls in atomic mode"},
        {"call in another data representation than native",
         "calls in another data representation than native"},
        {"call that makes no sense, goes backwards in its view, or writes a byte twice",
         "calls that make no sense, go backwards in their view, or write a byte twice"},
    }};
    std::string all;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
        const uint64_t count = file.left[kind];
        if (count == 0) continue;
        all += (all.empty() ? "; left to the MPI library: " : ", ") + std::to_string(count) + " " +
               std::string(count == 1 ? kinds[kind].one : kinds[kind].many);
    }
    return all;
}

// `bytes`: moved, of `asked`.
Transfer outcome(OpenFile& file, tailrace_code code, uint64_t bytes, uint64_t asked, MPI_Status* status) {
    // Our method refuses some arguments on all ranks: a view that goes backwards, a write that
    // overlaps itself. The MPI library may know what to do with them, or reports the mistake in its
    // own way.
    if (code == TAILRACE_INVALID_ARGUMENT || code == TAILRACE_UNSUPPORTED) {
        file.leave(Left::refused);
        return {false, MPI_SUCCESS, 0};
    }
    if (code == TAILRACE_OK) set_status(status, bytes);
    return {true, tell(file, code), static_cast<MPI_Offset>(asked)};
}

// Whether this is a transfer at all. If it is not one on some rank, that rank makes the call with
// an invalid list.
bool makes_sense(const OpenFile& file, MPI_Offset offset, MPI_Count count, MPI_Datatype type) {
    constexpr MPI_Offset most = std::numeric_limits<MPI_Offset>::max();
    return offset >= 0 && offset <= most / std::max<MPI_Offset>(file.etype_bytes, 1) && count >= 0 &&
           type != MPI_DATATYPE_NULL;
}
constexpr size_t no_list = 1;  // of NULL

// The size of `count` elements.
uint64_t bytes_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count bytes = 0;
    PMPI_Type_size_x(type, &bytes);
    return static_cast<uint64_t>(bytes) * static_cast<uint64_t>(count);
}

Transfer started(OpenFile& file, tailrace_code code, tailrace_io* io, bool writes, uint64_t bytes,
                 MPI_Request* request) {
    if (code != TAILRACE_OK) return {true, tell(file, code), 0};
    return {true, file.requests.add(io, writes, bytes, request), static_cast<MPI_Offset>(bytes)};
}

}  // namespace

void write_line(std::string line) {
    line += '\n';
    size_t done = 0;
    while (done < line.size()) {
        const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
        if (written <= 0) return;
        done += static_cast<size_t>(written);
    }
}

int tell(OpenFile& file, tailrace_code code) {
    if (code != TAILRACE_OK && file.rank == 0 && !file.failure_told.exchange(true))
        write_line("tailrace: " + std::string(tailrace_last_error()));
    switch (code) {
        case TAILRACE_OK:
            return MPI_SUCCESS;
        case TAILRACE_NO_SPACE:
            return MPI_ERR_NO_SPACE;
        case TAILRACE_OUT_OF_MEMORY:
            return MPI_ERR_NO_MEM;
        case TAILRACE_INVALID_ARGUMENT:
            return MPI_ERR_ARG;
        default:
            return MPI_ERR_IO;
    }
}

// MPI counts what was moved in elements of any type that it is asked for.
void set_status(MPI_Status* status, uint64_t bytes) {
    if (status == MPI_STATUS_IGNORE) return;
    MPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(bytes));
    MPI_Status_set_cancelled(status, 0);
}

std::shared_ptr<OpenFile> find(MPI_File file) {
    return Table::instance().find(file, false);
}
std::shared_ptr<OpenFile> take(MPI_File file) {
    return Table::instance().find(file, true);
}

void adopt(MPI_Comm communicator, const char* name, int mode, MPI_Info info, MPI_File file) {
    (void)take(file);  // forgets a file that was closed in a way that we do not see
    auto open = std::make_shared<OpenFile>();
    open->path = plain_path(name);
    int size = 1;
    PMPI_Comm_size(communicator, &size);
    PMPI_Comm_rank(communicator, &open->rank);
    // If one rank cannot do something, none does: the least of all answers counts. A statistics
    // line needs all ranks.
    int provided = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&provided);
    bool mistake = false;
    const std::string reason = reason_to_leave(open->path, size, mode, info, mistake);
    if (mistake) say_left(*open, reason);
    const Switch statistics = from_environment("TAILRACE_MPIIO_STATISTICS", false);
    if (!statistics.wrong.empty() && open->rank == 0) write_line("tailrace: " + statistics.wrong);
    const int answers[3] = {reason.empty() ? 1 : 0, statistics.on ? 1 : 0,
                            provided >= MPI_THREAD_MULTIPLE ? 1 : 0};
    int agreed[3] = {0, 0, 0};
    if (PMPI_Allreduce(answers, agreed, 3, MPI_INT, MPI_MIN, communicator) != MPI_SUCCESS) return;
    if (agreed[0] == 0) {
        if (agreed[1] != 0 && open->rank == 0 && !mistake)
            say_left(*open, reason.empty() ? "another rank of it says so" : reason);
        return;
    }
    open->statistics = agreed[1] != 0;
    open->concurrent = agreed[2] != 0;
    open->reads = (mode & MPI_MODE_WRONLY) == 0;
    open->writes = (mode & MPI_MODE_RDONLY) == 0;

    const tailrace_file_mode access = open->writes ? TAILRACE_FILE_EXISTING : TAILRACE_FILE_READ;
    if (tailrace_file_open(communicator, open->path.c_str(), access, info, &open->file) != TAILRACE_OK) {
        if (open->rank == 0) say_left(*open, tailrace_last_error());
        return;
    }
    Table::instance().add(file, std::move(open));
}

int let_go(OpenFile& file) {
    file.requests.finish();
    if (file.statistics) {
        tailrace_file_statistics statistics;
        const tailrace_code code = tailrace_file_get_statistics(file.file, &statistics);
        const char* line = code == TAILRACE_OK ? tailrace_file_describe(file.file, &statistics) : nullptr;
        if (file.rank == 0 && line != nullptr)
            write_line("tailrace: " + std::string(line) + calls_left(file));
    }
    return tell(file, tailrace_file_close(file.file));
}

void set_view(OpenFile& file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
              const char* representation) {
    file.pointer.forget();
    MPI_Count bytes = 1;
    PMPI_Type_size_x(etype, &bytes);
    file.etype_bytes = static_cast<MPI_Offset>(bytes);
    file.native = strcasecmp(representation, "native") == 0;
    if (tailrace_file_set_view(file.file, static_cast<uint64_t>(displacement), filetype) != TAILRACE_OK)
        file.native = false;
}

Transfer write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count, MPI_Datatype type,
               MPI_Status* status) {
    if (!file.writes) return {false, MPI_SUCCESS, 0};
    if (!makes_sense(file, offset, count, type))
        return outcome(file, tailrace_file_write_pieces(file.file, no_list, nullptr, 0, nullptr), 0, 0,
                       status);
    const tailrace_code code =
        tailrace_file_write_view(file.file, static_cast<uint64_t>(offset * file.etype_bytes), buffer,
                                 static_cast<uint64_t>(count), type);
    const uint64_t asked = bytes_of(count, type);
    return outcome(file, code, asked, asked, status);
}

Transfer read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
              MPI_Status* status) {
    if (!file.reads) return {false, MPI_SUCCESS, 0};
    uint64_t bytes = 0;
    if (!makes_sense(file, offset, count, type))
        return outcome(file, tailrace_file_read_pieces(file.file, no_list, nullptr, 0, nullptr, &bytes), 0, 0,
                       status);
    const tailrace_code code =
        tailrace_file_read_view(file.file, static_cast<uint64_t>(offset * file.etype_bytes), buffer,
                                static_cast<uint64_t>(count), type, &bytes);
    return outcome(file, code, bytes, bytes_of(count, type), status);
}

Transfer start_write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                     MPI_Datatype type, MPI_Request* request) {
    if (!file.writes) return {false, MPI_SUCCESS, 0};
    tailrace_io* io = nullptr;
    if (!makes_sense(file, offset, count, type))
        return started(file, tailrace_file_start_write_pieces(file.file, no_list, nullptr, 0, nullptr, &io),
                       io, true, 0, request);
    const tailrace_code code =
        tailrace_file_start_write_view(file.file, static_cast<uint64_t>(offset * file.etype_bytes), buffer,
                                       static_cast<uint64_t>(count), type, &io);
    return started(file, code, io, true, bytes_of(count, type), request);
}

Transfer start_read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
                    MPI_Request* request) {
    if (!file.reads) return {false, MPI_SUCCESS, 0};
    tailrace_io* io = nullptr;
    if (!makes_sense(file, offset, count, type))
        return started(file, tailrace_file_start_read_pieces(file.file, no_list, nullptr, 0, nullptr, &io),
                       io, false, 0, request);
    const tailrace_code code =
        tailrace_file_start_read_view(file.file, static_cast<uint64_t>(offset * file.etype_bytes), buffer,
                                      static_cast<uint64_t>(count), type, &io);
    return started(file, code, io, false, bytes_of(count, type), request);
}

void add_hints(const OpenFile* file, MPI_Info info) {
    PMPI_Info_set(info, "tailrace_mpiio", file != nullptr && file->handled() ? "on" : "off");
    MPI_Info ours = MPI_INFO_NULL;
    if (file == nullptr || tailrace_file_get_info(file->file, &ours) != TAILRACE_OK) return;
    int keys = 0;
    PMPI_Info_get_nkeys(ours, &keys);
    for (int i = 0; i < keys; ++i) {
        std::array<char, MPI_MAX_INFO_KEY + 1> key{};
        std::array<char, MPI_MAX_INFO_VAL + 1> value{};
        int found = 0;
        PMPI_Info_get_nthkey(ours, i, key.data());
        PMPI_Info_get(ours, key.data(), MPI_MAX_INFO_VAL, value.data(), &found);
        if (found != 0) PMPI_Info_set(info, key.data(), value.data());
    }
    PMPI_Info_free(&ours);
}

}  // namespace tailrace::internal::mpiio
