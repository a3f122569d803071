// Ranks that open one epoch together read each manifest once: N reads of small pieces instead of N
// x N.
//
//   1. With N ranks now, rank r reads the manifests of saved ranks r, r + N, r + 2N, ..., from the
//      nearest tier that has them right.
//   2. All ranks exchange what they have read (one allgather).
//   3. Every rank checks what came against the checksum that its own sources name, and keeps it.
//
// It is no failure if a manifest is still missing after this. A rank that needs it reads it from
// the files, and meets the reason there.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "read/epoch_reader.h"
#include "transport/transport.h"

namespace tailrace::internal {

// In step 2 every rank holds all manifests, even a rank that needs only its own. Beyond this many
// bytes in all, each rank reads what it needs instead. 2048 ranks with 1 GiB of arrays each reach
// this size.
inline constexpr uint64_t max_exchanged_manifest_bytes = 32 << 20;

// Collective. `reader` is null on a rank that could not open the epoch, which only takes part.
// Fails if the transport fails, with that reason.
Status exchange_manifests(Transport& transport, EpochReader* reader, uint32_t saved_ranks);

}  // namespace tailrace::internal
