// How all ranks come to the same answer at the same call, without waiting for each other.
//
// A question (is it time to save, is it time to stop) is asked by every rank again and again, and
// calls are counted: the n-th call of each rank is call n. Rank 0 decides, always ahead:
//
//   1. An Announcement says what the answer is at a run of calls that nobody has come to yet: no at
//      all of them, or no at all but the last.
//   2. Rank 0 makes announcements when it makes a call itself (Announcer). Each begins with the call
//      after the last one that was decided. It reaches some calls beyond rank 0's own.
//   3. A rank that comes to a call looks up the answer (Answers). It waits only if the call has not
//      been decided, as far as it has heard.
//
// All ranks get the same answer at the same call, because each call is decided once, before any
// rank is told of it, and no rank answers before it is told. No rank is asked anything. So nothing
// depends on when the others come, how far apart they are, or in which order messages between
// different ranks arrive. Messages from rank 0 to one rank arrive in order.
//
// No rank waits for a rank that is behind it but rank 0, and rank 0 waits for nobody. Its call n
// decides call n + 1 at the latest, so a rank at its call n + 1 waits until rank 0 has made call n.
// Waiting cannot close a circle with the program's own messages, if rank 0's call n needs nothing
// from others that these do after their call n. That holds wherever an answer is of use: a state of
// all ranks at their n-th call exists only then. (A protocol in which rank 0 asks the ranks how far
// they are, and these stop until the verdict, does not have this property. A rank without a thread
// of its own answers when it calls next. It may be ahead, and wait in the program's own
// communication for one that has stopped.)
//
// How far ahead: at calls that are a quarter of a second apart or more, one call. At quicker ones as
// many as fit into a quarter of a second, but 64 at most, and one message is sent for half as many.
// The slowest of the recent calls counts, because what is decided cannot be taken back when calls
// become slow. So rank 0's wish takes effect at the second call after it at the latest, or, where
// calls are quick, after about a quarter of a second.
//
// Pure: no threads, clocks or messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/status.h"
#include "threads/executor.h"

namespace tailrace::internal {

enum class Question : uint8_t {
    save,  // yes at single calls
    stop,  // yes from some call on
};
inline constexpr size_t question_count = 2;

// Every rank answers no at its first call, so that it need not wait for rank 0's first call.
inline constexpr uint64_t calls_decided_from_the_start = 1;
inline constexpr size_t most_reason_bytes = 1024;

// The answer at calls `first` to `last` is no, but at `last` it is yes if `yes` is set.
struct Announcement {
    Question question = Question::save;
    uint64_t first = 0, last = 0;
    bool yes = false;
    std::string why = {};  // of yes
};

struct Answer {
    bool yes = false;
    std::string why = {};  // of yes; the same on every rank
};

// What a rank knows of one question's answers.
class Answers {
  public:
    // `alone`: there is no other rank, so no call is decided from the start.
    explicit Answers(Question question, bool alone = false)
        : question_(question), decided_(alone ? 0 : calls_decided_from_the_start) {}

    // Fails (transport) if the announcement does not follow the one before.
    Status hear(const Announcement& announcement);
    // The answer at this call; nothing if it has not been decided. Calls ascend.
    std::optional<Answer> at(uint64_t call);
    bool decided(uint64_t call) const { return call <= decided_; }

  private:
    const Question question_;
    uint64_t decided_;  // calls up to this one
    std::set<uint64_t> yes_at_;
    std::optional<uint64_t> stop_from_;
    std::string why_;  // of the last yes
};

// Rank 0's side of one question.
class Announcer {
  public:
    explicit Announcer(Question question, bool alone = false)
        : question_(question), alone_(alone), decided_(alone ? 0 : calls_decided_from_the_start) {}

    // Rank 0 makes its next call now. Whether it wishes that the answer be yes is asked only where
    // wishes_count() says so. `why`: it does, for this reason. `never`: it never will, so that no
    // announcement need follow.
    std::optional<Announcement> call(SteadyClock::time_point now, const std::optional<std::string>& why,
                                     bool never = false);
    // Whether a wish at the next call can have an effect. It has none while a yes has been announced
    // that rank 0 has not come to yet, nor after the answer has become yes for good.
    bool wishes_count() const { return !stopped_ && yes_at_ <= calls_ && decided_ != UINT64_MAX; }

    uint64_t calls() const { return calls_; }
    // The longest time between recent calls; 0 before the second.
    SteadyClock::duration between_calls() const { return slowest_; }

  private:
    uint64_t ahead() const;

    const Question question_;
    const bool alone_;
    uint64_t decided_;
    uint64_t calls_ = 0;
    uint64_t yes_at_ = 0;  // the last yes
    bool stopped_ = false;
    std::optional<SteadyClock::time_point> last_call_;
    SteadyClock::duration slowest_{0};
};

}  // namespace tailrace::internal
