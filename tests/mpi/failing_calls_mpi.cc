// The MPI transport seen through its MPI calls: what it says when one fails and after that, and whether it
// receives what nobody polls. One process that sends to itself; the calls are intercepted through MPI's
// profiling interface.
//
// Exits with 0 when everything was right; says on stderr what was wrong.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "transport/mpi_transport.h"

namespace {

bool next_receive_fails = false;
bool next_receive_fails_under_way = false;
const MPI_Request* received = nullptr;  // of the last receive that began
int receives = 0;
int tests_until_failure = -1;  // of requests that are under way; -1: none fails
size_t no_memory_for = 0;      // the next allocation of so many bytes fails

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
    if (no_memory_for != 0 && bytes == no_memory_for) {
        no_memory_for = 0;
        throw std::bad_alloc();
    }
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

extern "C" int MPI_Imrecv(void* memory, int count, MPI_Datatype type, MPI_Message* message,
                          MPI_Request* request) {
    ++receives;
    received = request;
    if (!next_receive_fails) return PMPI_Imrecv(memory, count, type, message, request);
    next_receive_fails = false;
    return MPI_ERR_OTHER;
}

extern "C" int MPI_Test(MPI_Request* request, int* complete, MPI_Status* status) {
    if (next_receive_fails_under_way && request == received) {
        next_receive_fails_under_way = false;
        return MPI_ERR_OTHER;
    }
    if (*request != MPI_REQUEST_NULL && tests_until_failure >= 0 && tests_until_failure-- == 0)
        return MPI_ERR_OTHER;
    return PMPI_Test(request, complete, status);
}

namespace tailrace::internal {
namespace {

bool say(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    return false;
}

// A message whose receive fails is an error once. It must not come later as a message of zeros.
bool lost_message_is_not_delivered(bool fails_at_its_start) {
    auto transport = make_mpi_transport(MPI_COMM_SELF);
    if (!transport.ok()) return say(transport.status().to_string());
    const std::vector<std::byte> message(100, std::byte{7});
    if (!(*transport)->post(0, message).ok()) return say("post");
    next_receive_fails = fails_at_its_start;
    next_receive_fails_under_way = !fails_at_its_start;
    received = nullptr;
    bool failed = false;
    for (int look = 0; look < 1000; ++look) {
        const auto polled = (*transport)->poll();
        if (!polled.ok())
            failed = true;
        else if (polled->has_value())
            return say("a message that could not be received was delivered all the same");
    }
    next_receive_fails = next_receive_fails_under_way = false;
    return failed || say("no receive failed");
}

// MPI has matched it, so nobody else receives it.
bool message_without_memory_comes_later() {
    auto transport = make_mpi_transport(MPI_COMM_SELF);
    if (!transport.ok()) return say(transport.status().to_string());
    const std::vector<std::byte> message(12345, std::byte{7});
    if (!(*transport)->post(0, message).ok()) return say("post");
    no_memory_for = message.size();
    bool thrown = false;
    for (int look = 0; look < 100000; ++look) {
        const auto polled = catching([&] { return (*transport)->poll(); });
        if (polled.status().code() == Code::out_of_memory)
            thrown = true;
        else if (!polled.ok())
            return say(polled.status().to_string());
        else if (polled->has_value())
            return ((*polled)->bytes == message || say("another message was received")) &&
                   (thrown || say("memory was there at once"));
    }
    return say("a message for which there was no memory at first was lost");
}

// The request that failed is not the transfer's only one: MPI may go on reading and writing its memory.
bool memory_of_a_failed_send_is_not_free(int failing_test) {
    auto transport = make_mpi_transport(MPI_COMM_SELF);
    if (!transport.ok()) return say(transport.status().to_string());
    // Beyond every eager limit: the send ends only when it is received. It must outlive the process's MPI.
    auto& memory = *new std::vector<std::byte>(8 << 20, std::byte{5});
    auto send = (*transport)->start_send(0, 3, memory);
    if (!send.ok()) return say(send.status().to_string());
    tests_until_failure = failing_test;
    const auto result = (*send)->test();
    tests_until_failure = -1;
    if (result.ok()) return say("the transfer's failure was not told");
    if ((*send)->test().ok()) return say("a failed transfer is well again");
    const bool free = (*send)->take_back();
    (void)send->release();  // left to MPI, as its memory is
    return !free || say("the memory of a failed transfer is said to be free");
}

// What nobody polls is received all the same before the transport ends: MPI has nothing left to warn of.
bool dropped_messages_are_received() {
    auto transport = make_mpi_transport(MPI_COMM_SELF);
    if (!transport.ok()) return say(transport.status().to_string());
    const int before = receives;
    const std::vector<std::byte> message(100);
    for (int i = 0; i < 10; ++i)
        if (!(*transport)->post(0, message).ok()) return say("post");
    const auto dropped = (*transport)->drop_messages();
    if (!dropped.ok()) return say(dropped.to_string());
    return receives - before == 10 || say("messages that nobody polled were left to MPI");
}

}  // namespace
}  // namespace tailrace::internal

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    using namespace tailrace::internal;
    bool right = lost_message_is_not_delivered(true);
    right = lost_message_is_not_delivered(false) && right;
    right = message_without_memory_comes_later() && right;
    right = memory_of_a_failed_send_is_not_free(0) && right;  // its announcement
    right = memory_of_a_failed_send_is_not_free(1) && right;  // its data
    right = dropped_messages_are_received() && right;
    std::fprintf(stderr, right ? "" : "something was wrong\n");
    std::fflush(stderr);
    // Without MPI_Finalize, which would wait for what was given up.
    std::_Exit(right ? 0 : 1);
}
