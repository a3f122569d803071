// The functions of scr.h: calls of the one client of this process.
#include <dlfcn.h>
#include <mpi.h>
#include <scr.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "client.h"
#include "common/mpi_ranks.h"

using on_tailrace::complain;
using scr_on_tailrace::Client;

namespace {

constexpr int failure = 1;

// Where the program ends without SCR_Finalize, the client stays: to close it would wait for ranks that end
// otherwise. MPI_Finalize, below, closes it.
struct OnlyClient {
    std::unique_ptr<Client> client;
    scr_on_tailrace::Parameters parameters;

    OnlyClient() = default;
    OnlyClient(const OnlyClient&) = delete;
    OnlyClient& operator=(const OnlyClient&) = delete;
    ~OnlyClient() { (void)client.release(); }
};

OnlyClient& only() {
    static OnlyClient holder;
    return holder;
}

int result(bool good) {
    return good ? SCR_SUCCESS : failure;
}

// Calls `work`; what it throws is said, and makes a failure.
template <class Work>
int guarded(const char* call, Work&& work) noexcept {
    try {
        return work();
    } catch (const std::exception& error) {
        complain(call, error.what());
    }
    return failure;
}

template <class Work>
int with_client(const char* call, Work&& work) noexcept {
    return guarded(call, [&] {
        if (only().client) return result(work(*only().client));
        complain(call, "there is no client; call SCR_Init first, and nothing after SCR_Finalize");
        return failure;
    });
}

template <class Pointer>
Pointer not_null(Pointer pointer, const char* what) {
    if (pointer == nullptr) throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, std::string(what) + " is NULL");
    return pointer;
}

// `target` has room for SCR_MAX_FILENAME bytes.
void copy(const std::string& text, char* target) {
    target[text.copy(target, SCR_MAX_FILENAME - 1)] = '\0';
}

std::optional<scr_on_tailrace::Settings> settings() {
    try {
        return scr_on_tailrace::settings_of(only().parameters);
    } catch (const std::exception& error) {
        complain("SCR_Init", error.what());
    }
    return std::nullopt;
}

}  // namespace

// ---- begin and end ------------------------------------------------------------------------------

int SCR_Init(void) {
    return guarded("SCR_Init", [] {
        if (only().client) {
            complain("SCR_Init", "it was called already");
            return failure;
        }
        auto ranks = on_tailrace::ranks_of(MPI_COMM_WORLD);
        on_tailrace::log_as(ranks->count() > 1 ? ranks->rank() : -1);
        only().client = Client::open(std::move(ranks), settings());
        return result(only().client != nullptr);
    });
}

int SCR_Finalize(void) {
    return with_client("SCR_Finalize", [](Client& client) {
        const bool good = client.finalize();
        only().client.reset();
        only().parameters = {};
        return good;
    });
}

// Replaces the MPI library's, which runs when this one calls it. libtailrace_mpi has one, too, but a program
// that was linked with SCR asks this library and the MPI library before that one.
extern "C" int MPI_Finalize() {
    only().client.reset();
    if (auto* next = dlsym(RTLD_NEXT, "MPI_Finalize"); next != nullptr)
        return reinterpret_cast<int (*)()>(next)();
    return PMPI_Finalize();
}

char* SCR_Get_version(void) {
    static char version[] = SCR_VERSION;
    return version;
}

int SCR_Should_exit(int* flag) {
    return with_client("SCR_Should_exit", [&](Client& client) {
        bool yes = false;
        *not_null(flag, "flag") = 0;
        const bool good = client.should_exit(yes);
        *flag = yes ? 1 : 0;
        return good;
    });
}

// ---- configuration ------------------------------------------------------------------------------

const char* SCR_Config(const char* config) {
    std::optional<std::string> value;
    guarded("SCR_Config", [&] {
        const std::string line = config == nullptr ? "" : config;
        if (line.empty()) return failure;
        if (only().client && !scr_on_tailrace::parse_line(line).asks) {
            complain("SCR_Config", "\"" + line + "\" has no effect after SCR_Init; set it before");
            return failure;
        }
        value = only().parameters.apply(line);
        return SCR_SUCCESS;
    });
    return value ? strdup(value->c_str()) : nullptr;
}

const char* SCR_Configf(const char* format, ...) {
    char* line = nullptr;
    va_list arguments;
    va_start(arguments, format);
    const int length = format == nullptr ? -1 : vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length < 0) {
        complain("SCR_Configf", "the format makes no text");
        return nullptr;
    }
    const std::unique_ptr<char, void (*)(void*)> owner(line, std::free);
    return SCR_Config(line);
}

// ---- files --------------------------------------------------------------------------------------

int SCR_Route_file(const char* name, char* file) {
    constexpr const char* call = "SCR_Route_file";
    return guarded(call, [&] {
        const std::string original = not_null(name, "name");
        copy(original, not_null(file, "file"));
        if (original.empty() || original.size() >= SCR_MAX_FILENAME)
            throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "a name of " + std::to_string(original.size()) +
                                                                 " bytes; it has 1 to " +
                                                                 std::to_string(SCR_MAX_FILENAME - 1));
        if (!only().client) return SCR_SUCCESS;
        std::string path;
        const bool good = only().client->route_file(original, path);
        copy(path, file);
        return result(good);
    });
}

// ---- restarting ---------------------------------------------------------------------------------

int SCR_Have_restart(int* flag, char* name) {
    return with_client("SCR_Have_restart", [&](Client& client) {
        std::optional<std::string> found;
        *not_null(flag, "flag") = 0;
        const bool good = client.have_restart(found);
        *flag = found ? 1 : 0;
        if (found && name != nullptr) copy(*found, name);
        return good;
    });
}

int SCR_Start_restart(char* name) {
    return with_client("SCR_Start_restart", [&](Client& client) {
        std::string found;
        const bool good = client.start_restart(found);
        if (good && name != nullptr) copy(found, name);
        return good;
    });
}

int SCR_Complete_restart(int valid) {
    return with_client("SCR_Complete_restart",
                       [&](Client& client) { return client.complete_restart(valid != 0); });
}

// ---- checkpoints and output ---------------------------------------------------------------------

int SCR_Need_checkpoint(int* flag) {
    return with_client("SCR_Need_checkpoint", [&](Client& client) {
        bool yes = false;
        *not_null(flag, "flag") = 0;
        const bool good = client.need_checkpoint(yes);
        *flag = yes ? 1 : 0;
        return good;
    });
}

int SCR_Start_checkpoint(void) {
    return with_client("SCR_Start_checkpoint", [](Client& client) { return client.start_checkpoint(); });
}

int SCR_Complete_checkpoint(int valid) {
    return with_client("SCR_Complete_checkpoint",
                       [&](Client& client) { return client.complete_checkpoint(valid != 0); });
}

int SCR_Start_output(const char* name, int flags) {
    return with_client("SCR_Start_output", [&](Client& client) {
        return client.start_output(name == nullptr ? std::nullopt : std::optional<std::string>(name),
                                   static_cast<unsigned>(flags));
    });
}

int SCR_Complete_output(int valid) {
    return with_client("SCR_Complete_output",
                       [&](Client& client) { return client.complete_output(valid != 0); });
}

// ---- datasets -----------------------------------------------------------------------------------

int SCR_Current(const char* name) {
    return with_client("SCR_Current", [&](Client& client) { return client.current(not_null(name, "name")); });
}

int SCR_Drop(const char* name) {
    return with_client("SCR_Drop", [&](Client& client) { return client.drop(not_null(name, "name")); });
}

int SCR_Delete(const char* name) {
    return with_client("SCR_Delete", [&](Client& client) { return client.remove(not_null(name, "name")); });
}
