// Plan: who belongs together, who leads, and where bytes go. Pure functions; nothing here waits or fails on
// anything but its arguments.
//
// Source of the method: M. Gossman, B. Nicolae, J. Calhoun, "Scalable I/O aggregation for asynchronous
// multi-level checkpointing", FGCS 2024, section 4, Algorithm 1. Departures: groups are balanced when K does
// not divide the number of nodes (the published formula can leave groups empty, and then fewer than K files
// exist); K may exceed the number of nodes; a group may have several leaders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/placement.h"
#include "format/shared_file.h"

namespace tailrace::internal {

// Group g of `groups` = min(nodes, files): consecutive nodes [first_node, last_node), consecutive files.
// Node i belongs to group floor(i * groups / nodes); file k to group floor(k * groups / files).
struct Group {
    int index = 0;
    int first_node = 0, last_node = 0;
    uint32_t first_file = 0, last_file = 0;
    int node_count() const { return last_node - first_node; }
    uint32_t file_count() const { return last_file - first_file; }
    bool operator==(const Group&) const = default;
};
Group group_of_node(int node, int node_count, uint32_t file_count);

// What a node brings to its group's epoch.
struct NodeOffer {
    int node = 0;
    std::vector<StreamInfo> streams;  // may be empty
    uint64_t bytes() const;           // sum of stream_bytes
    bool operator==(const NodeOffer&) const = default;
};

// The `count` nodes with the most bytes, ties to the lowest id; at most one per node. In descending order of
// bytes, so that front() is the leader of Algorithm 1.
std::vector<int> elect_leaders(const std::vector<NodeOffer>& offers, uint32_t count);

struct PlanSettings {
    uint32_t file_count = 1;          // K
    uint32_t leaders_per_file = 0;    // wished; 0: fitting_leaders(). A group has no more leaders than nodes,
                                      // and one if it has several files
    uint64_t chunk_bytes = 64 << 20;  // at most: the size of a pool buffer
    uint64_t block_bytes = 4096;
    uint64_t stripe_align = 0;  // 0, or a multiple of block_bytes of which stripes are multiples too
    Placement placement = Placement::append;
};

// The size of the pieces in which an epoch moves: settings.chunk_bytes, halved as long as a node (the mean of
// those that have data) would have fewer than eight of them, and not below 4 MiB. A piece is received whole
// before it is written, so with few large ones the disk waits for the first and the network for the last.
uint64_t fitting_chunk_bytes(const std::vector<NodeOffer>& offers, const PlanSettings& settings);

// How many nodes of a group should lead when nobody says: all, since what a leader has itself need not be
// sent, but eight at most, none without 16 MiB of the group's bytes, which pay for its syncs, and only as
// many as have about as much as the one with the most: every leader has stripes for as much, and what it does
// not fill is holes.
uint32_t fitting_leaders(const std::vector<NodeOffer>& offers);

// Everything the members of a group must agree on to write one epoch. The same bytes on every member.
struct FlushPlan {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    uint32_t file_count = 1;
    Group group;
    std::vector<int> leaders;       // nodes; leader l of the plan writes segment l
    std::vector<NodeOffer> offers;  // of every node of the group, ascending
    uint64_t chunk_bytes = 0;
    uint64_t block_bytes = 0;
    uint64_t stripe_align = 0;
    Placement placement = Placement::append;

    SharedHeader header(uint32_t file) const;  // of file group.first_file <= file < last_file
    std::vector<StreamInfo> streams() const;   // of the group, ascending by rank
    int leader_index(int node) const;          // -1 when the node does not lead
    uint64_t bytes() const;                    // of all streams of the group
    bool operator==(const FlushPlan&) const = default;
};

// invalid_argument, with what is wrong, unless every invariant above holds; what it accepts cannot make any
// function of this file overflow. For plans that came from another node.
Status check_plan(const FlushPlan& plan);

// Pieces of at most chunk_bytes that a node's streams move in; no piece holds bytes of two streams.
uint64_t chunk_count(const NodeOffer& offer, uint64_t chunk_bytes);

// The leader (index into plan.leaders) that writes all data of each node of the group, in the order of
// plan.offers: a leader its own, and with contiguous placement each follower's whole data goes to one leader,
// so that bytes are balanced. any_leader: with append, whichever leader has a free buffer.
inline constexpr int any_leader = -1;
std::vector<int> assigned_leaders(const FlushPlan& plan);

// `offers` of all nodes of the group in ascending order. invalid_argument when a rank is offered twice, or
// anything else that check_plan refuses.
Result<FlushPlan> make_plan(const std::string& job, EpochKey key, uint64_t run_uid, uint32_t rank_count,
                            const Group& group, std::vector<NodeOffer> offers, const PlanSettings& settings);

// Where chunks of one leader go in its files. Not thread-safe: the caller holds a lock for the few
// instructions a call takes (Alg. 5, lines 9-13), never while writing.
class ExtentAllocator {
  public:
    ExtentAllocator(const FlushPlan& plan, uint32_t leader_index);

    struct Placed {
        uint32_t file = 0;  // relative to group.first_file
        Extent extent;
    };
    // The extents for [stream_offset, +bytes) of a rank's stream: one, or several where a stripe ends. Every
    // file_offset is block-aligned; the space behind an extent up to the next block belongs to it, so that
    // writes may be padded. stream_offset must be a multiple of block_bytes.
    // The rank must be of the plan and, with contiguous placement, of a node assigned to this leader.
    std::vector<Placed> allocate(uint32_t rank, uint64_t stream_offset, uint64_t bytes);

    // Where the leader's data ends in a file (relative to group.first_file), padding included: of what was
    // allocated so far, or with contiguous placement of all of its streams. data_offset when there is none.
    uint64_t file_end(uint32_t file) const;

  private:
    struct FileState {
        SharedHeader header;
        uint64_t next = 0;  // append: the leader's next free position in its own data; contiguous: its end
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

// The extent of the file that the plan's data can reach at most, for reserving space in advance: exact for
// contiguous placement and one leader; with several leaders an even share each.
uint64_t expected_file_bytes(const FlushPlan& plan, uint32_t file);

}  // namespace tailrace::internal
