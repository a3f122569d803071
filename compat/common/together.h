// together.h - what all ranks do together: clients derive from it.
//
// A failure is a line of the log and false. Nothing is thrown, unless MPI fails.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "log.h"
#include "ranks.h"

namespace on_tailrace {

class Together {
  protected:
    explicit Together(std::unique_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}
    ~Together() = default;

    // Runs `work`; what it throws is said, as a failure of `call`, and false is returned. Not collective.
    bool guarded(const char* call, const std::function<void()>& work) const;
    // Whether it went well on all ranks. Says so if only another one has failed.
    bool everywhere(const char* call, bool mine);
    // All ranks work. What the first of them has thrown is said once, by rank 0, and all hear whether none
    // did.
    bool everybody(const char* call, const std::function<void()>& work);
    // Rank 0 alone works, and all ranks hear whether it went well.
    bool on_first(const char* call, const std::function<void()>& work);
    // What rank 0 makes of it; nothing if that fails. All ranks hear it.
    std::optional<std::string> from_first(const char* call, const std::function<std::string()>& work);

    const std::unique_ptr<Ranks> ranks_;
};

}  // namespace on_tailrace
