// What the module FTI (fti.F90) calls, where fti.h has no function for it.
#include <fti.h>
#include <mpi.h>

#include <string>

#include "common/log.h"
#include "fortran.h"

const char* const on_tailrace::interface_name = "fti";

int tailrace_fti_refuse(int id, const char* why) {
    on_tailrace::complain("FTI_Protect", "id " + std::to_string(id) + ": " + why);
    return FTI_NSCS;
}

extern "C" {

int FTI_Init_fort_wrapper(const char* config_file, int* communicator) {
    const int result = FTI_Init(config_file, MPI_Comm_f2c(static_cast<MPI_Fint>(*communicator)));
    *communicator = static_cast<int>(MPI_Comm_c2f(FTI_COMM_WORLD));
    return result;
}

int FTI_InitType_wrapper(size_t bytes) {
    return FTI_InitCompositeType(nullptr, bytes, nullptr);
}

int FTI_InitCompositeType_wrapper(const char* name, size_t bytes) {
    return FTI_InitCompositeType(name, bytes, nullptr);
}

int tailrace_fti_set_attribute() {
    return FTI_SetAttribute(0, FTIT_attribute{}, FTI_ATTRIBUTE_NAME);
}
}
