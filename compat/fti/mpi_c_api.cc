// The functions of fti.h: calls of the one client of this process.
#include <dlfcn.h>
#include <fti.h>
#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "client.h"
#include "common/mpi_ranks.h"

using fti_on_tailrace::Client;
using on_tailrace::complain;

MPI_Comm FTI_COMM_WORLD = MPI_COMM_NULL;
fti_id_t FTI_CHAR, FTI_SHRT, FTI_INTG, FTI_LONG, FTI_UCHR, FTI_USHT, FTI_UINT, FTI_ULNG, FTI_SFLT, FTI_DBLE,
    FTI_LDBE;

static_assert(FTI_SCES == fti_on_tailrace::good && FTI_NSCS == fti_on_tailrace::failed &&
              FTI_NREC == fti_on_tailrace::not_recovered && FTI_DONE == fti_on_tailrace::taken);
static_assert(FTI_L4 == fti_on_tailrace::levels);

namespace {

// Where the program ends without FTI_Finalize, the client stays: to close it would wait for ranks that end
// otherwise. MPI_Finalize, below, closes it.
struct Process {
    std::unique_ptr<Client> client;
    bool owns_world = false;  // FTI_COMM_WORLD is a duplicate

    Process() = default;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() { (void)client.release(); }
};

Process& process() {
    static Process holder;
    return holder;
}

// Calls `work`; what it throws is said, and makes `otherwise`.
template <class Value, class Work>
Value guarded(const char* call, Value otherwise, Work&& work) noexcept {
    try {
        return work();
    } catch (const std::exception& error) {
        complain(call, error.what());
    }
    return otherwise;
}

template <class Value, class Work>
Value with_client(const char* call, Value otherwise, Work&& work) noexcept {
    return guarded(call, otherwise, [&]() -> Value {
        if (process().client) return work(*process().client);
        complain(call, "FTI is not initialized; call FTI_Init first, and nothing after FTI_Finalize");
        return otherwise;
    });
}

template <class Pointer>
Pointer not_null(Pointer pointer, const char* what) {
    if (pointer == nullptr) throw tailrace::Error(TAILRACE_INVALID_ARGUMENT, std::string(what) + " is NULL");
    return pointer;
}

void free_world() {
    if (process().owns_world) MPI_Comm_free(&FTI_COMM_WORLD);
    process().owns_world = false;
}

// The handles that Client's types begin with.
void set_types() {
    int handle = 0;
    for (fti_id_t* type : {&FTI_CHAR, &FTI_SHRT, &FTI_INTG, &FTI_LONG, &FTI_UCHR, &FTI_USHT, &FTI_UINT,
                           &FTI_ULNG, &FTI_SFLT, &FTI_DBLE, &FTI_LDBE})
        *type = handle++;
}

}  // namespace

// ---- begin and end ------------------------------------------------------------------------------

int FTI_Init(const char* configFile, MPI_Comm globalComm) {
    return guarded("FTI_Init", FTI_NSCS, [&] {
        if (process().client) {
            complain("FTI_Init", "it was called already");
            return FTI_NSCS;
        }
        // Programs that do not look at the result go on with the communicator and the types.
        set_types();
        auto ranks = on_tailrace::ranks_of(globalComm);
        // It may be the duplicate of an earlier FTI_Init, which goes after it.
        MPI_Comm world = MPI_COMM_NULL;
        const bool duplicated = MPI_Comm_dup(globalComm, &world) == MPI_SUCCESS;
        free_world();
        FTI_COMM_WORLD = duplicated ? world : globalComm;
        process().owns_world = duplicated;
        on_tailrace::log_as(ranks->count() > 1 ? ranks->rank() : -1);
        process().client = Client::open(std::move(ranks), configFile == nullptr ? "" : configFile);
        return process().client ? static_cast<int>(process().client->begun()) : FTI_NSCS;
    });
}

int FTI_Status(void) {
    return process().client ? process().client->status() : 0;
}

int FTI_Finalize(void) {
    return with_client("FTI_Finalize", FTI_NSCS, [](Client& client) {
        const int result = client.finalize();
        process().client.reset();
        return result;
    });
}

// Replaces the MPI library's, which runs when this one calls it. libtailrace_mpi has one, too, but a program
// that was linked with FTI asks this library and the MPI library before that one.
extern "C" int MPI_Finalize() {
    process().client.reset();
    free_world();
    if (auto* next = dlsym(RTLD_NEXT, "MPI_Finalize"); next != nullptr)
        return reinterpret_cast<int (*)()>(next)();
    return PMPI_Finalize();
}

// ---- what is saved ------------------------------------------------------------------------------

int FTI_InitType(fti_id_t* type, int size) {
    return with_client("FTI_InitType", FTI_NSCS, [&](Client& client) {
        *not_null(type, "type") = FTI_NSCS;
        *type = client.types().add(size < 0 ? 0 : static_cast<size_t>(size));
        return FTI_SCES;
    });
}

fti_id_t FTI_InitCompositeType(const char*, size_t size, FTIT_H5Group*) {
    return with_client("FTI_InitCompositeType", FTI_NSCS,
                       [&](Client& client) { return client.types().add(size); });
}

int FTI_AddScalarField(fti_id_t id, const char*, fti_id_t fid, int64_t offset) {
    return with_client("FTI_AddScalarField", FTI_NSCS, [&](Client& client) {
        client.types().check_field(id, fid, offset, {});
        return FTI_SCES;
    });
}

int FTI_AddVectorField(fti_id_t id, const char*, fti_id_t tid, int64_t offset, int ndims,
                       int64_t* dim_sizes) {
    return with_client("FTI_AddVectorField", FTI_NSCS, [&](Client& client) {
        if (ndims < 1 || ndims > 32)
            throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                                  std::to_string(ndims) + " dimensions; a field has 1 to 32");
        not_null(dim_sizes, "dim_sizes");
        client.types().check_field(id, tid, offset, std::vector<int64_t>(dim_sizes, dim_sizes + ndims));
        return FTI_SCES;
    });
}

int FTI_Protect(int id, void* ptr, int64_t count, fti_id_t tid) {
    return with_client("FTI_Protect", FTI_NSCS,
                       [&](Client& client) -> int { return client.protect(id, ptr, count, tid); });
}

int64_t FTI_GetStoredSize(int id) {
    return with_client("FTI_GetStoredSize", int64_t{0},
                       [&](Client& client) { return client.stored_size(id); });
}

void* FTI_Realloc(int id, void* ptr) {
    return with_client("FTI_Realloc", ptr, [&](Client& client) { return client.resize(id, ptr); });
}

// ---- checkpoints and recovering -----------------------------------------------------------------

int FTI_Checkpoint(int id, int level) {
    return with_client("FTI_Checkpoint", FTI_NSCS,
                       [&](Client& client) -> int { return client.checkpoint(id, level); });
}

int FTI_Snapshot(void) {
    return with_client("FTI_Snapshot", FTI_NSCS, [](Client& client) -> int { return client.snapshot(); });
}

int FTI_Recover(void) {
    return with_client("FTI_Recover", FTI_NREC, [](Client& client) -> int { return client.recover(); });
}

int FTI_RecoverVarInit(void) {
    return with_client("FTI_RecoverVarInit", FTI_NSCS,
                       [](Client& client) -> int { return client.begin_recovering(); });
}

int FTI_RecoverVar(int id) {
    return with_client("FTI_RecoverVar", FTI_NSCS,
                       [&](Client& client) -> int { return client.recover_one(id); });
}

int FTI_RecoverVarFinalize(void) {
    return with_client("FTI_RecoverVarFinalize", FTI_NSCS,
                       [](Client& client) -> int { return client.end_recovering(); });
}
