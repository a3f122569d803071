// Plan: who aggregates for whom, which parts of the file belong to whom, and whether two layers
// pay. These are pure functions of what all ranks know, so every rank makes the same plan without a
// further message.
//
// Words: a local aggregator collects the requests of its group, which are ranks of one node; it is
// the lowest of them. A global aggregator owns file domains and reads and writes them. A window is
// what one global aggregator moves in one round, at most the buffer size. p_l and p_g are the
// numbers of local and global aggregators.
//
// Source: Q. Kang et al., TPDS 2020, sections 3.1 and 3.2. Their selection rule lost its ceiling in
// print: the first e = q mod c groups have ceil(q / c) ranks, the others floor(q / c).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/shared_memory.h"
#include "requests/requests.h"
#include "transport/topology.h"

namespace tailrace::internal::collective {

// ---- who ----------------------------------------------------------------------------------------

// The local numbers of `chosen` of a node's `ranks` ranks, 1 <= chosen <= ranks. They are as far
// apart as possible, and each is the first of its group.
std::vector<int> spread_out(int ranks, int chosen);

// The groups of the first layer.
struct Groups {
    std::vector<int> aggregator_of_rank;
    std::vector<int> aggregators;  // ascending; size() is p_l
    // The ranks of `aggregator`'s group, ascending. The aggregator is the first.
    std::vector<int> members(int aggregator) const;
};
// At most `per_node` local aggregators on every node. 0: every rank is its own, so p_l = p. Only
// nodes with has_shared_memory[node] get groups of more than one rank.
Groups make_groups(const Topology& topology, int per_node, const std::vector<bool>& has_shared_memory);

// The global aggregators. If there are more nodes than `count`, they are on `count` nodes, spread
// out over all. Otherwise every node has as evenly many as possible, spread out among its ranks. 0:
// one per node. There are never more than ranks.
std::vector<int> choose_global_aggregators(const Topology& topology, int count);
// Rounds up to whole groups of `stripes`, if there is more than one group.
std::vector<int> choose_global_aggregators(const Topology& topology, int count, int stripes);

// ---- where --------------------------------------------------------------------------------------

enum class Layout {
    contiguous,  // a domain is one even, aligned part of the accessed range
    cyclic,      // aligned windows are dealt out in turn: all aggregators work side by side in the file
    // As many aggregators as the file has stripes deal out a part of the range, stripe by stripe.
    // So each uses one server. Every further group of aggregators has a part of its own. A window
    // is one stripe.
    group_cyclic,
};

struct DomainSettings {
    Layout layout = Layout::contiguous;
    uint64_t window_bytes = uint64_t{16} << 20;  // at most; a multiple of align_bytes
    uint64_t align_bytes = 4096;                 // of every border except the ends of the range
    // group_cyclic: the number of stripes of align_bytes that follow each other on different
    // servers. 0: as many as there are aggregators.
    int stripes = 0;
};

// An owner's part is cut into at least this many windows. So the file phase of one runs beside the
// exchange of the next, and memory that has been touched is used again...
inline constexpr uint64_t least_rounds = 4;
// ...but windows are not cut smaller than this, because a round costs several messages in sequence,
// whatever it moves.
inline constexpr uint64_t least_window_bytes = uint64_t{2} << 20;

// The accessed range [begin, end) of the file as windows. Their ids order them by round, then by
// aggregator. Every byte of the range lies in exactly one window.
class Domains {
  public:
    Domains() = default;
    // `begins`: where the owners' parts except the first begin, non-decreasing and within the
    // range, rounded down to the alignment. Empty: even parts. Only with the contiguous layout.
    Domains(const FileWindow& range, int owners, const DomainSettings& settings,
            std::vector<uint64_t> begins = {});

    int owners() const { return owners_; }
    uint64_t rounds() const { return rounds_; }
    uint64_t window_bytes() const { return window_bytes_; }  // no window is larger
    // It may be empty, for example in the last domain's last rounds.
    FileWindow window(uint64_t id) const;
    uint64_t window_of(uint64_t offset) const;  // for an offset within the range
    int owner(uint64_t id) const { return static_cast<int>(id % static_cast<uint64_t>(owners_)); }
    uint64_t round(uint64_t id) const { return id / static_cast<uint64_t>(owners_); }
    // Whether an access within `range` may need this owner.
    bool may_touch(const FileWindow& range, int owner) const;

  private:
    FileWindow part(uint64_t group) const;
    uint64_t group_of(uint64_t offset) const;

    // Owners form groups. Each group has one part of the range and deals out its windows in turn.
    // With groups of one this is the contiguous layout, with one group of all the cyclic one.
    FileWindow range_;
    int owners_ = 1;
    int group_owners_ = 1;
    uint64_t base_ = 0;             // where the first part begins: range_.begin, aligned downwards
    uint64_t part_bytes_ = 0;       // if parts are even
    std::vector<uint64_t> begins_;  // if they are not, including the first one
    uint64_t window_bytes_ = 1;
    uint64_t rounds_ = 0;
};

// The ids of the windows that the list touches, ascending.
std::vector<uint64_t> windows_of(const RequestList& list, const Domains& domains);

// ---- whether ------------------------------------------------------------------------------------

enum class Exchange {
    automatic,
    always,  // through global aggregators, whatever the requests are
    never,   // every rank reads and writes its own requests
};

struct Settings {
    int local_aggregators_per_node = 0;  // c; 0: chosen by the requests; -1: every rank (p_l = p)
    int global_aggregators = 0;          // p_g; 0: one per node
    Exchange exchange = Exchange::automatic;
    // On other file systems, every rank that opens the file and every additional writer costs round
    // trips.
    bool local_file_system = true;
    DomainSettings domains;
};

// What every rank tells the others before a call.
struct RankSummary {
    ListSummary list;
    bool has_shared_list = false;  // its list lies, or would lie, in memory that the node shares
    SharedName memory{};           // its requests in that memory
    bool shares_bytes = false;     // ... followed by the bytes that it writes
};

enum class Way {
    nothing,    // no rank asks for a byte
    direct,     // every rank by itself
    two_phase,  // p_l = p
    two_layer,
};

struct Decision {
    Way way = Way::nothing;
    std::string reason{};  // a clause, for the log and the statistics
    int local_aggregators_per_node = 0;
    // Where the nodes' parts of the file begin, except the first, if they follow one another as the
    // nodes do. Then the parts are the domains, and no byte leaves its node. Otherwise empty.
    std::vector<uint64_t> begins{};
};

// Requests of this mean size or more are worth a message each. Gathering them first would only
// copy.
inline constexpr uint64_t large_request_bytes = uint64_t{64} << 10;
// Ranks with requests of this size that do not interleave need no exchange at all.
inline constexpr uint64_t direct_request_bytes = uint64_t{256} << 10;
// On a local file system this few requests of a rank cost less than the messages of an exchange,
// whatever their size.
inline constexpr uint64_t few_requests = 4;
// Without an exchange, memory pieces of a request that are smaller than this are gathered first,
// ...
inline constexpr uint64_t direct_piece_bytes = uint64_t{256} << 10;
// ... in a buffer of that size at most.
inline constexpr uint64_t direct_gather_bytes = uint64_t{1} << 20;
// ... and if the file system is not local, only requests of this size need no exchange. Smaller
// ones go through their node's global aggregator, unless that is a detour, because one writer of a
// node is faster than many.
inline constexpr uint64_t remote_direct_request_bytes = uint64_t{4} << 20;
// A rank that writes no more than this lays its bytes beside its requests. Its local aggregator
// takes them from there without another message.
inline constexpr uint64_t small_write_bytes = uint64_t{256} << 10;
// One local aggregator serves at most this many ranks, unless a setting says otherwise.
inline constexpr int most_ranks_per_aggregator = 32;

Decision decide(const Topology& topology, const std::vector<RankSummary>& ranks, const Settings& settings);

// The range that all ranks touch together.
FileWindow accessed_range(const std::vector<RankSummary>& ranks);

}  // namespace tailrace::internal::collective
