// How data moves:
//   message      post() copies it and starts an Isend; poll() finds it by Improbe, which hides it from every
//                other receive, and receives it by Imrecv
//   transfer     mpi_transfer.h
//   collective   lengths first, then the bytes in rounds that fit MPI's counts; exchange is point to point
//
// Some MPI libraries raise errors without a communicator (from MPI_Test). These go to the program's
// error handler, which ends the program by default. Every other error comes back as a Status.
#include "transport/mpi_transport.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/caught.h"
#include "threads/executor.h"
#include "transport/mpi_call.h"
#include "transport/mpi_roll_call.h"
#include "transport/mpi_transfer.h"
#include "transport/nap.h"

namespace tailrace::internal {

namespace {

using std::chrono::microseconds;

// In a collective the program's own thread waits. It polls a few times at once, because the others
// are usually only a moment away. If that pays (LongLook), it polls longer before it naps.
constexpr int looks_before_napping = 50;
constexpr microseconds longest_collective_nap(1000);

// Messages are small. One that does not fit MPI's counts is a mistake of the caller.
constexpr uint64_t largest_message_bytes = 0x7fffffff;

// Beside the roll call's tag on the same communicator.
constexpr int roll_call_tag = 0, exchange_tag = 1;

// How long drop_messages() waits for what was posted.
constexpr std::chrono::seconds longest_drop(5);

// How long the destructor goes on delivering posted messages.
constexpr std::chrono::milliseconds longest_farewell(1000);

// While it lives, errors on the communicator are returned. The program's own handler usually ends the
// program.
class ErrorsReturned {
  public:
    explicit ErrorsReturned(MPI_Comm communicator) : communicator_(communicator) {
        if (MPI_Comm_get_errhandler(communicator, &before_) != MPI_SUCCESS) before_ = MPI_ERRHANDLER_NULL;
        MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    }
    ~ErrorsReturned() {
        if (before_ == MPI_ERRHANDLER_NULL) return;
        MPI_Comm_set_errhandler(communicator_, before_);
        MPI_Errhandler_free(&before_);
    }
    ErrorsReturned(const ErrorsReturned&) = delete;
    ErrorsReturned& operator=(const ErrorsReturned&) = delete;

  private:
    const MPI_Comm communicator_;
    MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

class MpiTransport final : public Transport {
  public:
    explicit MpiTransport(MpiLimits limits) : limits_(std::move(limits)) {}

    // The first step, which needs memory. No other rank waits for it.
    Status prepare(MPI_Comm communicator) {
        int provided = MPI_THREAD_SINGLE;
        TAILRACE_MPI_TRY(MPI_Query_thread(&provided), "asking MPI for its thread support");
        concurrent_ = provided >= MPI_THREAD_MULTIPLE;

        std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
        int length = 0;
        TAILRACE_MPI_TRY(MPI_Get_processor_name(name.data(), &length), "asking MPI for this machine's name");
        host_.assign(name.data(), static_cast<size_t>(length));

        TAILRACE_MPI_TRY(MPI_Comm_rank(communicator, &rank_), "asking MPI for the rank");
        TAILRACE_MPI_TRY(MPI_Comm_size(communicator, &size_), "asking MPI for the number of ranks");
        openings_.resize(static_cast<size_t>(size_));
        posted_to_.resize(static_cast<size_t>(size_));
        roll_call_.emplace(collectives_, roll_call_tag, rank_, size_, limits_.patience, limits_.warn);
        return {};
    }

    // The second step is collective, and needs no memory of ours.
    Status open(MPI_Comm communicator) {
        TAILRACE_TRY(duplicate(communicator, messages_));
        for (MPI_Comm* mine : {&announcements_, &data_, &collectives_})
            TAILRACE_TRY(duplicate(messages_, *mine));
        void* upper_bound = nullptr;
        int known = 0;
        TAILRACE_MPI_TRY(MPI_Comm_get_attr(data_, MPI_TAG_UB, &upper_bound, &known),
                         "asking MPI for its greatest tag");
        if (known != 0) greatest_tag_ = static_cast<uint32_t>(*static_cast<int*>(upper_bound));
        return choose_message_tag();
    }

    ~MpiTransport() override {
        int finalized = 0;
        const bool usable = MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0;
        if (usable) say_farewell();
        abandon();
        if (!usable) return;
        if (collectives_ != MPI_COMM_NULL) roll_call_->hear();
        for (MPI_Comm* mine : {&messages_, &announcements_, &data_, &collectives_})
            if (*mine != MPI_COMM_NULL) MPI_Comm_free(mine);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string host() const override { return host_; }
    bool concurrent() const override { return concurrent_; }

    Status post(int target, std::span<const std::byte> message) override {
        TAILRACE_TRY(check("posting a message to", target));
        if (message.size() > largest_message_bytes)
            return Status(Code::invalid_argument,
                          fmt::format("posting a message of {} bytes to rank {}: at most {} are possible",
                                      message.size(), target, largest_message_bytes));
        Post& post = posts_.emplace_back();
        post.target = target;
        post.bytes.assign(message.begin(), message.end());
        const int code = MPI_Isend(post.bytes.data(), static_cast<int>(post.bytes.size()), MPI_BYTE, target,
                                   message_tag_, messages_, &post.request);
        if (code != MPI_SUCCESS) {
            posts_.pop_back();
            return mpi_status(
                code, fmt::format("posting a message of {} bytes to rank {}", message.size(), target));
        }
        ++posted_to_[static_cast<size_t>(target)];
        return catching([&] { return advance(); });
    }

    Result<std::optional<Message>> poll() override {
        TAILRACE_TRY(check("receiving messages on", rank_));
        TAILRACE_TRY(advance());
        if (!arrival_) TAILRACE_TRY(probe());
        if (!arrival_) return std::optional<Message>();
        int complete = 0;
        const int code = MPI_Test(&arrival_->request, &complete, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            // MPI may still write to its memory, and a later test would take it for complete.
            const Message& lost = arrival_.release()->message;
            return mpi_status(code, fmt::format("receiving a message of {} bytes from rank {}",
                                                lost.bytes.size(), lost.source));
        }
        if (complete == 0) return std::optional<Message>();
        progress_->nap.reset();
        std::optional<Message> message(std::move(arrival_->message));
        arrival_.reset();
        ++taken_;
        return message;
    }

    // All ranks say how many messages they have posted to whom. Then each rank knows how many must
    // still come.
    Status drop_posted() override {
        if (!concurrent_) return Status();
        const auto deadline = SteadyClock::now() + longest_drop;
        int64_t expected = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        TAILRACE_MPI_TRY(MPI_Ireduce_scatter_block(posted_to_.data(), &expected, 1, MPI_INT64_T, MPI_SUM,
                                                   collectives_, &request),
                         "counting messages that nobody has taken");
        TAILRACE_TRY(complete(request, "counting messages that nobody has taken"));
        while (taken_ < expected || !posts_.empty()) {
            TAILRACE_ASSIGN(const auto message, poll());
            if (message) continue;
            if (SteadyClock::now() > deadline)
                return Status(Code::timeout, fmt::format("{} of {} messages to rank {} did not arrive",
                                                         expected - taken_, expected, rank_));
            sleep_for(shortest_nap);
        }
        return Status();
    }

    Result<bool> posts_delivered() override {
        TAILRACE_TRY(advance());
        return posts_.empty();
    }

    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_TRY(check("sending data to", target));
        return start_mpi_send(
            progress_, channel(target, tag), next_data_tag(target), source,
            fmt::format("sending {} bytes to rank {} with tag {}", source.size(), target, tag));
    }

    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_TRY(check("receiving data from", source));
        return start_mpi_receive(
            progress_, channel(source, tag), target,
            fmt::format("receiving from rank {} with tag {} into {} bytes", source, tag, target.size()));
    }

    void wait(microseconds longest, bool busy) override {
        progress_->nap.sleep(longest, busy || !posts_.empty());
    }
    void wake() override { progress_->nap.wake(); }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        // 1. All ranks learn how much each has, and how it begins. So short data need no second
        // step.
        const ShortOpening my_opening(mine);
        MPI_Request request = MPI_REQUEST_NULL;
        TAILRACE_MPI_TRY(MPI_Iallgather(&my_opening, sizeof my_opening, MPI_BYTE, openings_.data(),
                                        sizeof my_opening, MPI_BYTE, collectives_, &request),
                         "gathering lengths from {} ranks", size_);
        TAILRACE_TRY(complete(request, "gathering lengths from all ranks"));
        uint64_t longest = 0, sum = 0;
        for (const ShortOpening& opening : openings_) {
            longest = std::max(longest, opening.length);
            sum += opening.length;
        }

        // 2. In each round a rank gives at most its share of what one call can bring. All make sure of
        // their memory before.
        const uint64_t begun = sizeof(ShortOpening::bytes);
        const uint64_t share = std::max<uint64_t>(1, limits_.collective_bytes / static_cast<uint64_t>(size_));
        std::vector<std::vector<std::byte>> all;
        std::vector<int> counts, places;
        std::vector<std::byte> round;
        const auto make_room = [&] {
            all.resize(openings_.size());
            for (size_t i = 0; i < openings_.size(); ++i) {
                const auto content = openings_[i].content();
                all[i].reserve(static_cast<size_t>(openings_[i].length));
                all[i].assign(content.begin(), content.end());
            }
            if (longest <= begun) return;
            counts.resize(openings_.size());
            places.resize(openings_.size());
            round.reserve(static_cast<size_t>(std::min(sum, share * openings_.size())));
        };
        const Status room = catching(make_room);
        TAILRACE_TRY(longest > begun ? all_have(room) : room);
        for (uint64_t done = begun; done < longest; done += share) {
            int place = 0;
            for (size_t i = 0; i < openings_.size(); ++i) {
                const uint64_t length = openings_[i].length;
                counts[i] = static_cast<int>(length > done ? std::min(share, length - done) : 0);
                places[i] = place;
                place += counts[i];
            }
            round.resize(static_cast<size_t>(place));
            const int my_count = counts[static_cast<size_t>(rank_)];
            const std::byte* my_bytes = my_count > 0 ? mine.data() + done : nullptr;
            TAILRACE_MPI_TRY(MPI_Iallgatherv(my_bytes, my_count, MPI_BYTE, round.data(), counts.data(),
                                             places.data(), MPI_BYTE, collectives_, &request),
                             "gathering {} bytes from {} ranks", place, size_);
            TAILRACE_TRY(complete(request, "gathering from all ranks"));
            for (size_t i = 0; i < openings_.size(); ++i) {
                auto begin = round.begin() + places[i];
                all[i].insert(all[i].end(), begin, begin + counts[i]);
            }
        }
        return all;
    }

    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        TAILRACE_TRY(check_rank("broadcasting from", root));
        Opening<1016> opening;
        if (rank_ == root) opening = Opening<1016>(bytes);
        MPI_Request request = MPI_REQUEST_NULL;
        TAILRACE_MPI_TRY(MPI_Ibcast(&opening, sizeof opening, MPI_BYTE, root, collectives_, &request),
                         "broadcasting a length from rank {}", root);
        TAILRACE_TRY(complete(request, "broadcasting a length"));

        const uint64_t length = opening.length;
        const auto begun = opening.content();
        std::vector<std::byte> copy;
        const auto make_room = [&] {
            copy.resize(static_cast<size_t>(length));
            std::copy(begun.begin(), begun.end(), copy.begin());
            if (rank_ == root) std::copy(bytes.begin(), bytes.end(), copy.begin());
        };
        const Status room = catching(make_room);
        TAILRACE_TRY(length > begun.size() ? all_have(room) : room);
        for (uint64_t done = begun.size(); done < length; done += limits_.collective_bytes) {
            const uint64_t count = std::min(limits_.collective_bytes, length - done);
            TAILRACE_MPI_TRY(MPI_Ibcast(copy.data() + done, static_cast<int>(count), MPI_BYTE, root,
                                        collectives_, &request),
                             "broadcasting {} bytes from rank {}", length, root);
            TAILRACE_TRY(complete(request, "broadcasting"));
        }
        return copy;
    }

    Result<int> least(int mine) override {
        int number = mine;
        MPI_Request request = MPI_REQUEST_NULL;
        TAILRACE_MPI_TRY(MPI_Iallreduce(&mine, &number, 1, MPI_INT, MPI_MIN, collectives_, &request),
                         "finding the least number of {} ranks", size_);
        TAILRACE_TRY(complete(request, "finding the least number of all ranks"));
        return number;
    }

    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        // Nothing is refused, and no memory is asked for, while MPI works on what is given here.
        std::vector<MPI_Status> outcomes;
        std::vector<MPI_Request> requests;
        const auto prepare = [&]() -> Status {
            for (const Incoming& receive : receives)
                TAILRACE_TRY(check_exchanged("receiving from", receive.source, receive.bytes.size()));
            for (const Outgoing& send : sends)
                TAILRACE_TRY(check_exchanged("sending to", send.target, send.bytes.size()));
            outcomes.resize(sends.size() + receives.size());
            requests.reserve(outcomes.size());
            return {};
        };
        TAILRACE_TRY(all_have(catching(prepare)));
        for (const Incoming& receive : receives) {
            TAILRACE_MPI_TRY(MPI_Irecv(receive.bytes.data(), static_cast<int>(receive.bytes.size()), MPI_BYTE,
                                       receive.source, exchange_tag, collectives_, &requests.emplace_back()),
                             "receiving {} bytes from rank {}", receive.bytes.size(), receive.source);
        }
        for (const Outgoing& send : sends) {
            TAILRACE_MPI_TRY(MPI_Isend(send.bytes.data(), static_cast<int>(send.bytes.size()), MPI_BYTE,
                                       send.target, exchange_tag, collectives_, &requests.emplace_back()),
                             "sending {} bytes to rank {}", send.bytes.size(), send.target);
        }
        TAILRACE_TRY(complete(requests, outcomes, "exchanging data with other ranks"));
        for (size_t i = 0; i < receives.size(); ++i) {
            int bytes = 0;
            TAILRACE_MPI_TRY(MPI_Get_count(&outcomes[i], MPI_BYTE, &bytes), "looking at received data");
            if (static_cast<size_t>(bytes) != receives[i].bytes.size())
                return Status(Code::invalid_argument,
                              fmt::format("receiving {} bytes from rank {}: it sent {} bytes",
                                          receives[i].bytes.size(), receives[i].source, bytes));
        }
        return {};
    }

  private:
    // Whether all ranks are ready for the rest of a collective: as a rule, whether they have the memory.
    // Otherwise the ranks that are would wait for those that are not. Collective.
    Status all_have(const Status& mine) {
        TAILRACE_ASSIGN(const int without, least(mine.ok() ? size_ : rank_));
        if (without == size_) return {};
        return mine.ok()
                   ? Status(Code::out_of_memory,
                            fmt::format("rank {} has no memory for what the ranks exchange, or refuses it",
                                        without))
                   : mine;
    }
    Status check_exchanged(std::string_view attempted, int peer, size_t bytes) const {
        TAILRACE_TRY(check_rank(attempted, peer));
        if (bytes <= largest_message_bytes) return {};
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {} {} bytes at once: at most {} are possible", attempted, peer,
                                  bytes, largest_message_bytes));
    }

    // The number of bytes, and their beginning. So short data travel in one collective.
    template <size_t room>
    struct Opening {
        uint64_t length = 0;
        std::byte bytes[room] = {};
        Opening() = default;
        explicit Opening(std::span<const std::byte> all) : length(all.size()) {
            std::copy_n(all.begin(), std::min(all.size(), room), bytes);
        }
        std::span<const std::byte> content() const {
            return {bytes, static_cast<size_t>(std::min<uint64_t>(length, room))};
        }
    };
    using ShortOpening = Opening<120>;
    // Posts and arrivals do not move in memory while MPI works on them.
    struct Post {
        int target = 0;
        std::vector<std::byte> bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };
    struct Matched {
        MPI_Message message = MPI_MESSAGE_NULL;
        int source = 0, bytes = 0;
    };
    struct Arrival {
        Message message;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    Status check(std::string_view attempted, int rank) const {
        if (!concurrent_ && !limits_.only_in_calls) {
            return Status(Code::failed_state,
                          fmt::format("{} rank {}: MPI was initialized with less than MPI_THREAD_MULTIPLE",
                                      attempted, rank));
        }
        return check_rank(attempted, rank);
    }
    Status check_rank(std::string_view attempted, int rank) const {
        if (rank >= 0 && rank < size_) return Status();
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {}: there are {} ranks", attempted, rank, size_));
    }

    MpiChannel channel(int peer, uint32_t tag) const {
        return {peer, static_cast<int>(tag % (uint64_t{greatest_tag_} + 1)), announcements_, data_,
                limits_.plain_bytes};
    }
    // Messages that nobody has received when a transport ends stay in MPI's queues, and the next
    // communicator may have the same number there. So every transport uses a message tag that none
    // of its ranks has used before. Collective.
    Status choose_message_tag() {
        static std::atomic<int> newest{0};
        const int mine = newest + 1;
        int tag = 0;
        TAILRACE_MPI_TRY(MPI_Allreduce(&mine, &tag, 1, MPI_INT, MPI_MAX, collectives_),
                         "agreeing on a tag for messages");
        for (int seen = newest; seen < tag && !newest.compare_exchange_weak(seen, tag);) {
        }
        message_tag_ = static_cast<int>(static_cast<uint32_t>(tag) % (greatest_tag_ + 1));
        return {};
    }

    int next_data_tag(int target) {
        uint32_t& next = data_tags_[target];
        const auto tag = static_cast<int>(next);
        next = next == greatest_tag_ ? 0 : next + 1;
        return tag;
    }

    // The work that goes on whenever this rank calls MPI.
    Status advance() {
        progress_->advance();
        return advance_posts();
    }

    // Releases every post that has left. Messages to one rank leave in order, so the first of them
    // are done first. But a rank that does not receive must not hold up the memory of posts to
    // others.
    Status advance_posts() {
        Status worst;
        std::erase_if(posts_, [&](Post& post) {
            int complete = 0;
            const int code = MPI_Test(&post.request, &complete, MPI_STATUS_IGNORE);
            if (code == MPI_SUCCESS) return complete != 0;
            worst = mpi_status(code, fmt::format("delivering a message of {} bytes", post.bytes.size()));
            (void)new std::vector<std::byte>(std::move(post.bytes));  // MPI may still read it
            return true;
        });
        return worst;
    }

    // Takes the next message that has arrived, if any, out of MPI's queues. What MPI has matched
    // nobody else receives, so it is kept until there is memory for it.
    Status probe() {
        if (matched_.message == MPI_MESSAGE_NULL) {
            int found = 0;
            Matched matched;
            MPI_Status status;
            TAILRACE_MPI_TRY(
                MPI_Improbe(MPI_ANY_SOURCE, message_tag_, messages_, &found, &matched.message, &status),
                "looking for messages");
            if (found == 0) return Status();
            matched.source = status.MPI_SOURCE;
            TAILRACE_MPI_TRY(MPI_Get_count(&status, MPI_BYTE, &matched.bytes),
                             "looking at a message from rank {}", status.MPI_SOURCE);
            matched_ = matched;
        }
        auto arrival = std::make_unique<Arrival>();
        arrival->message.source = matched_.source;
        arrival->message.bytes.resize(static_cast<size_t>(matched_.bytes));
        // After an error it is lost.
        MPI_Message message = std::exchange(matched_.message, MPI_MESSAGE_NULL);
        TAILRACE_MPI_TRY(
            MPI_Imrecv(arrival->message.bytes.data(), matched_.bytes, MPI_BYTE, &message, &arrival->request),
            "receiving a message of {} bytes from rank {}", matched_.bytes, matched_.source);
        arrival_ = std::move(arrival);
        return Status();
    }

    // Waits for a collective. Afterwards `request` is over, or MPI has given it up.
    Status complete(MPI_Request& request, std::string_view attempted) {
        MPI_Status outcome;
        return complete(std::span(&request, 1), std::span(&outcome, 1), attempted);
    }
    Status complete(std::span<MPI_Request> requests, std::span<MPI_Status> outcomes,
                    std::string_view attempted) {
        const auto start = SteadyClock::now();
        roll_call_->begin(start);
        bool looks_on = long_look_.may();
        for (int look = 0;; ++look) {
            int complete = 0;
            TAILRACE_MPI_TRY(
                MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, outcomes.data()),
                "{}", attempted);
            if (complete != 0) {
                if (looks_on && look > looks_before_napping) long_look_.paid();
                return Status();
            }
            if (look < looks_before_napping) {
                sched_yield();
                continue;
            }
            const auto now = SteadyClock::now();
            const auto waited = std::chrono::duration_cast<microseconds>(now - start);
            if (looks_on && waited < LongLook::longest) {
                sched_yield();
                continue;
            }
            if (std::exchange(looks_on, false)) long_look_.was_in_vain();
            // MPI still works on the caller's memory, so nothing may be thrown here.
            (void)catching([&] { roll_call_->waiting(now, attempted); });
            // A nap never lasts much longer than the wait so far.
            sleep_for(std::clamp(waited / 8, shortest_nap, longest_collective_nap));
        }
    }

    // MPI has a limited number of communicators, and there may be none left.
    Status duplicate(MPI_Comm original, MPI_Comm& copy) {
        const ErrorsReturned returned(original);
        TAILRACE_MPI_TRY(
            MPI_Comm_dup(original, &copy),
            "duplicating the communicator of {} ranks (MPI has a limited number; each session and "
            "each collective file takes four)",
            size_);
        TAILRACE_MPI_TRY(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "asking MPI to return its errors");
        return Status();
    }

    // Gives posted messages some time to leave, because a peer may wait for a last one. What this rank has
    // posted to itself nobody will receive.
    void say_farewell() {
        const auto deadline = SteadyClock::now() + longest_farewell;
        const auto is_for_a_peer = [this](const Post& post) { return post.target != rank_; };
        while (std::any_of(posts_.begin(), posts_.end(), is_for_a_peer) && advance_posts().ok() &&
               SteadyClock::now() < deadline)
            sleep_for(shortest_nap);
    }

    // Messages that nobody has received until now are lost. MPI may still access the bytes, so they
    // are left to it.
    void abandon() {
        if (!posts_.empty()) new std::list<Post>(std::move(posts_));
        if (arrival_) (void)arrival_.release();
    }

    const MpiLimits limits_;
    int rank_ = 0, size_ = 0;
    std::string host_;
    bool concurrent_ = false;
    uint32_t greatest_tag_ = 32767;
    int message_tag_ = 0;
    MPI_Comm messages_ = MPI_COMM_NULL, announcements_ = MPI_COMM_NULL, data_ = MPI_COMM_NULL,
             collectives_ = MPI_COMM_NULL;
    std::optional<MpiRollCall> roll_call_;  // in collectives
    LongLook long_look_;                    // the same
    std::vector<ShortOpening> openings_;    // of one gather at a time, which needs no memory to begin
    std::map<int, uint32_t> data_tags_;     // the next one, by target
    std::vector<int64_t> posted_to_;        // messages, by target
    int64_t taken_ = 0;                     // messages that poll() has returned
    std::list<Post> posts_;                 // under way
    Matched matched_;                       // out of MPI's queues, and not received yet
    std::unique_ptr<Arrival> arrival_;      // being received
    const std::shared_ptr<MpiProgress> progress_ = std::make_shared<MpiProgress>();
};

}  // namespace

Result<std::shared_ptr<Transport>> make_mpi_transport(MPI_Comm communicator, MpiLimits limits) {
    std::shared_ptr<MpiTransport> transport;
    const Status prepared = catching([&] {
        transport = std::make_shared<MpiTransport>(std::move(limits));
        return transport->prepare(communicator);
    });
    const int mine = prepared.ok() ? 1 : 0;
    int all = 0;
    {
        const ErrorsReturned returned(communicator);
        TAILRACE_MPI_TRY(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, communicator),
                         "hearing whether all ranks can make their transports");
    }
    TAILRACE_TRY(prepared);
    if (all == 0) return Status(Code::out_of_memory, "another rank could not make its transport");
    TAILRACE_TRY(transport->open(communicator));
    return std::shared_ptr<Transport>(std::move(transport));
}

}  // namespace tailrace::internal
