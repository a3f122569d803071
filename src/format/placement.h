// Placement: how the bytes of an epoch are given places in its files.
#pragma once

namespace tailrace::internal {

enum class Placement {
    append,      // extents go to the next free aligned offset, whoever has a chunk ready (Alg. 5)
    contiguous,  // every stream has one place, known before the first byte moves
};

}  // namespace tailrace::internal
