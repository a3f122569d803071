// Requests: what one rank asks of the file, as (offset, bytes) in file order, and the merging of
// many such lists.
//
// Words: a request is one contiguous access of one rank. A run is the result of coalescing
// neighbouring requests. A list of runs is sorted, and no two of them overlap or touch.
//
// Pure. The spans must stay while a RequestList exists.
//
// Source: Q. Kang et al., "Improving MPI Collective I/O for High Volume Non-Contiguous Requests
// With Intra-Node Aggregation", TPDS 2020, section 3.1.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailrace::internal::collective {

struct Request {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t end() const { return offset + bytes; }
    bool operator==(const Request&) const = default;
};

// [begin, end) of the file.
struct FileWindow {
    uint64_t begin = 0, end = 0;
    uint64_t bytes() const { return end - begin; }
    bool operator==(const FileWindow&) const = default;
};

// The part of `request` that lies in `window`; zero bytes if none does.
inline Request clip(const Request& request, const FileWindow& window) {
    const uint64_t begin = request.offset > window.begin ? request.offset : window.begin;
    const uint64_t end = request.end() < window.end ? request.end() : window.end;
    return {begin, end > begin ? end - begin : 0};
}

// A rank's requests: offsets do not decrease, and none has zero bytes. Requests of a read may
// overlap.
class RequestList {
  public:
    RequestList() = default;
    // `overlapping`: some request begins before an earlier one ends.
    RequestList(std::span<const Request> requests, bool overlapping);

    std::span<const Request> all() const { return requests_; }
    bool empty() const { return requests_.empty(); }
    bool overlapping() const { return !reach_.empty(); }

    // Requests that may have a part in the window, from first to last as indices into all(). All
    // that have one are among them. Others are among them only in an overlapping list.
    struct Range {
        size_t first = 0, last = 0;
    };
    Range within(const FileWindow& window) const;

  private:
    std::span<const Request> requests_;
    std::vector<uint64_t> reach_;  // for an overlapping list: the greatest end up to each request
};

// Facts about a list, found in one pass.
struct ListSummary {
    uint64_t requests = 0;
    uint64_t bytes = 0;
    uint64_t begin = 0, end = 0;  // the file's range that it touches; 0, 0 if it is empty
    bool overlapping = false;
    bool operator==(const ListSummary&) const = default;
};

// invalid_argument if offsets decrease, if a range ends beyond the greatest offset of a file, or,
// for a write, if a request overlaps another. The sentence names the first such request. No request
// may have zero bytes.
Result<ListSummary> summarise(std::span<const Request> requests, bool writes, std::string_view path);

struct MergeCounts {
    uint64_t requests = 0;           // the number that have a part in the window
    uint64_t overlapping_bytes = 0;  // asked for by more than one request
};

// Merges the parts of sorted lists that lie in `window` and appends the runs to `runs`. A
// tournament tree of the lists (a heap in which a replacement costs one comparison per level) gives
// the next request. So the cost is (number of requests) x log2(number of lists).
MergeCounts merge(std::span<const std::span<const Request>> lists, const FileWindow& window,
                  std::vector<Request>& runs);

// Merges all lists, whatever their range.
MergeCounts merge(std::span<const std::span<const Request>> lists, std::vector<Request>& runs);

// Counts the runs that exist only because of borders between windows: those that begin where a run
// of the previous window ends. Each window is noted once, in any order.
class Cuts {
  public:
    // `at_begin`, `at_end`: whether a run reaches the window's border. Returns the cuts known so
    // far.
    uint64_t note(const FileWindow& window, bool at_begin, bool at_end) {
        return (at_begin ? meet(window.begin) : 0) + (at_end ? meet(window.end) : 0);
    }
    uint64_t note(const FileWindow& window, std::span<const Request> runs) {
        if (runs.empty()) return 0;
        return note(window, runs.front().offset == window.begin, runs.back().end() == window.end);
    }

  private:
    uint64_t meet(uint64_t border) {
        if (one_side_.erase(border) > 0) return 1;
        one_side_.insert(border);
        return 0;
    }
    std::set<uint64_t> one_side_;  // borders that one run reaches so far
};

uint64_t total_bytes(std::span<const Request> requests);

// Checks what a peer says of a window: ok if these are runs that lie in the window and have `bytes`
// bytes together, else transport. Memory is addressed by them, so nothing of them is trusted
// before.
Status check_runs(std::span<const Request> runs, const FileWindow& window, uint64_t bytes);

// Walks a list of runs in step with requests that lie in them. It finds where each request's bytes
// are in the packed bytes of the runs (one after the other, without gaps). Requests come in
// non-decreasing order.
class RunWalk {
  public:
    explicit RunWalk(std::span<const Request> runs) : runs_(runs) {}

    // The place of the request's bytes. The request lies within one run, as every request of a list
    // does that was merged into the runs. Nothing if it does not: then these are not the runs of
    // its list.
    std::optional<uint64_t> place(const Request& request) {
        while (at_ < runs_.size() && runs_[at_].end() <= request.offset) packed_before_ += runs_[at_++].bytes;
        if (at_ == runs_.size() || request.offset < runs_[at_].offset ||
            request.bytes > runs_[at_].end() - request.offset)
            return std::nullopt;
        return packed_before_ + (request.offset - runs_[at_].offset);
    }

  private:
    std::span<const Request> runs_;
    size_t at_ = 0;
    uint64_t packed_before_ = 0;
};

}  // namespace tailrace::internal::collective
