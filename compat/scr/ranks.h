// ranks.h - the processes that call together, as the client sees them: those of MPI_COMM_WORLD, or one alone
// in tests.
#pragma once

#include <memory>
#include <string>
#include <tailrace.hpp>
#include <vector>

namespace scr_on_tailrace {

class Ranks {
  public:
    virtual ~Ranks() = default;

    virtual int rank() const = 0;
    virtual int count() const = 0;

    // These are collective.
    virtual bool all(bool mine) = 0;
    virtual std::string of_first(const std::string& mine) = 0;
    // What all ranks have, in their order. Rank 0 gets it, the others nothing.
    virtual std::vector<std::string> gathered(const std::string& mine) = 0;
    virtual tailrace::Session open(const tailrace::Options& options) = 0;
};

std::unique_ptr<Ranks> single_process();

}  // namespace scr_on_tailrace
