// RebuildRun: moves the bytes of a rebuild, in rounds that all ranks take together. In a round every
// node that writes lost parts gets the sources of a few runs of them from whoever has these, sums
// them up and writes. Memory: about rebuild_bytes for what comes in, and as much for what goes out.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "protect/protect_object.h"
#include "protect/rebuild_plan.h"
#include "storage/storage.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

struct RebuildContext;

inline constexpr uint64_t rebuild_bytes = 16 << 20;

class RebuildRun {
  public:
    // Writes bytes of the lost part with that index in the epoch's list.
    using Write = std::function<Status(size_t lost, uint64_t offset, std::span<const std::byte> bytes)>;

    // `node`: the one that this rank represents; -1: none. `objects`: those of this node, with their
    // checksums. All arguments must outlive the run.
    RebuildRun(const RebuildContext& context, const EpochRebuild& epoch, int node,
               const std::vector<FoundObject>& objects, Write write);

    // Call it within a common call (together() in transport.h). The failure is this rank's own.
    Status run();

  private:
    struct Run {
        size_t lost = 0;
        uint64_t offset = 0, bytes = 0;
    };
    // A piece of a term in one file.
    struct Fragment {
        int node = 0;
        std::string path;
        bool from_object = false;
        uint32_t piece = 0;
        uint64_t file_offset = 0;  // or the offset in the object's piece
        uint64_t term_offset = 0, bytes = 0;
    };
    // Where a node is in its list.
    struct Cursor {
        std::vector<size_t> lost;
        size_t next = 0;
        uint64_t offset = 0;
    };
    std::vector<Run> next_runs(Cursor& cursor) const;
    std::vector<Fragment> fragments_of(const SetRemains& set, const RebuildTerm& term) const;
    void read(const Fragment& fragment, std::span<std::byte> target);
    Status read_object(const Fragment& fragment, std::span<std::byte> target);
    Status read_part(const Fragment& fragment, std::span<std::byte> target);
    // A round: what goes out is made ready, with room for what comes in; then all exchange; then
    // what came in is written.
    void prepare(std::map<int, Cursor>& cursors);
    Status write_runs();
    std::span<std::byte> take(uint64_t bytes);  // until the end of the round

    const RebuildContext& context_;
    const EpochRebuild& epoch_;
    const int node_;
    const std::vector<FoundObject>& objects_;
    const Write write_;
    Status failure_;
    struct Source {
        uint8_t factor = 1;
        std::span<std::byte> bytes;
    };
    // Of the round.
    std::vector<Run> own_runs_;
    std::vector<std::vector<Source>> own_sources_;  // by run, then term
    std::vector<Transport::Outgoing> sends_;
    std::vector<Transport::Incoming> receives_;
    std::deque<std::vector<std::byte>> stock_;  // the first `taken_` are in use
    size_t taken_ = 0;
    std::map<std::string, std::unique_ptr<File>> files_;
    std::map<std::string, std::unique_ptr<ObjectReader>> readers_;
};

}  // namespace tailrace::internal
