// Records: what a session writes down about its epochs, for people who want to know afterwards what
// took how long. There is one JSON object per line; docs/records.md says what each field means.
// Pure.
//
// The first line of a file describes a session ("record": "session"). A line per epoch follows
// ("epoch"), and one more if the session ends well ("end").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flush/flush_statistics.h"
#include "format/epoch_key.h"

namespace tailrace::internal {

// The local phase of one epoch, over some ranks.
struct CaptureNumbers {
    uint32_t ranks = 0;
    uint64_t bytes = 0;
    double least_seconds = 0, most_seconds = 0, sum_seconds = 0;  // the ranks' captures
    double most_wait_seconds = 0;     // the longest time that a rank waited for room in the queue
    double most_blocked_seconds = 0;  // the longest wait and capture of a rank together

    void add(const CaptureNumbers& other);
    bool operator==(const CaptureNumbers&) const = default;
};
CaptureNumbers capture_numbers(uint64_t bytes, double seconds, double wait_seconds);  // one rank's

// The flush of one epoch on one node.
struct NodeRecord {
    int node = 0;
    int group = 0;
    FlushStatistics statistics;  // without events
};

// How one node has protected its share of an epoch from the loss of nodes.
struct ProtectionRecord {
    int node = 0;
    bool done = false;  // its whole set has
    std::string why;    // not done: the reason
    double seconds = 0;
    uint64_t sent_bytes = 0;  // to other nodes
    uint64_t kept_bytes = 0;  // what it keeps for others
    bool operator==(const ProtectionRecord&) const = default;
};

struct EpochRecord {
    EpochKey key;
    std::string state;  // "committed", "kept_local" or "failed"
    std::string why;    // failed: the reason; kept_local: what kept it there
    int64_t ended_unix_ms = 0;
    double flush_seconds = 0;  // until the last group had committed
    CaptureNumbers capture;
    bool is_protected = false;                  // on all nodes
    std::vector<ProtectionRecord> protections;  // ascending by node; empty: it was not to be protected
    std::vector<NodeRecord> nodes;              // ascending; those that have reported
};

struct SessionRecord {
    std::string job;
    uint32_t run = 0;
    uint64_t run_uid = 0;
    std::string version;
    std::string host;
    std::string shared_dir;
    std::string file_system;
    std::string io_engine;
    uint32_t ranks = 0;
    uint32_t nodes = 0;
    int64_t began_unix_ms = 0;
    // Key and value, as in the configuration.
    std::vector<std::pair<std::string, std::string>> settings;
};

struct SessionEnd {
    uint64_t run_uid = 0;
    int64_t ended_unix_ms = 0;
    double seconds = 0;  // since the session began
    uint64_t epochs = 0;
    double blocked_seconds = 0;  // the sum of most_blocked_seconds over all epochs
};

// Each line ends with a line feed.
std::string to_json_line(const SessionRecord& session);
std::string to_json_line(const EpochRecord& epoch, const SessionRecord& session);
std::string to_json_line(const SessionEnd& end);

// The events of a node in one epoch, as lines of a trace in the JSON array format that Perfetto
// opens. Each line begins with a comma. `steady_to_unix_us` is added to the events' steady clock.
std::string to_trace_lines(EpochKey key, int node, const std::vector<FlushEvent>& events,
                           int64_t steady_to_unix_us);
// What a trace file begins and ends with.
std::string trace_head(const SessionRecord& session, int node);
inline constexpr std::string_view trace_tail = "\n]\n";

}  // namespace tailrace::internal
