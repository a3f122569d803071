// Requests: what one rank asks of the file, as (offset, bytes) in file order, and what becomes of many such
// lists when they are merged.
//
// Words: a request is one contiguous access of one rank; a run is what is left when neighbouring requests
// have been coalesced. A list of runs is sorted, without overlaps and without two that touch.
//
// Pure; the spans must stay while a RequestList exists.
//
// Source: Q. Kang et al., "Improving MPI Collective I/O for High Volume Non-Contiguous Requests With
// Intra-Node Aggregation", TPDS 2020, section 3.1.
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

// The part of `request` that lies in `window`; zero bytes when none does.
inline Request clip(const Request& request, const FileWindow& window) {
    const uint64_t begin = request.offset > window.begin ? request.offset : window.begin;
    const uint64_t end = request.end() < window.end ? request.end() : window.end;
    return {begin, end > begin ? end - begin : 0};
}

// A rank's requests: offsets in non-decreasing order, none of zero bytes. Requests of a read may overlap.
class RequestList {
  public:
    RequestList() = default;
    // `overlapping`: some request begins before an earlier one ends.
    RequestList(std::span<const Request> requests, bool overlapping);

    std::span<const Request> all() const { return requests_; }
    bool empty() const { return requests_.empty(); }
    bool overlapping() const { return !reach_.empty(); }

    // The requests of which some part may lie in the window: all that have one, and between them, only in an
    // overlapping list, others. first..last as indices into all().
    struct Range {
        size_t first = 0, last = 0;
    };
    Range within(const FileWindow& window) const;

  private:
    std::span<const Request> requests_;
    std::vector<uint64_t> reach_;  // of an overlapping list: the greatest end up to each request
};

// What can be said of a list by looking at it once.
struct ListSummary {
    uint64_t requests = 0;
    uint64_t bytes = 0;
    uint64_t begin = 0, end = 0;  // of the file's range it touches; 0, 0 when it is empty
    bool overlapping = false;
    bool operator==(const ListSummary&) const = default;
};

// invalid_argument when offsets decrease, or a range ends beyond what a file offset can say, or, for a write,
// when one overlaps another: the sentence names the first such request. `requests` has none of zero bytes.
Result<ListSummary> summarise(std::span<const Request> requests, bool writes, std::string_view path);

struct MergeCounts {
    uint64_t requests = 0;           // that have a part in the window
    uint64_t overlapping_bytes = 0;  // that more than one request asked for
};

// Merges the parts of sorted lists that lie in `window` and appends the runs to `runs`. A tournament tree of
// the lists (a heap whose every replacement costs one comparison per level) gives the next request, so the
// cost is that of (number of requests) x log2(number of lists).
MergeCounts merge(std::span<const std::span<const Request>> lists, const FileWindow& window,
                  std::vector<Request>& runs);

// Of all lists, whatever their range.
MergeCounts merge(std::span<const std::span<const Request>> lists, std::vector<Request>& runs);

// Counts the runs that only borders between windows have made: those that begin where a run of the window
// before ends. Each window is noted once, in any order.
class Cuts {
  public:
    // `at_begin`, `at_end`: is there a run that reaches the window's border? The cuts that are known now.
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
    std::set<uint64_t> one_side_;  // borders that one run reaches, so far
};

uint64_t total_bytes(std::span<const Request> requests);

// What a peer says of a window: ok when these are runs that lie in the window and have `bytes` bytes
// together; transport otherwise. Memory is addressed by them, so nothing of them is believed before.
Status check_runs(std::span<const Request> runs, const FileWindow& window, uint64_t bytes);

// Walks a list of runs in step with requests that lie in them, and says where in the packed bytes of the runs
// (one after the other, without gaps) each request's bytes are. Requests come in non-decreasing order.
class RunWalk {
  public:
    explicit RunWalk(std::span<const Request> runs) : runs_(runs) {}

    // Where the request's bytes are: it lies within one run, as is true of every request of a list that was
    // merged into the runs. Nothing when it does not: then these are not the runs of its list.
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
