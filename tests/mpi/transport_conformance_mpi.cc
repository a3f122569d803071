// The MPI transport under the conformance suite, a process per rank:
//
//     mpirun -n RANKS transport_conformance_mpi           with MPI_THREAD_MULTIPLE: every claim
//     mpirun -n RANKS transport_conformance_mpi funneled  below it: only collectives work
//
// Exits with 0 when every rank found everything right; says on stderr what was wrong.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "transport/conformance.h"
#include "transport/mpi_transport.h"

namespace tailrace::internal {
namespace {

int rank_in_world = 0;

bool say(const std::string& where, const std::string& what) {
    std::fprintf(stderr, "rank %d: %s: %s\n", rank_in_world, where.c_str(), what.c_str());
    return false;
}

// Every claim on one transport. A claim ends for all ranks before the next begins.
bool run_suite(const std::string& title, MPI_Comm communicator, MpiLimits limits) {
    auto transport = make_mpi_transport(communicator, limits);
    if (!transport.ok()) return say(title, transport.status().to_string());
    bool right = true;
    if (!(*transport)->concurrent()) right = say(title, "the transport says that it is not concurrent");
    if ((*transport)->host().empty()) right = say(title, "the machine has no name");
    for (const conformance::Claim& claim : conformance::claims()) {
        conformance::Witness witness;
        claim.check(**transport, witness);
        for (const std::string& failure : witness.failures()) right = say(title + ", " + claim.name, failure);
        // Nobody may be left in a claim that others have given up.
        Status all =
            agree(**transport, witness.failures().empty() ? Status() : Status(Code::aborted, claim.name));
        if (!all.ok()) return false;
    }
    return right;
}

// Within the program's own calls messages and data are allowed at any level: once around the ring.
bool run_in_calls(const std::string& title) {
    MpiLimits limits;
    limits.only_in_calls = true;
    auto transport = make_mpi_transport(MPI_COMM_WORLD, limits);
    if (!transport.ok()) return say(title, transport.status().to_string());
    if ((*transport)->concurrent()) return say(title, "within calls: says that it is concurrent");
    const int size = (*transport)->size(), rank = (*transport)->rank();
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    std::vector<std::byte> sent(100000, static_cast<std::byte>(rank)), received(sent.size());
    if (!(*transport)->post(next, std::span(sent).first(10)).ok()) return say(title, "within calls: post");
    auto send = (*transport)->start_send(next, 3, sent);
    auto receive = (*transport)->start_receive(previous, 3, received);
    if (!send.ok() || !receive.ok()) return say(title, "within calls: a transfer does not start");
    bool message = false, in = false, out = false;
    while (!message || !in || !out) {
        const auto polled = (*transport)->poll();
        const auto sent_bytes = (*send)->test(), received_bytes = (*receive)->test();
        if (!polled.ok() || !sent_bytes.ok() || !received_bytes.ok())
            return say(title, "within calls: " + polled.status().to_string());
        message = message || (polled->has_value() && (*polled)->source == previous);
        out = sent_bytes->has_value();
        in = received_bytes->has_value();
        (*transport)->wait(std::chrono::milliseconds(1), true);
    }
    if (received.back() != static_cast<std::byte>(previous)) return say(title, "within calls: wrong bytes");
    return true;
}

// MPI gives a communicator the number of one that was freed, and what nobody took there is still in its
// queue.
bool run_one_after_another() {
    const std::string title = "one after another";
    for (int round = 0; round < 20; ++round) {
        auto transport = make_mpi_transport(MPI_COMM_WORLD);
        if (!transport.ok()) return say(title, transport.status().to_string());
        for (int i = 0; i < 20; ++i) {
            const auto message = (*transport)->poll();
            if (!message.ok() || message->has_value())
                return say(title,
                           "a message of an earlier transport arrived in round " + std::to_string(round));
        }
        if (!(*transport)->allgather({}).ok()) return say(title, "allgather");
        std::vector<std::byte> stale(100);
        if (!(*transport)->post((rank_in_world + 1) % (*transport)->size(), stale).ok())
            return say(title, "post");
        if (!(*transport)->allgather({}).ok()) return say(title, "allgather");
    }
    return true;
}

bool run_funneled() {
    const std::string title = "below MPI_THREAD_MULTIPLE";
    auto transport = make_mpi_transport(MPI_COMM_WORLD);
    if (!transport.ok()) return say(title, transport.status().to_string());
    bool right = true;
    std::vector<std::byte> memory(3);
    if ((*transport)->concurrent()) right = say(title, "the transport says that it is concurrent");
    for (const Status& status : {(*transport)->post(0, memory), (*transport)->poll().status(),
                                 (*transport)->start_send(0, 1, memory).status(),
                                 (*transport)->start_receive(0, 1, memory).status()})
        if (status.code() != Code::failed_state) right = say(title, "not refused: " + status.to_string());
    auto all = (*transport)->allgather(memory);
    if (!all.ok() || all->size() != static_cast<size_t>((*transport)->size()))
        right = say(title, "allgather");
    const int last = (*transport)->size() - 1;
    Status agreed = agree(
        **transport, (*transport)->rank() == last ? Status(Code::no_space, "the tier is full") : Status());
    if (agreed.code() != Code::no_space) right = say(title, "agree: " + agreed.to_string());

    return run_in_calls(title) && right;
}

// A collective call that waits says for which rank, once, on one rank: on rank 0, or on rank 1 for rank 0.
bool run_late(int late) {
    const std::string title = "rank " + std::to_string(late) + " comes late";
    MpiLimits limits;
    limits.patience = std::chrono::milliseconds(300);
    std::vector<std::string> said;
    limits.warn = [&](const std::string& sentence) { said.push_back(sentence); };
    auto transport = make_mpi_transport(MPI_COMM_WORLD, limits);
    if (!transport.ok()) return say(title, transport.status().to_string());
    if (rank_in_world == late) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const bool gathered = (*transport)->allgather({}).ok();
    if (!gathered) return say(title, "allgather");
    const bool reports = rank_in_world == (late == 0 ? 1 : 0);
    if (said.size() != (reports ? 1u : 0u)) return say(title, std::to_string(said.size()) + " messages");
    if (reports && said[0].find("s for rank " + std::to_string(late) + ", of") == std::string::npos)
        return say(title, said[0]);
    return true;
}

// A communicator smaller than the world, in another order.
bool run_on_a_part() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank_in_world % 2, size - rank_in_world, &part);
    const bool right = run_suite("on every other rank", part, {});
    MPI_Comm_free(&part);
    return right;
}

}  // namespace
}  // namespace tailrace::internal

int main(int argc, char** argv) {
    using namespace tailrace::internal;
    const bool funneled = argc > 1 && std::strcmp(argv[1], "funneled") == 0;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_in_world);

    bool right = true;
    if (funneled) {
        right = run_funneled();
    } else if (provided < MPI_THREAD_MULTIPLE) {
        right = say("MPI_Init_thread", "this MPI library does not provide MPI_THREAD_MULTIPLE");
    } else {
        right = run_suite("as it is", MPI_COMM_WORLD, {});
        right = run_suite("with small limits", MPI_COMM_WORLD,
                          {.plain_bytes = 60 * 1000, .collective_bytes = 20 * 1000}) &&
                right;
        right = run_on_a_part() && right;
        right = run_one_after_another() && right;
        int size = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (size > 2) right = run_late(size - 1) && run_late(0) && right;
    }

    int all_right = 0, mine = right ? 1 : 0;
    MPI_Allreduce(&mine, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_right == 1 ? 0 : 1;
}
