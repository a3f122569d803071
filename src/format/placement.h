// Placement: how the bytes of an epoch are given places in its files.
#pragma once

namespace tailrace::internal {

enum class Placement {
    append,      // extents go to the next free aligned offset, by the next writer that has a chunk (Alg. 5)
    contiguous,  // every stream has one place, which is known before the first byte moves
};

}  // namespace tailrace::internal
