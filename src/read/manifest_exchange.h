// Ranks that open one epoch together read each manifest once: N reads of small pieces instead of N x N.
//
//   1. rank r of the N there are now reads the manifests of saved ranks r, r + N, r + 2N, ..., from the
//      nearest tier that has them right;
//   2. all ranks exchange what they read (one allgather);
//   3. every rank checks what came against the checksum that its own sources name, and keeps it.
//
// A manifest that is missing after this is no failure: whoever needs it reads it from the files and meets the
// reason there.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "read/epoch_reader.h"
#include "transport/transport.h"

namespace tailrace::internal {

// In step 2 every rank holds all manifests, also one that will only need its own: beyond so many bytes in
// all, each rank reads what it needs instead. 2048 ranks with 1 GiB of arrays each have as much.
inline constexpr uint64_t most_exchanged_manifest_bytes = 32 << 20;

// Collective. `reader` is null on a rank that could not open the epoch: it only takes part. Fails when the
// transport does, with that reason.
Status exchange_manifests(Transport& transport, EpochReader* reader, uint32_t saved_ranks);

}  // namespace tailrace::internal
