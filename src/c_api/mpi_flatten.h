// MPI datatypes as lists of blocks, which is what a type's typemap says, byte by byte. The type is
// taken apart with MPI_Type_get_envelope and MPI_Type_get_contents. All combiners of MPI 3 and 4.0
// are known, with large counts if the MPI library has them.
//
// Blocks are in the order of the typemap, and adjacent ones are joined. Displacements are relative
// to the origin and may be negative. Time and memory are proportional to the number of blocks.
// Thread-safe as far as MPI is.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "requests/memory_list.h"
#include "requests/requests.h"

namespace tailrace::internal::collective {

struct Block {
    int64_t displacement = 0;
    uint64_t bytes = 0;
    int64_t end() const { return displacement + static_cast<int64_t>(bytes); }
    bool operator==(const Block&) const = default;
};

struct FlatType {
    std::vector<Block> blocks;
    uint64_t bytes = 0;  // the sum of the blocks
    int64_t extent = 0;  // from one element to the next
};

// The type need not be committed. transport if an MPI call fails; unsupported for an unknown
// combiner.
Result<FlatType> flatten(MPI_Datatype type);

// A file view: the filetype repeated from `displacement` on. The view's data are the bytes of its
// blocks, one after the other.
struct FileView {
    uint64_t displacement = 0;
    FlatType type;
};

// The requests for `bytes` bytes of the view's data from `position` on. Adjacent ones are joined,
// and none is empty. invalid_argument if the view has no bytes, or one before the beginning of the
// file.
Result<std::vector<Request>> requests_of(const FileView& view, uint64_t position, uint64_t bytes);

// `count` elements of a type at `address`, as the memory of a call. The pieces are in the order of
// the typemap.
MemoryList memory_of(void* address, uint64_t count, const FlatType& type);

}  // namespace tailrace::internal::collective
