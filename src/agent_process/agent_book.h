// AgentBook: what an agent process does next. It knows its clients, what the last pass over the
// node's directories has found, and whether the agent is to end. It is a pure state machine without
// sockets, threads or clocks; the time comes from outside.
//
//   - While a session is opening, no pass is begun, and the one under way is given up. A session
//     that does not open in time is not waited for any longer.
//   - A session that ends, perhaps because its program has died, leads to a pass at once.
//   - Otherwise there is a pass now and then: often while nodes wait for each other.
//   - An agent that is to end makes passes, newest epoch first, until all that it can do is done or
//     its time is over. For directories that others hold, and for programs that live, it waits a minute at
//     most: these may be dying, but may also go on for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "threads/executor.h"

namespace tailrace::internal {

// What a pass over all directories has come to.
struct PassSummary {
    size_t waiting = 0;  // own share written, others' not
    size_t busy = 0;     // directories that a session or another drain holds
    size_t failed = 0;
    size_t stopped = 0;  // given up, because stop() said so
    size_t written = 0;  // own share written in this pass
    size_t lost = 0;     // those waiting for a node whose share the agent itself will write
    // Whether the agent has nothing left that it could do by itself, but for directories that others hold.
    bool only_busy() const { return stopped == 0 && lost == 0; }
};

class AgentBook {
  public:
    using Time = SteadyClock::time_point;
    using Duration = SteadyClock::duration;

    // `idle_exit`: ends after that long without a session and without anything to do. Empty: never.
    AgentBook(Time now, std::optional<Duration> idle_exit)
        : next_pass_(now), idle_exit_(idle_exit), idle_since_(now) {}

    void session_opens(int client, Time now);
    void session_opened(int client);
    void client_gone(int client, Time now);
    void pass_asked(Time now) { next_pass_ = now; }
    void stop_asked(Time now, Duration grace);

    // How many nodes of sessions are carried now. If it is to end, the agent waits for those that end, and
    // for those that live as for directories that others hold.
    struct CarriedNodes {
        size_t living = 0;  // more may be captured
        size_t ending = 0;  // their epochs are being finished
        auto operator<=>(const CarriedNodes&) const = default;
    };
    void set_carried(const CarriedNodes& nodes, Time now);

    void pass_begun() {
        working_ = true;
        newest_first_ = stopping();
    }
    void pass_ended(const PassSummary& summary, Time now);

    // Sessions that have asked the agent to let go. They may be told as soon as no pass runs.
    std::vector<int> take_to_let_in();
    size_t session_count() const { return sessions_.size(); }
    bool working() const { return working_; }
    bool stopping() const { return deadline_.has_value(); }

    bool pass_is_due(Time now) const;
    // Whether the pass under way is to be given up.
    bool pass_must_stop(Time now) const;
    // Whether it is to begin no other epoch: there is less time than it thought, and the newest goes first.
    bool pass_must_yield() const { return working_ && stopping() && !newest_first_; }
    bool must_end(Time now) const;
    // When to ask again at the latest, if nothing happens.
    Time next_look(Time now) const;

  private:
    struct Session {
        std::optional<Time> opening;  // since when
        bool told = false;
    };
    bool any_opening(Time now) const;

    std::map<int, Session> sessions_;
    Time next_pass_;
    CarriedNodes carried_;
    bool working_ = false;
    bool newest_first_ = false;  // the pass under way, or the last one
    bool passed_since_stop_ = false;
    PassSummary last_;
    std::optional<Time> deadline_;
    Time busy_until_;  // if it is to end: how long it waits for what others hold
    const std::optional<Duration> idle_exit_;
    Time idle_since_;
};

}  // namespace tailrace::internal
