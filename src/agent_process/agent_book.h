// AgentBook: what an agent process does next. It knows its clients, what the last pass over the
// node's directories has found, and whether the agent is to end. It is a pure state machine without
// sockets, threads or clocks; the time comes from outside.
//
//   - While a session is opening, no pass is begun, and the one under way is given up. A session
//     that does not open in time is not waited for any longer.
//   - A session that ends, perhaps because its program has died, leads to a pass at once.
//   - Otherwise there is a pass now and then: often while nodes wait for each other.
//   - An agent that is to end makes passes, newest epoch first, until all that it can do is done or
//     its time is over.
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
    // Whether the agent has nothing left that it could do by itself.
    bool all_done() const { return stopped == 0 && busy == 0 && lost == 0; }
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

    // How many nodes of sessions are carried now. The agent does not end while there are some, unless
    // its time is over.
    void set_carried(size_t nodes, Time now);

    void pass_begun() { working_ = true; }
    void pass_ended(const PassSummary& summary, Time now);

    // Sessions that have asked the agent to let go. They may be told as soon as no pass runs.
    std::vector<int> take_to_let_in();
    size_t session_count() const { return sessions_.size(); }
    bool working() const { return working_; }
    bool stopping() const { return deadline_.has_value(); }

    bool pass_is_due(Time now) const;
    // Whether the pass under way is to be given up.
    bool pass_must_stop(Time now) const;
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
    size_t carried_ = 0;
    bool working_ = false;
    bool passed_since_stop_ = false;
    PassSummary last_;
    std::optional<Time> deadline_;
    const std::optional<Duration> idle_exit_;
    Time idle_since_;
};

}  // namespace tailrace::internal
