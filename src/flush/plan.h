// Plan: which nodes form a group, which of them lead, and where bytes go. All functions are pure.
// None waits, and none fails for any other reason than its arguments.
//
// Source of the method: M. Gossman, B. Nicolae, J. Calhoun, "Scalable I/O aggregation for
// asynchronous multi-level checkpointing", FGCS 2024, section 4, Algorithm 1. We depart from it in
// three points:
//   - Groups are balanced when K does not divide the number of nodes. (The published formula can
//     leave groups empty, and then fewer than K files exist.)
//   - K may exceed the number of nodes.
//   - A group may have several leaders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/placement.h"
#include "format/shared_file.h"

namespace tailrace::internal {

// A group consists of consecutive nodes [first_node, last_node), and writes consecutive files
// [first_file, last_file). With G = min(nodes, files) groups,
//   - node i belongs to group floor(i * G / nodes), and
//   - file k belongs to group floor(k * G / files).
struct Group {
    int index = 0;
    int first_node = 0, last_node = 0;
    uint32_t first_file = 0, last_file = 0;
    int node_count() const { return last_node - first_node; }
    uint32_t file_count() const { return last_file - first_file; }
    bool operator==(const Group&) const = default;
};
Group group_of_node(int node, int node_count, uint32_t file_count);

// What a node brings to an epoch of its group.
struct NodeOffer {
    int node = 0;
    std::vector<StreamInfo> streams;  // may be empty
    uint64_t bytes() const;           // sum of stream_bytes
    bool operator==(const NodeOffer&) const = default;
};

// The `count` nodes with the most bytes; on a tie the lowest number wins. Each node appears once at
// most. They come in descending order of bytes, so front() is the leader of Algorithm 1.
std::vector<int> elect_leaders(const std::vector<NodeOffer>& offers, uint32_t count);

struct PlanSettings {
    uint32_t file_count = 1;  // K
    // 0: fitting_leaders() decides. A group never has more leaders than nodes, and a group with
    // several files has one leader.
    uint32_t leaders_per_file = 0;
    uint64_t chunk_bytes = 64 << 20;  // an upper limit: the size of a pool buffer
    uint64_t block_bytes = 4096;
    // 0, or a multiple of block_bytes. Stripes are then multiples of it.
    uint64_t stripe_align = 0;
    Placement placement = Placement::append;
};

// The size of the chunks in which an epoch moves. It is settings.chunk_bytes, halved as long as
// nodes have fewer than eight chunks on average (not counting nodes without data). It stays at
// least 4 MiB, and a multiple of the block and of the length that a checksum covers. A chunk is
// received whole before it is written. So with few large chunks the disk waits for the first one,
// and the network for the last.
uint64_t fitting_chunk_bytes(const std::vector<NodeOffer>& offers, const PlanSettings& settings);

// How many nodes of a group lead if the configuration does not say. A leader's own data need not be
// sent, so all nodes lead, up to eight. There are fewer leaders in two cases:
//   - The group has less than 16 MiB per leader. A leader with less would not pay for its syncs.
//   - The fullest node has more than 1.5 times a leader's equal share of the bytes. Each leader has
//     as many stripes as the fullest one, and what it does not fill stays a hole in the file.
uint32_t fitting_leaders(const std::vector<NodeOffer>& offers);

// All that the members of a group must agree on to write one epoch. Every member has the same
// bytes.
struct FlushPlan {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    uint32_t file_count = 1;
    Group group;
    std::vector<int> leaders;       // nodes; leader l of the plan writes segment l
    std::vector<NodeOffer> offers;  // one for each node of the group, ascending by node
    uint64_t chunk_bytes = 0;
    uint64_t block_bytes = 0;
    uint64_t stripe_align = 0;
    Placement placement = Placement::append;

    SharedHeader header(uint32_t file) const;  // group.first_file <= file < group.last_file
    std::vector<StreamInfo> streams() const;   // all streams of the group, ascending by rank
    int leader_index(int node) const;          // -1: the node does not lead
    uint64_t bytes() const;                    // the sum over all streams of the group
    bool operator==(const FlushPlan&) const = default;
};

// Checks a plan that another node has sent. Returns invalid_argument, and says what is wrong,
// unless every invariant above holds. No function of this file overflows on a plan that passes.
Status check_plan(const FlushPlan& plan);

// How many chunks of at most chunk_bytes a node's streams make. No chunk holds bytes of two
// streams.
uint64_t chunk_count(const NodeOffer& offer, uint64_t chunk_bytes);

// Which chunks of a plan have been written, as far as a few numbers can tell: two sets of chunks that differ
// have different sums, but for a chance of 2^-64. So a chunk that was written twice does not make up for one
// that is missing, whichever leaders wrote them.
struct WrittenChunks {
    uint64_t bytes = 0;
    uint64_t mark = 0;  // the sum of the chunks' own marks, modulo 2^64

    void add(uint32_t rank, uint64_t stream_offset, uint64_t chunk_bytes);
    void add(const WrittenChunks& others);
    bool operator==(const WrittenChunks&) const = default;
};
WrittenChunks all_chunks(const FlushPlan& plan);

// For each node of the group, in the order of plan.offers, the leader (an index into plan.leaders)
// that writes all its data. A leader writes its own. With contiguous placement each follower's data
// goes to one leader, so that leaders have about equally much. With append a follower has
// any_leader: whichever leader has a free buffer takes the next chunk.
inline constexpr int any_leader = -1;
std::vector<int> assigned_leaders(const FlushPlan& plan);

// Makes the plan of a group. `offers` has one entry for each node of the group, in ascending order.
// Returns invalid_argument if a rank is offered twice, or if check_plan refuses the plan otherwise.
Result<FlushPlan> make_plan(const std::string& job, EpochKey key, uint64_t run_uid, uint32_t rank_count,
                            const Group& group, std::vector<NodeOffer> offers, const PlanSettings& settings);

// Decides where the chunks of one leader go in its files. Not thread-safe: the caller holds a lock
// for the few instructions that a call takes (Algorithm 5, lines 9-13), and never while it writes.
class ExtentAllocator {
  public:
    ExtentAllocator(const FlushPlan& plan, uint32_t leader_index);

    struct Placed {
        uint32_t file = 0;  // relative to group.first_file
        Extent extent;
    };
    // The extents for the bytes [stream_offset, stream_offset + bytes) of a rank's stream: one, or
    // several where a stripe ends. Every file_offset is a multiple of the block. An extent also
    // owns the space behind it up to the next block, so a write may be padded. stream_offset must
    // be a multiple of block_bytes. The rank must belong to the plan and, with contiguous
    // placement, to a node that is assigned to this leader.
    std::vector<Placed> allocate(uint32_t rank, uint64_t stream_offset, uint64_t bytes);

    // Where the leader's data ends in a file (relative to group.first_file), padding included. With
    // append this covers what was allocated so far, with contiguous placement all of the leader's
    // streams. It is data_offset when the leader has no data in the file.
    uint64_t file_end(uint32_t file) const;

  private:
    struct FileState {
        SharedHeader header;
        // In the leader's own data: with append the next free position, with contiguous the end.
        uint64_t next = 0;
    };
    struct Base {
        uint32_t rank = 0;
        std::vector<uint64_t> position;  // per file, in the leader's own data
    };
    void place(uint32_t file, uint64_t position, Extent extent, std::vector<Placed>& placed) const;
    void place_contiguous(Extent extent, std::vector<Placed>& placed) const;

    uint64_t chunk_bytes_;
    uint64_t block_bytes_;
    Placement placement_;
    uint32_t leader_;
    std::vector<FileState> files_;
    size_t next_file_ = 0;
    std::vector<Base> bases_;  // contiguous only, ascending by rank
};

// How large the file can become by this plan; its space is reserved in advance. This is exact for
// contiguous placement and for one leader. For several leaders it assumes an equal share each.
uint64_t expected_file_bytes(const FlushPlan& plan, uint32_t file);

}  // namespace tailrace::internal
