// MpiTransfer: one large transfer of the MPI transport.
//
// Protocol, so that the receiver knows what comes before MPI writes to its memory:
//   1. The sender starts two sends: an Announcement on the channel of the transfer's tag, and the data under
//      a tag of its own, whatever its size.
//   2. The receiver takes the announcement whenever this rank looks at MPI, not only at this transfer
//      (MpiProgress), and starts to receive exactly the announced bytes: straight into the target, or into
//      spare memory when the target is too small, so that the sender can go on.
//
// Why not leave a too small receive to MPI: MPICH ends the program then, as its MPI_Test raises the error on
// MPI_COMM_WORLD, whose error handler is the program's. And with tags of their own for the data, transfers
// under one tag cannot be mistaken for each other, in whatever order the receiver looks at them.
#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/mpi_call.h"
#include "transport/nap.h"
#include "transport/transport.h"

namespace tailrace::internal {

class MpiReceive;

// What the transfers of one transport share. Used by the one thread that uses the transport's messages and
// data; only nap.wake() may be called by others.
struct MpiProgress {
    Nap nap;
    std::vector<MpiReceive*> unannounced;  // receives that wait for their announcement

    // Lets every receive go on whose announcement has come.
    void advance();
};

// Where a transfer runs. `plain_bytes` as in MpiLimits.
struct MpiChannel {
    int peer = 0;
    int tag = 0;
    MPI_Comm announcements = MPI_COMM_NULL;
    MPI_Comm data = MPI_COMM_NULL;
    uint64_t plain_bytes = 0;
};

// `data_tag` must differ from that of every other transfer to the same peer under way.
Result<std::unique_ptr<Transfer>> start_mpi_send(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                 int data_tag, std::span<const std::byte> source,
                                                 std::string attempted);
Result<std::unique_ptr<Transfer>> start_mpi_receive(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                    std::span<std::byte> target, std::string attempted);

}  // namespace tailrace::internal
