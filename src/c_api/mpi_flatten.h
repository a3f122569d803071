// MPI datatypes as lists of blocks: what a type's typemap says, byte by byte, found out by taking the type
// apart (MPI_Type_get_envelope, MPI_Type_get_contents). All combiners of MPI 3 and 4.0, large counts included
// where the MPI library has them.
//
// Blocks are in the order of the typemap, neighbours joined; displacements are relative to the origin and may
// be negative. Cost: time and memory of the number of blocks. Thread-safe as far as MPI is.
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

// The type need not be committed. transport when MPI refuses something; unsupported for a combiner nobody
// knows.
Result<FlatType> flatten(MPI_Datatype type);

// A file view: the filetype laid out again and again from `displacement` on. The view's data are the bytes of
// its blocks, one after the other.
struct FileView {
    uint64_t displacement = 0;
    FlatType type;
};

// The requests for `bytes` bytes of the view's data from `position` on, neighbours joined, none of zero
// bytes. invalid_argument when the view has no bytes, or one in front of the file's begin.
Result<std::vector<Request>> requests_of(const FileView& view, uint64_t position, uint64_t bytes);

// `count` elements of a type at `address`, as the memory of a call; pieces in the order of the typemap.
MemoryList memory_of(void* address, uint64_t count, const FlatType& type);

}  // namespace tailrace::internal::collective
