// The conformance suite of tests/transport over primitives in Python. Only the tests' extension
// contains it.
#include "transport/conformance.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "transport.h"

namespace tailrace::internal::python {

// A transfer around the ring that is larger than any default chunk.
static bool moves_much(Transport& transport) {
    constexpr size_t size = (size_t{80} << 20) + 13;
    const int ranks = transport.size(), source = (transport.rank() + ranks - 1) % ranks;
    const auto byte = [](int rank, size_t at) { return static_cast<std::byte>(at * 31 + at / 4096 + rank); };
    std::vector<std::byte> sent(size), received(size);
    for (size_t i = 0; i < size; ++i) sent[i] = byte(transport.rank(), i);
    std::vector<Message> messages;
    auto receive = transport.start_receive(source, 5, received);
    auto send = transport.start_send((transport.rank() + 1) % ranks, 5, sent);
    if (!receive.ok() || !send.ok()) return false;
    for (Transfer* transfer : {receive->get(), send->get()}) {
        const auto moved = conformance::finish(transport, *transfer, messages);
        if (!moved.ok() || *moved != size) return false;
    }
    for (size_t i = 0; i < size; ++i)
        if (received[i] != byte(source, i)) return false;
    return true;
}

// What this rank found wrong. Every rank calls it. A claim ends on all ranks before the next
// begins.
static std::vector<std::string> check_transport(nanobind::object primitives) {
    const auto transport = make_ranks_transport(std::move(primitives));
    const nanobind::gil_scoped_release release;
    std::vector<std::string> wrong;
    for (const conformance::Claim& claim : conformance::claims()) {
        conformance::Witness witness;
        claim.check(*transport, witness);
        for (const std::string& failure : witness.failures()) wrong.push_back(claim.name + ": " + failure);
        // No rank may be left in a claim that others have given up.
        const Status all =
            agree(*transport, witness.failures().empty() ? Status() : Status(Code::aborted, claim.name));
        if (all.ok()) continue;
        wrong.push_back(claim.name + ": " + all.message());
        transport->end(false);
        break;
    }
    if (wrong.empty() && !moves_much(*transport)) wrong.emplace_back("a large transfer does not arrive");
    transport->end(true);
    return wrong;
}

void bind_conformance(nanobind::module_& module) {
    module.def("_check_transport", &check_transport, nanobind::arg("primitives"));
}

}  // namespace tailrace::internal::python
