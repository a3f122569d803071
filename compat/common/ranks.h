// ranks.h - the processes that call together, as the clients of other libraries' interfaces see them: those
// of an MPI communicator, or one alone.
#pragma once

#include <memory>
#include <string>
#include <tailrace.hpp>
#include <vector>

namespace on_tailrace {

class Ranks {
  public:
    virtual ~Ranks() = default;

    virtual int rank() const = 0;
    virtual int count() const = 0;
    // What tells the directories of single processes apart; empty for ranks of a communicator.
    virtual std::string identity() const = 0;
    // Whether sessions work while no rank calls. If not, what begins, ends or waits is collective.
    virtual bool has_background() const = 0;

    // These are collective.
    virtual bool on_one_node() = 0;
    virtual bool all(bool mine) = 0;
    virtual int of_first(int mine) = 0;
    virtual std::string of_first(const std::string& mine) = 0;
    // What all ranks have, in their order. Rank 0 gets it, the others nothing.
    virtual std::vector<std::string> gathered(const std::string& mine) = 0;
    virtual tailrace::Session open(const tailrace::Options& options) = 0;
};

std::unique_ptr<Ranks> single_process(unsigned int id = 0);

}  // namespace on_tailrace
