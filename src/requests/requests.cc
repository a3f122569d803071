#include "requests/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tailrace::internal::collective {

namespace {

constexpr uint64_t exhausted = UINT64_MAX;  // summarise() refuses requests that begin there

// One list on its way through a merge.
struct Cursor {
    const Request* next = nullptr;
    const Request* end = nullptr;
};

// The lists' next offsets as a tournament. Every inner node keeps the loser of the match between
// its two halves. So after the winner has moved on, only the matches on its way up are played
// again. The winner cannot be predicted, so the matches are written for compilers to use no
// branches.
class Tournament {
  public:
    explicit Tournament(size_t lists)
        : leaves_(std::bit_ceil(std::max<size_t>(lists, 1))), losers_(leaves_) {}

    // offsets[i]: where list i begins; `exhausted` for an empty one.
    void start(std::span<const uint64_t> offsets) {
        std::vector<Player> winners(2 * leaves_);
        for (size_t i = 0; i < leaves_; ++i)
            winners[leaves_ + i] = {i < offsets.size() ? offsets[i] : exhausted, i};
        for (size_t node = leaves_ - 1; node >= 1; --node) {
            const Player left = winners[2 * node], right = winners[2 * node + 1];
            const bool left_wins = left.offset <= right.offset;
            winners[node] = left_wins ? left : right;
            losers_[node] = left_wins ? right : left;
        }
        winner_ = winners[1];
    }

    uint64_t offset() const { return winner_.offset; }
    size_t list() const { return winner_.list; }

    // The winner's next request begins at `offset`.
    void replace(uint64_t offset) {
        Player player{offset, winner_.list};
        for (size_t node = (player.list + leaves_) / 2; node >= 1; node /= 2) {
            const Player other = losers_[node];
            const bool loses = other.offset < player.offset;
            losers_[node].offset = loses ? player.offset : other.offset;
            losers_[node].list = loses ? player.list : other.list;
            player.offset = loses ? other.offset : player.offset;
            player.list = loses ? other.list : player.list;
        }
        winner_ = player;
    }

  private:
    struct Player {
        uint64_t offset = exhausted;
        size_t list = 0;
    };
    size_t leaves_;
    std::vector<Player> losers_;  // used from index 1 on
    Player winner_;
};

// Where a merge puts its runs.
class Coalescer {
  public:
    Coalescer(const FileWindow& window, std::vector<Request>& runs) : window_(window), runs_(runs) {}

    void add(const Request& request) {
        const Request part = clip(request, window_);
        if (part.bytes == 0) return;
        ++counts_.requests;
        if (open_ && part.offset <= run_.end()) {
            const uint64_t end = std::max(run_.end(), part.end());
            counts_.overlapping_bytes += part.bytes - (end - run_.end());
            run_.bytes = end - run_.offset;
            return;
        }
        if (open_) runs_.push_back(run_);
        run_ = part;
        open_ = true;
    }

    MergeCounts finish() {
        if (open_) runs_.push_back(run_);
        return counts_;
    }

  private:
    const FileWindow window_;
    std::vector<Request>& runs_;
    Request run_;
    bool open_ = false;
    MergeCounts counts_;
};

}  // namespace

RequestList::RequestList(std::span<const Request> requests, bool overlapping) : requests_(requests) {
    if (!overlapping) return;
    reach_.reserve(requests.size());
    uint64_t reach = 0;
    for (const Request& request : requests) reach_.push_back(reach = std::max(reach, request.end()));
}

RequestList::Range RequestList::within(const FileWindow& window) const {
    Range range;
    if (reach_.empty()) {
        range.first = static_cast<size_t>(
            std::partition_point(requests_.begin(), requests_.end(),
                                 [&](const Request& request) { return request.end() <= window.begin; }) -
            requests_.begin());
    } else {
        range.first = static_cast<size_t>(std::upper_bound(reach_.begin(), reach_.end(), window.begin) -
                                          reach_.begin());
    }
    range.last = static_cast<size_t>(
        std::partition_point(requests_.begin() + static_cast<std::ptrdiff_t>(range.first), requests_.end(),
                             [&](const Request& request) { return request.offset < window.end; }) -
        requests_.begin());
    return range;
}

Result<ListSummary> summarise(std::span<const Request> requests, bool writes, std::string_view path) {
    const std::string_view doing = writes ? "writing" : "reading";
    ListSummary summary;
    uint64_t previous_offset = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        const Request& request = requests[i];
        const auto refuse = [&](std::string_view why) {
            return Status(Code::invalid_argument,
                          fmt::format("{} '{}' collectively: request {} of {} (offset {}, {} bytes) {}; "
                                      "nothing was done",
                                      doing, path, i, requests.size(), request.offset, request.bytes, why));
        };
        if (request.bytes > INT64_MAX || request.offset > INT64_MAX - request.bytes)
            return refuse("ends beyond the greatest size of a file");
        if (request.offset < previous_offset)
            return refuse(
                fmt::format("begins before the previous one (offset {}): a list must be in "
                            "non-decreasing order of offsets",
                            previous_offset));
        if (i > 0 && request.offset < summary.end) {
            if (writes)
                return refuse(
                    fmt::format("overlaps an earlier one, which ends at {}: a rank's list for a "
                                "write must name each byte only once",
                                summary.end));
            summary.overlapping = true;
        }
        previous_offset = request.offset;
        if (i == 0) summary.begin = request.offset;
        summary.end = std::max(summary.end, request.end());
        summary.bytes += request.bytes;
    }
    summary.requests = requests.size();
    return summary;
}

MergeCounts merge(std::span<const std::span<const Request>> lists, const FileWindow& window,
                  std::vector<Request>& runs) {
    Coalescer coalescer(window, runs);
    if (lists.size() == 1) {
        for (const Request& request : lists.front()) coalescer.add(request);
        return coalescer.finish();
    }
    std::vector<Cursor> cursors;
    std::vector<uint64_t> offsets;
    for (const std::span<const Request> list : lists) {
        cursors.push_back({list.data(), list.data() + list.size()});
        offsets.push_back(list.empty() ? exhausted : list.front().offset);
    }
    Tournament tournament(lists.size());
    tournament.start(offsets);
    while (tournament.offset() != exhausted) {
        Cursor& cursor = cursors[tournament.list()];
        coalescer.add(*cursor.next++);
        tournament.replace(cursor.next == cursor.end ? exhausted : cursor.next->offset);
    }
    return coalescer.finish();
}

MergeCounts merge(std::span<const std::span<const Request>> lists, std::vector<Request>& runs) {
    return merge(lists, FileWindow{0, UINT64_MAX}, runs);
}

Status check_runs(std::span<const Request> runs, const FileWindow& window, uint64_t bytes) {
    uint64_t end = window.begin, total = 0;
    for (const Request& run : runs) {
        if (run.offset < end || run.offset > window.end || run.bytes > window.end - run.offset)
            return Status(
                Code::transport,
                fmt::format("a rank says that it has {} bytes at {} in the window from {} to {} of a "
                            "collective call, behind others that end at {}",
                            run.bytes, run.offset, window.begin, window.end, end));
        end = run.end();
        total += run.bytes;
    }
    if (total == bytes) return Status();
    return Status(
        Code::transport,
        fmt::format("a rank announces {} bytes in the window from {} to {} of a collective call, and "
                    "lists {}",
                    bytes, window.begin, window.end, total));
}

uint64_t total_bytes(std::span<const Request> requests) {
    uint64_t bytes = 0;
    for (const Request& request : requests) bytes += request.bytes;
    return bytes;
}

}  // namespace tailrace::internal::collective
