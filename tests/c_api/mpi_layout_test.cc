// As layout_test.cc, for the structs of collective files. Calls no function of MPI.
#include <tailrace_mpi_collective.h>

#include <sstream>
#include <string>

#include "c_api/layout.h"

namespace {

std::string layout() {
    std::ostringstream lines;
    FIELD(tailrace_file_piece, offset);
    FIELD(tailrace_file_piece, bytes);
    WHOLE(tailrace_file_piece);
    FIELD(tailrace_memory_piece, address);
    FIELD(tailrace_memory_piece, bytes);
    WHOLE(tailrace_memory_piece);
    FIELD(tailrace_file_statistics, calls);
    FIELD(tailrace_file_statistics, direct_calls);
    FIELD(tailrace_file_statistics, two_phase_calls);
    FIELD(tailrace_file_statistics, two_layer_calls);
    FIELD(tailrace_file_statistics, bytes);
    FIELD(tailrace_file_statistics, requests);
    FIELD(tailrace_file_statistics, requests_after_local);
    FIELD(tailrace_file_statistics, requests_after_global);
    FIELD(tailrace_file_statistics, file_operations);
    FIELD(tailrace_file_statistics, overlapping_bytes);
    FIELD(tailrace_file_statistics, messages);
    FIELD(tailrace_file_statistics, messages_of_one);
    FIELD(tailrace_file_statistics, collectives);
    FIELD(tailrace_file_statistics, steps);
    FIELD(tailrace_file_statistics, receives);
    FIELD(tailrace_file_statistics, rounds);
    FIELD(tailrace_file_statistics, local_aggregators);
    FIELD(tailrace_file_statistics, global_aggregators);
    FIELD(tailrace_file_statistics, memory_bytes);
    FIELD(tailrace_file_statistics, total_seconds);
    FIELD(tailrace_file_statistics, gather_seconds);
    FIELD(tailrace_file_statistics, copy_seconds);
    FIELD(tailrace_file_statistics, exchange_seconds);
    FIELD(tailrace_file_statistics, scatter_seconds);
    FIELD(tailrace_file_statistics, file_seconds);
    FIELD(tailrace_file_statistics, cuts_after_local);
    FIELD(tailrace_file_statistics, cuts_after_global);
    FIELD(tailrace_file_statistics, reserved);
    WHOLE(tailrace_file_statistics);
    return lines.str();
}

TEST(MpiLayoutTest, StructsOfProgramsAreAsTheyWere) {
    expect_kept(layout(), TAILRACE_LAYOUT_LIST);
}

}  // namespace
