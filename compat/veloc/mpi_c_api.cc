// The functions of veloc.h, and get_client: calls of the one client of this process.
#include <dlfcn.h>
#include <veloc.h>

#include <climits>
#include <memory>
#include <set>
#include <string>
#include <veloc.hpp>

#include "client.h"
#include "common/log.h"
#include "common/mpi_ranks.h"
#include "log.h"

using veloc_on_tailrace::Client;
using veloc_on_tailrace::complain;

namespace {

// Where the program ends without VELOC_Finalize, a process alone closes its sessions. Among several ranks
// that would wait for those that end otherwise; MPI_Finalize, below, closes what is open there.
struct OnlyClient {
    std::unique_ptr<Client> client;

    OnlyClient() = default;
    OnlyClient(const OnlyClient&) = delete;
    OnlyClient& operator=(const OnlyClient&) = delete;
    ~OnlyClient() {
        if (client && client->has_peers()) (void)client.release();
    }
};

OnlyClient& only() {
    static OnlyClient holder;
    return holder;
}

template <class MakeRanks>
Client* client_of(MakeRanks&& make_ranks, const std::string& config_file) noexcept {
    auto& client = only().client;
    try {
        if (!client) {
            auto ranks = make_ranks();
            on_tailrace::log_as(ranks->count() > 1 ? ranks->rank() : -1);
            client = Client::open(std::move(ranks), config_file);
        }
    } catch (const std::exception& error) {
        complain("Init", error.what());
    }
    return client.get();
}

std::string text_of(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

int result(bool good) {
    return good ? VELOC_SUCCESS : VELOC_FAILURE;
}

// Calls `work(client)`. Without a client, and if something is thrown, that is said and VELOC_FAILURE
// returned.
template <class Work>
int with_client(const char* call, Work&& work) noexcept {
    try {
        if (only().client) return work(*only().client);
        complain(call, "there is no client; call VELOC_Init first, and nothing after VELOC_Finalize");
    } catch (const std::exception& error) {
        complain(call, error.what());
    }
    return VELOC_FAILURE;
}

std::set<int> listed(const int* ids, int count) {
    if (count <= 0) return {};
    if (ids == nullptr) throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "ids is NULL");
    return {ids, ids + count};
}

}  // namespace

veloc::client_t* veloc::get_client(unsigned int id, const std::string& cfg_file) {
    return client_of([&] { return on_tailrace::single_process(id); }, cfg_file);
}

veloc::client_t* veloc::get_client(MPI_Comm comm, const std::string& cfg_file) {
    return client_of([&] { return on_tailrace::ranks_of(comm); }, cfg_file);
}

// ---- begin and end ------------------------------------------------------------------------------

int VELOC_Init(MPI_Comm comm, const char* cfg_file) {
    return result(veloc::get_client(comm, text_of(cfg_file)) != nullptr);
}

int VELOC_Init_single(unsigned int id, const char* cfg_file) {
    return result(veloc::get_client(id, text_of(cfg_file)) != nullptr);
}

int VELOC_Finalize(int) {
    return with_client("Finalize", [](Client& client) {
        const bool good = client.finalize();
        only().client.reset();
        return result(good);
    });
}

// Replaces the MPI library's, which runs when this one calls it. libtailrace_mpi has one, too, but a program
// that was linked with VELOC asks this library and the MPI library before that one.
extern "C" int MPI_Finalize() {
    if (auto& client = only().client; client && client->uses_mpi()) {
        client->finalize();
        client.reset();
    }
    if (auto* next = dlsym(RTLD_NEXT, "MPI_Finalize"); next != nullptr)
        return reinterpret_cast<int (*)()>(next)();
    return PMPI_Finalize();
}

// ---- what to save -------------------------------------------------------------------------------

int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size) {
    return VELOC_Region_protect(id, ptr, count, base_size, veloc_on_tailrace::default_group);
}

int VELOC_Mem_unprotect(int id) {
    return VELOC_Region_unprotect(id, veloc_on_tailrace::default_group);
}

int VELOC_Mem_clear(void) {
    return VELOC_Region_clear(veloc_on_tailrace::default_group);
}

int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name) {
    return with_client("Mem_protect", [&](Client& client) {
        return result(client.mem_protect(id, ptr, count, base_size, text_of(name)));
    });
}

int VELOC_Region_unprotect(int id, const char* name) {
    return with_client("Mem_unprotect",
                       [&](Client& client) { return result(client.mem_unprotect(id, text_of(name))); });
}

int VELOC_Region_clear(const char* name) {
    return with_client("Mem_clear", [&](Client& client) {
        client.mem_clear(text_of(name));
        return VELOC_SUCCESS;
    });
}

// ---- saving -------------------------------------------------------------------------------------

int VELOC_Checkpoint(const char* name, int version) {
    return with_client("Checkpoint",
                       [&](Client& client) { return result(client.checkpoint(text_of(name), version)); });
}

int VELOC_Checkpoint_begin(const char* name, int version) {
    return with_client("Checkpoint_begin", [&](Client& client) {
        return result(client.checkpoint_begin(text_of(name), version));
    });
}

int VELOC_Checkpoint_mem(void) {
    return with_client("Checkpoint_mem",
                       [](Client& client) { return result(client.checkpoint_mem(VELOC_CKPT_ALL, {})); });
}

int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids) {
    return with_client("Checkpoint_selective", [&](Client& client) {
        return result(client.checkpoint_mem(mode, listed(ids, no_ids)));
    });
}

int VELOC_Checkpoint_end(int success) {
    return with_client("Checkpoint_end",
                       [&](Client& client) { return result(client.checkpoint_end(success != 0)); });
}

int VELOC_Checkpoint_wait(void) {
    return with_client("Checkpoint_wait", [](Client& client) { return result(client.checkpoint_wait()); });
}

int VELOC_Checkpoint_finished(void) {
    return with_client("Checkpoint_finished",
                       [](Client& client) { return result(client.checkpoint_finished()); });
}

int VELOC_Route_file(const char* original, char* routed) {
    return with_client("Route_file", [&](Client& client) {
        if (routed == nullptr) throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, "routed is NULL");
        routed[0] = '\0';
        const auto path = client.route_file(text_of(original));
        if (path.size() >= VELOC_MAX_NAME)
            throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                                  "the path of the file has " + std::to_string(path.size()) +
                                      " bytes, and a program for VELOC has room for " +
                                      std::to_string(VELOC_MAX_NAME - 1) + "; choose a shorter scratch");
        routed[path.copy(routed, path.size())] = '\0';
        return result(!path.empty());
    });
}

int VELOC_Cleanup(const char* name) {
    return with_client("Cleanup", [&](Client& client) { return result(client.cleanup(text_of(name))); });
}

// ---- restoring ----------------------------------------------------------------------------------

int VELOC_Restart_test(const char* name, int version) {
    return with_client("Restart_test",
                       [&](Client& client) { return client.restart_test(text_of(name), version, -1); });
}

int VELOC_Restart(const char* name, int version) {
    return with_client("Restart",
                       [&](Client& client) { return result(client.restart(text_of(name), version, -1)); });
}

int VELOC_Restart_begin(const char* name, int version) {
    return with_client("Restart_begin", [&](Client& client) {
        return result(client.restart_begin(text_of(name), version, -1));
    });
}

int VELOC_Recover_size(int id) {
    return with_client("Recover_size", [&](Client& client) {
        const size_t bytes = client.recover_size(id);
        if (bytes <= INT_MAX) return static_cast<int>(bytes);
        complain("Recover_size", "id " + std::to_string(id) + " has " + std::to_string(bytes) +
                                     " bytes, more than an int holds; ask recover_size of the C++ interface");
        return VELOC_FAILURE;
    });
}

int VELOC_Recover_mem(void) {
    return with_client("Recover_mem",
                       [](Client& client) { return result(client.recover_mem(VELOC_RECOVER_ALL, {})); });
}

int VELOC_Recover_selective(int mode, int* ids, int no_ids) {
    return with_client("Recover_selective",
                       [&](Client& client) { return result(client.recover_mem(mode, listed(ids, no_ids))); });
}

int VELOC_Restart_end(int success) {
    return with_client("Restart_end",
                       [&](Client& client) { return result(client.restart_end(success != 0)); });
}
