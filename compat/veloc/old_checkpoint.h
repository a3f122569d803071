// old_checkpoint.h - checkpoints that VELOC itself has written, for programs that go on from them:
//
//     DIRECTORY/NAME-RANK-VERSION.dat   the regions of a rank (memory_file.h)
//     DIRECTORY/NAME-agg-VERSION.dat    those of all ranks, one behind the other (VELOC's key aggregated)
//
// VELOC does not mark a version as complete. So a version counts if every rank has its regions, and they sum
// up to the size of the file. What was lost inside a file of the right size is not noticed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "memory_file.h"

namespace veloc_on_tailrace {

// Which process looks: the rank of so many, or one alone, whose number VELOC takes for its rank.
struct Owner {
    int rank = 0;
    int count = 1;
    bool alone = false;
};

// The versions that may be whole, newest first, of the file names in a directory. Pure.
std::vector<int> versions_of(const std::vector<std::string>& file_names, const std::string& name,
                             const Owner& owner);
// The same of a directory; empty if it cannot be read.
std::vector<int> versions_in(const std::string& directory, const std::string& name, const Owner& owner);

// A rank's regions of a version, mapped into memory as long as this object lives.
class OldCheckpoint {
  public:
    struct Piece {
        int id;
        std::span<const std::byte> bytes;
    };

    // Throws NoMemoryFile.
    OldCheckpoint(const std::string& directory, const std::string& name, int version, const Owner& owner);
    OldCheckpoint(const OldCheckpoint&) = delete;
    OldCheckpoint& operator=(const OldCheckpoint&) = delete;
    ~OldCheckpoint();

    const std::vector<Piece>& pieces() const { return pieces_; }

  private:
    void map(const std::string& path, const std::vector<StoredRegion>& regions);

    std::span<const std::byte> mapping_;
    std::vector<Piece> pieces_;
};

}  // namespace veloc_on_tailrace
