// EpochState: how far an epoch is on its way from a save to the shared directory.
//
//   captured -> protected -> (queued) -> flushing -> committed
//          \-> kept local (by shared_every or queue policy)     \-> failed, and why
//
// The newest epoch, if it was kept local, is committed when the session is closed (flush_at_close).
// protected is left out where setting redundancy does not ask for it, or where it does not succeed.
// A flush may begin on one node while others still protect the epoch, so what an epoch survives is
// also said beside its state.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tailrace::internal {

enum class EpochState : int {  // numbers as in the C interface
    unknown = 0,
    captured = 1,    // safe in the node-local tier; waits for its flush
    flushing = 2,    // on its way to the shared tier
    committed = 3,   // durable in the shared tier: exactly K files
    kept_local = 4,  // stays in the node-local tier, as configured or because the queue was full
    failed = 5,      // not in the shared tier; `why` says what happened and what is left
    protected_ = 6,  // captured, and safe from the loss of nodes; waits for its flush
};

inline bool is_final(EpochState state) {
    return state == EpochState::committed || state == EpochState::kept_local || state == EpochState::failed;
}

// No epoch moves to a state with a lower number of these, but for one whose agents die while they flush it:
// it is captured (or protected) as before. None moves from one final state to another, but for one that was
// kept local and is committed when the session is closed.
inline int stage_of(EpochState state) {
    switch (state) {
        case EpochState::unknown:
            return 0;
        case EpochState::captured:
            return 1;
        case EpochState::protected_:
            return 2;
        case EpochState::flushing:
            return 3;
        case EpochState::committed:
        case EpochState::kept_local:
        case EpochState::failed:
            break;
    }
    return 4;
}

struct EpochInfo {
    uint64_t epoch = 0;
    uint32_t run = 0;
    EpochState state = EpochState::unknown;
    Status why;        // failed: the reason; kept_local: ok
    std::string note;  // kept_local: which setting or queue kept it there
    // How many nodes of each set may be lost and the captured epoch comes back; 0: none.
    uint32_t losses_survived = 0;
    uint64_t captured_bytes = 0;               // this rank's
    double blocked_seconds = 0;                // how long save kept this rank
    double flush_seconds = 0;                  // from the group's start to its commit
    bool in_local = false, in_shared = false;  // where a restore could take it from (list() only)
};

}  // namespace tailrace::internal
