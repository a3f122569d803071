/* Lets the module tailrace open sessions on a communicator, under one name for every MPI library. */
#include "tailrace_mpi.h"

tailrace_code tailrace_fortran_open_mpi(MPI_Fint communicator, const tailrace_options* options,
                                        tailrace_session** session);

tailrace_code tailrace_fortran_open_mpi(MPI_Fint communicator, const tailrace_options* options,
                                        tailrace_session** session) {
    return tailrace_open_mpi_f(communicator, options, session);
}
