// Encodes a SharedEpoch, so that one rank can read the heads of the K files and tell the others.
// Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"

namespace tailrace::internal {

std::vector<std::byte> encode_shared_epoch(const SharedEpoch& epoch);
Result<SharedEpoch> decode_shared_epoch(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
