// memory_file.h - a file in which VELOC has put the regions of one rank (its memory mode; the same from 1.4
// on):
//
//     offset 0        u64 n                    number of regions
//     8 + 12 i        i32 id, u64 bytes        packed, ids ascending, i = 0..n-1
//     8 + 12 n        the bytes of region 0, then of region 1, and so on, without padding
//
// Numbers are little-endian. The file has no mark and no checksum: that its parts sum up to its size is the
// only test there is. So everything is checked that can be, and nothing is believed of a file that fails.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <vector>

namespace veloc_on_tailrace {

// A file that is none of these. what() names it and says why.
class NoMemoryFile : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct StoredRegion {
    int32_t id;
    uint64_t offset;  // in the file
    uint64_t bytes;
};

// What lies in a file from some offset on, and where it ends.
struct StoredPart {
    std::vector<StoredRegion> regions;
    uint64_t end;
};

// Reads the table that begins at an offset of a file of this size. `name` is for sentences. Throws
// NoMemoryFile.
StoredPart read_part(std::istream& in, uint64_t begin, uint64_t file_bytes, const std::string& name);
// The same of a file that holds one such part and nothing else.
std::vector<StoredRegion> read_head(std::istream& in, uint64_t file_bytes, const std::string& name);

}  // namespace veloc_on_tailrace
