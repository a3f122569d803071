// SilenceWatch: decides whether a node's agent process still answers, while a rank waits for it. Pure:
// the time comes from outside.
//
// If an agent's process is stopped, or its machine hangs, its end of the line stays open. A waiting rank
// then does not notice that the agent is gone. So it asks the agent for a sign of life from time to time.
#pragma once

#include "agent/agent_link.h"
#include "threads/awake_time.h"

namespace tailrace::internal {

class SilenceWatch {
  public:
    using Time = AwakeTime::Time;
    explicit SilenceWatch(AgentLine::Patience patience) : patience_(patience) {}

    // Something has come from the agent.
    void heard() {
        silence_.restart();
        asked_ = said_ = silent_ = false;
    }

    enum class Turn {
        nothing,
        ask,     // for a sign of life
        say,     // that the agent has been silent for long
        give_up  // the agent counts as gone
    };
    // Called several times a second while the rank waits. Each turn but the first comes once in a silence.
    Turn look(Time now) {
        // While the program computes, or is stopped itself, it does not listen.
        const auto silence = silence_.look(now);
        if (!asked_ && silence >= before_asking) {
            asked_ = true;
            silence_.restart();
            return Turn::ask;
        }
        if (asked_ && !said_ && silence >= patience_.until_said) {
            said_ = true;
            return Turn::say;
        }
        if (asked_ && !silent_ && silence >= patience_.until_gone) {
            silent_ = true;
            return Turn::give_up;
        }
        return Turn::nothing;
    }
    // Whether it was given up, and has said nothing since.
    bool silent() const { return silent_; }

  private:
    static constexpr std::chrono::milliseconds longest_step{500};
    static constexpr std::chrono::milliseconds before_asking{1000};

    const AgentLine::Patience patience_;
    AwakeTime silence_{Time(), longest_step};
    bool asked_ = false, said_ = false, silent_ = false;
};

}  // namespace tailrace::internal
