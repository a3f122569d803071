// The conformance suite of tests/transport over primitives in Python; in the extension of the tests only.
#include "transport/conformance.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "transport.h"

namespace tailrace::python {

// What this rank found wrong. Every rank calls it; a claim ends for all before the next begins.
static std::vector<std::string> check_transport(nanobind::object primitives) {
    const auto transport = make_ranks_transport(std::move(primitives));
    const nanobind::gil_scoped_release release;
    std::vector<std::string> wrong;
    for (const conformance::Claim& claim : conformance::claims()) {
        conformance::Witness witness;
        claim.check(*transport, witness);
        for (const std::string& failure : witness.failures()) wrong.push_back(claim.name + ": " + failure);
        // Nobody may be left in a claim that others have given up.
        const Status all =
            agree(*transport, witness.failures().empty() ? Status() : Status(Code::aborted, claim.name));
        if (all.ok()) continue;
        wrong.push_back(claim.name + ": " + all.message());
        transport->end(false);
        break;
    }
    transport->end(true);
    return wrong;
}

void bind_conformance(nanobind::module_& module) {
    module.def("_check_transport", &check_transport, nanobind::arg("primitives"));
}

}  // namespace tailrace::python
