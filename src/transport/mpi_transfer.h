// MpiTransfer: one large transfer of the MPI transport.
//
// The protocol lets the receiver know what comes before MPI writes to its memory:
//   1. The sender starts two sends: an Announcement on the channel of the transfer's tag, and the
//      data, of any size, under a tag of its own.
//   2. The receiver takes the announcement whenever this rank looks at MPI, not only at this
//      transfer (MpiProgress). It then starts to receive exactly the announced bytes: straight into
//      the target, or into spare memory if the target is too small, so that the sender can go on.
//
// MPI cannot be left to handle a receive that is too small. MPICH ends the program then: its
// MPI_Test raises the error on MPI_COMM_WORLD, whose error handler is the program's. Data have tags
// of their own, so transfers under one tag cannot be confused, in whatever order the receiver looks
// at them.
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

// State that the transfers of one transport share. Only the thread that uses the transport's
// messages and data uses it. Other threads may only call nap.wake().
struct MpiProgress {
    Nap nap;
    std::vector<MpiReceive*> unannounced;  // receives that wait for their announcement

    // Starts every receive whose announcement has come.
    void advance();
};

// The channel of a transfer. `plain_bytes` is as in MpiLimits.
struct MpiChannel {
    int peer = 0;
    int tag = 0;
    MPI_Comm announcements = MPI_COMM_NULL;
    MPI_Comm data = MPI_COMM_NULL;
    uint64_t plain_bytes = 0;
};

// `data_tag` must differ from that of every other transfer under way to the same peer.
Result<std::unique_ptr<Transfer>> start_mpi_send(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                 int data_tag, std::span<const std::byte> source,
                                                 std::string attempted);
Result<std::unique_ptr<Transfer>> start_mpi_receive(std::shared_ptr<MpiProgress> progress, MpiChannel channel,
                                                    std::span<std::byte> target, std::string attempted);

}  // namespace tailrace::internal
