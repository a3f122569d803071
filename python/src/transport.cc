// The transport over primitives in Python. The header says how data moves.
#include "transport.h"

#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <thread>

#include "base/bytes.h"
#include "base/log.h"
#include "threads/executor.h"
#include "transport/nap.h"

namespace tailrace::internal::python {

namespace nb = nanobind;

// ---- arrivals ------------------------------------------------------------------------------------------

void Arrivals::frame(int source, std::vector<std::byte> bytes) {
    {
        const MutexLock lock(mutex_);
        news_.frames.emplace_back(source, std::move(bytes));
    }
    wake();
}

void Arrivals::transfer_ended(uint64_t number) {
    {
        const MutexLock lock(mutex_);
        news_.ended.push_back(number);
    }
    wake();
}

void Arrivals::failed(std::string why) {
    {
        const MutexLock lock(mutex_);
        if (news_.failure.ok()) news_.failure = Status(Code::transport, std::move(why));
    }
    wake();
}

Arrivals::News Arrivals::take() {
    const MutexLock lock(mutex_);
    News taken = std::move(news_);
    news_ = {};
    news_.failure = taken.failure;
    return taken;
}

void Arrivals::wait(std::chrono::microseconds longest) {
    // An hour is long enough, and cannot overflow the clock.
    longest = std::clamp<std::chrono::microseconds>(longest, {}, std::chrono::hours(1));
    const auto until = SteadyClock::now() + longest;
    MutexLock lock(mutex_);
    while (!signalled_ && SteadyClock::now() < until) changed_.wait_until(lock, until);
    signalled_ = false;
}

void Arrivals::wake() {
    const MutexLock lock(mutex_);
    signalled_ = true;
    changed_.notify_all();
}

namespace {

// ---- what transport and transfers share ----------------------------------------------------------------

enum class Kind : uint8_t { message = 1, announcement = 2 };

// Data tags wrap around below this number, which is the least that MPI offers. No rank has as many
// transfers to one peer at a time.
constexpr uint32_t data_tags = 32767;

// A rank that leaves alone delivers its messages for at most the first time, then waits for the second.
constexpr std::chrono::seconds longest_delivery(1);
constexpr std::chrono::milliseconds moment_to_arrive(200);

struct Announcement {
    uint64_t bytes = 0;
    uint32_t data_tag = 0;
};

class Receive;

// Used by the one thread that uses the transport's messages and data, except for call() and end().
class Link {
  public:
    explicit Link(nb::object primitives)
        : rank_(nb::cast<int>(primitives.attr("rank"))),
          size_(nb::cast<int>(primitives.attr("size"))),
          host_(nb::cast<std::string>(primitives.attr("host"))),
          concurrent_(nb::cast<bool>(primitives.attr("concurrent"))),
          polled_(nb::cast<bool>(primitives.attr("polled"))),
          primitives_(std::move(primitives)) {
        primitives_.attr("begin")(arrivals_);
    }
    ~Link() {
        // Memory that could not be taken back may be written to as long as the process lives.
        if (!released_ && !spares_.empty()) new Spares(std::move(spares_));
    }

    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::string& host() const { return host_; }
    bool concurrent() const { return concurrent_; }
    bool polled() const { return polled_; }
    // Nobody accesses the memory of transfers any more.
    bool released() const { return released_; }
    Arrivals& arrivals() { return *arrivals_; }

    // Runs `work(primitives)` in Python. An exception is a failure of the transport.
    template <class Work>
    Status call(std::string_view attempted, Work&& work) {
        {
            const MutexLock lock(mutex_);
            if (ended_)
                return Status(Code::transport, fmt::format("{}: this rank has left the others", attempted));
            ++inside_;
        }
        Status status;
        {
            const nb::gil_scoped_acquire acquire;
            try {
                work(primitives_);
            } catch (nb::python_error& error) {
                status = Status(Code::transport, fmt::format("{}: {}: {}", attempted,
                                                             nb::str(error.type().attr("__name__")).c_str(),
                                                             nb::str(error.value()).c_str()));
                // It is the program's exception, which the program gets when the call has returned.
                if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
            } catch (const std::exception& error) {
                status = Status(Code::transport, fmt::format("{}: {}", attempted, error.what()));
            }
        }
        const MutexLock lock(mutex_);
        --inside_;
        left_.notify_all();
        return status;
    }

    // The agent's thread goes on meanwhile, and moves what can be moved. A message that has left
    // has not necessarily been seen by its receiver, and gloo takes a rank's connections down with
    // it. So this waits a moment longer.
    void settle() {
        const auto deadline = SteadyClock::now() + longest_delivery;
        bool delivered = false;
        while (!delivered && SteadyClock::now() < deadline) {
            const Status asked = call("asking for messages under way", [&](nb::object& primitives) {
                delivered = nb::cast<bool>(primitives.attr("posts_delivered")());
            });
            if (!asked.ok()) return;
            if (!delivered) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(moment_to_arrive);
    }

    void end(bool together) {
        {
            const MutexLock lock(mutex_);
            if (std::exchange(ended_, true)) return;
        }
        arrivals_->failed("this rank has left the others");
        {
            const nb::gil_scoped_acquire acquire;
            try {
                released_ = nb::cast<bool>(primitives_.attr(together ? "close" : "leave")());
            } catch (const std::exception& error) {
                log(LogLevel::warning, "leaving the other ranks: {}", error.what());
            }
        }
        {
            MutexLock lock(mutex_);
            while (inside_ > 0) left_.wait(lock);
        }
        const nb::gil_scoped_acquire acquire;
        primitives_.reset();
    }

    // Receives what has come: messages go where poll() finds them, and announcements to their
    // receives.
    Status advance();

    Status post(int target, std::span<const std::byte> frame, const std::string& attempted) {
        return call(attempted, [&](nb::object& primitives) {
            primitives.attr("post")(target, nb::bytes(frame.data(), frame.size()));
        });
    }

    // Starts a transfer of exactly this memory. take_end(number) tells its end. `direction` is the
    // primitive: "send" or "receive".
    Result<uint64_t> start(const char* direction, int peer, uint32_t data_tag, std::span<std::byte> memory,
                           const std::string& attempted) {
        const uint64_t number = next_number_++;
        TAILRACE_TRY(call(attempted, [&](nb::object& primitives) {
            PyObject* view = PyMemoryView_FromMemory(reinterpret_cast<char*>(memory.data()),
                                                     static_cast<Py_ssize_t>(memory.size()), PyBUF_WRITE);
            if (view == nullptr) nb::raise_python_error();
            primitives.attr(direction)(number, peer, data_tag, nb::steal(view));
        }));
        return number;
    }
    bool take_end(uint64_t number) { return ended_transfers_.erase(number) > 0; }
    uint32_t next_data_tag() { return next_data_tag_++ % data_tags; }

    void keep(uint64_t number, std::unique_ptr<std::byte[]> spare) { spares_[number] = std::move(spare); }
    void forget(uint64_t number) { spares_.erase(number); }

    void add(Receive* receive, int source, uint32_t tag);
    void remove(Receive* receive);

    Nap nap;                       // polled
    std::deque<Message> messages;  // that poll() has not returned

  private:
    using Spares = std::map<uint64_t, std::unique_ptr<std::byte[]>>;
    // Per channel, either receives wait for announcements or announcements wait for receives, first
    // in first out.
    struct Waiting {
        std::deque<Receive*> receives;
        std::deque<Announcement> announcements;
    };

    Status sort(int source, std::vector<std::byte> frame);
    static void meet(Waiting& waiting);

    const int rank_, size_;
    const std::string host_;
    const bool concurrent_, polled_;
    const std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();

    std::map<std::pair<int, uint32_t>, Waiting> channels_;  // by (source, tag)
    std::set<uint64_t> ended_transfers_;
    Spares spares_;
    uint64_t next_number_ = 0;
    uint32_t next_data_tag_ = 0;

    Mutex mutex_;
    Condition left_;
    bool ended_ GUARDED_BY(mutex_) = false;
    int inside_ GUARDED_BY(mutex_) = 0;  // calls that are in Python
    nb::object primitives_;              // touched only with the GIL
    std::atomic<bool> released_{false};
};

// ---- transfers -------------------------------------------------------------------------------------------

class RanksTransfer : public Transfer {
  public:
    RanksTransfer(std::shared_ptr<Link> link, int peer, std::string attempted)
        : link_(std::move(link)), peer_(peer), attempted_(std::move(attempted)) {}

    Result<std::optional<uint64_t>> test() final {
        if (end_) return *end_;
        const Status status = link_->advance();
        if (number_ && link_->take_end(*number_)) {
            memory_is_free_ = true;
            finish(outcome());
        }
        if (!end_ && !status.ok()) end_ = status.with_context(attempted_);
        if (!end_) return std::optional<uint64_t>();
        return *end_;
    }

    // A transfer can fail with its link while its memory is still being moved.
    bool take_back() override {
        return (end_.has_value() && (!number_ || memory_is_free_)) || link_->released();
    }

  protected:
    virtual Result<std::optional<uint64_t>> outcome() = 0;
    void finish(Result<std::optional<uint64_t>> end) {
        end_ = std::move(end);
        link_->nap.reset();
    }
    bool finished() const { return end_.has_value(); }

    const std::shared_ptr<Link> link_;
    const int peer_;
    const std::string attempted_;
    std::optional<uint64_t> number_;  // set once memory is on its way

  private:
    std::optional<Result<std::optional<uint64_t>>> end_;
    bool memory_is_free_ = false;  // the memory that `number_` moves
};

class Send final : public RanksTransfer {
  public:
    using RanksTransfer::RanksTransfer;

    Status start(uint32_t tag, std::span<const std::byte> source) {
        bytes_ = source.size();
        const Announcement announcement{bytes_, link_->next_data_tag()};
        ByteWriter frame;
        frame.put(static_cast<uint8_t>(Kind::announcement));
        frame.put(tag);
        frame.put(announcement.bytes);
        frame.put(announcement.data_tag);
        TAILRACE_TRY(link_->post(peer_, frame.bytes(), attempted_));
        if (bytes_ == 0) {
            finish(outcome());
            return {};
        }
        // The sender's memory is only read.
        const std::span<std::byte> memory(const_cast<std::byte*>(source.data()), source.size());
        TAILRACE_ASSIGN(number_, link_->start("send", peer_, announcement.data_tag, memory, attempted_));
        return {};
    }

  private:
    Result<std::optional<uint64_t>> outcome() override { return std::optional<uint64_t>(bytes_); }
    uint64_t bytes_ = 0;
};

class Receive final : public RanksTransfer {
  public:
    Receive(std::shared_ptr<Link> link, int source, uint32_t tag, std::span<std::byte> target,
            std::string attempted)
        : RanksTransfer(std::move(link), source, std::move(attempted)), target_(target) {
        link_->add(this, source, tag);
    }
    ~Receive() override { link_->remove(this); }

    void announced(const Announcement& announcement) {
        announced_ = true;
        bytes_ = announcement.bytes;
        if (bytes_ == 0) return finish(outcome());
        std::span<std::byte> memory = target_;
        std::unique_ptr<std::byte[]> spare;
        if (bytes_ > target_.size()) {
            spare.reset(new (std::nothrow) std::byte[bytes_]);
            if (!spare) return finish(outcome());
            memory = {spare.get(), bytes_};
        }
        auto started =
            link_->start("receive", peer_, announcement.data_tag, memory.first(bytes_), attempted_);
        if (!started.ok()) return finish(started.status());
        number_ = *started;
        if (spare) link_->keep(*number_, std::move(spare));
    }

    // Before it was announced, nobody knows its memory.
    bool take_back() override {
        if (announced_) return RanksTransfer::take_back();
        link_->remove(this);
        return true;
    }

  private:
    Result<std::optional<uint64_t>> outcome() override {
        if (number_) link_->forget(*number_);
        if (bytes_ <= target_.size()) return std::optional<uint64_t>(bytes_);
        return Status(Code::transport,
                      fmt::format("{}: {} bytes were sent, more than fit; nothing was written to the memory",
                                  attempted_, bytes_));
    }

    const std::span<std::byte> target_;
    bool announced_ = false;
    uint64_t bytes_ = 0;
};

// ---- frames ----------------------------------------------------------------------------------------------

Status Link::advance() {
    if (polled_)
        TAILRACE_TRY(call("looking for what has come", [&](nb::object& primitives) {
            if (nb::cast<bool>(primitives.attr("progress")())) nap.reset();
        }));
    Arrivals::News news = arrivals_->take();
    ended_transfers_.insert(news.ended.begin(), news.ended.end());
    for (auto& [source, frame] : news.frames) TAILRACE_TRY(sort(source, std::move(frame)));
    return news.failure;
}

Status Link::sort(int source, std::vector<std::byte> frame) {
    ByteReader in(frame);
    const auto kind = static_cast<Kind>(in.get<uint8_t>());
    if (in.ok() && kind == Kind::message) {
        messages.push_back({source, {frame.begin() + 1, frame.end()}});
        return {};
    }
    const auto tag = in.get<uint32_t>();
    Announcement announcement;
    announcement.bytes = in.get<uint64_t>();
    announcement.data_tag = in.get<uint32_t>();
    if (!in.at_end() || kind != Kind::announcement || source < 0 || source >= size_)
        return Status(
            Code::transport,
            fmt::format("rank {} sent {} bytes that are not a frame of this version", source, frame.size()));
    const auto channel = channels_.try_emplace({source, tag}).first;
    channel->second.announcements.push_back(announcement);
    meet(channel->second);
    if (channel->second.announcements.empty() && channel->second.receives.empty()) channels_.erase(channel);
    return {};
}

void Link::meet(Waiting& waiting) {
    while (!waiting.receives.empty() && !waiting.announcements.empty()) {
        Receive* const receive = waiting.receives.front();
        const Announcement announcement = waiting.announcements.front();
        waiting.receives.pop_front();
        waiting.announcements.pop_front();
        receive->announced(announcement);
    }
}

void Link::add(Receive* receive, int source, uint32_t tag) {
    const auto channel = channels_.try_emplace({source, tag}).first;
    channel->second.receives.push_back(receive);
    meet(channel->second);
    if (channel->second.announcements.empty() && channel->second.receives.empty()) channels_.erase(channel);
}

void Link::remove(Receive* receive) {
    for (auto& [key, waiting] : channels_) std::erase(waiting.receives, receive);
    std::erase_if(channels_, [](const auto& channel) {
        return channel.second.receives.empty() && channel.second.announcements.empty();
    });
}

// ---- the transport ---------------------------------------------------------------------------------------

class PrimitivesTransport final : public RanksTransport {
  public:
    explicit PrimitivesTransport(nb::object primitives)
        : link_(std::make_shared<Link>(std::move(primitives))), self_(make_single_transport()) {}
    ~PrimitivesTransport() override { link_->end(true); }

    int rank() const override { return link_->rank(); }
    int size() const override { return link_->size(); }
    std::string host() const override { return link_->host(); }
    bool concurrent() const override { return link_->concurrent(); }
    void end(bool together) override { link_->end(together); }
    void settle() override { link_->settle(); }

    Status post(int target, std::span<const std::byte> message) override {
        TAILRACE_TRY(check("posting a message to", target));
        if (target == rank()) {
            wake();
            return self_->post(0, message);
        }
        std::vector<std::byte> frame(1 + message.size(), static_cast<std::byte>(Kind::message));
        std::copy(message.begin(), message.end(), frame.begin() + 1);
        return link_->post(target, frame,
                           fmt::format("posting a message of {} bytes to rank {}", message.size(), target));
    }

    Result<std::optional<Message>> poll() override {
        TAILRACE_TRY(check("receiving messages on", rank()));
        TAILRACE_ASSIGN(auto own, self_->poll());
        if (own) {
            own->source = rank();
            return own;
        }
        // Messages that came before a failure are delivered first.
        const Status status = link_->advance();
        if (link_->messages.empty()) {
            TAILRACE_TRY(status);
            return std::optional<Message>();
        }
        std::optional<Message> message(std::move(link_->messages.front()));
        link_->messages.pop_front();
        return message;
    }

    Result<bool> posts_delivered() override {
        TAILRACE_TRY(link_->advance());
        bool delivered = false;
        TAILRACE_TRY(link_->call("asking for messages under way", [&](nb::object& primitives) {
            delivered = nb::cast<bool>(primitives.attr("posts_delivered")());
        }));
        return delivered;
    }

    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_TRY(check("sending data to", target));
        if (target == rank()) return self_->start_send(0, tag, source);
        auto send = std::make_unique<Send>(
            link_, target,
            fmt::format("sending {} bytes to rank {} with tag {}", source.size(), target, tag));
        TAILRACE_TRY(send->start(tag, source));
        return std::unique_ptr<Transfer>(std::move(send));
    }

    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_TRY(check("receiving data from", source));
        if (source == rank()) return self_->start_receive(0, tag, target);
        return std::unique_ptr<Transfer>(std::make_unique<Receive>(
            link_, source, tag, target,
            fmt::format("receiving from rank {} with tag {} into {} bytes", source, tag, target.size())));
    }

    void wait(std::chrono::microseconds longest, bool busy) override {
        if (link_->polled())
            link_->nap.sleep(longest, busy);
        else
            link_->arrivals().wait(longest);
    }
    void wake() override {
        link_->nap.wake();
        link_->arrivals().wake();
    }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        std::vector<std::vector<std::byte>> all;
        TAILRACE_TRY(link_->call("gathering from all ranks", [&](nb::object& primitives) {
            const nb::object parts = primitives.attr("allgather")(nb::bytes(mine.data(), mine.size()));
            for (const nb::handle part : parts) all.push_back(to_vector(nb::cast<nb::bytes>(part)));
        }));
        if (all.size() != static_cast<size_t>(size()))
            return Status(Code::transport,
                          fmt::format("gathering from {} ranks brought {} parts", size(), all.size()));
        return all;
    }

    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return exchange_by_allgather(*this, sends, receives);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        TAILRACE_TRY(check_rank("broadcasting from", root));
        std::vector<std::byte> copy;
        TAILRACE_TRY(link_->call(fmt::format("broadcasting from rank {}", root), [&](nb::object& primitives) {
            copy = to_vector(nb::cast<nb::bytes>(
                primitives.attr("broadcast")(root, nb::bytes(bytes.data(), bytes.size()))));
        }));
        return copy;
    }

  private:
    static std::vector<std::byte> to_vector(const nb::bytes& from) {
        const auto* data = reinterpret_cast<const std::byte*>(from.c_str());
        return {data, data + from.size()};
    }

    Status check(std::string_view attempted, int rank) const {
        if (!concurrent())
            return Status(Code::failed_state,
                          fmt::format("{} rank {}: these ranks may only communicate in collective calls",
                                      attempted, rank));
        return check_rank(attempted, rank);
    }
    Status check_rank(std::string_view attempted, int rank) const {
        if (rank >= 0 && rank < size()) return {};
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {}: there are {} ranks", attempted, rank, size()));
    }

    const std::shared_ptr<Link> link_;
    const std::unique_ptr<Transport> self_;  // messages and data to oneself
};

}  // namespace

std::shared_ptr<RanksTransport> make_ranks_transport(nb::object primitives) {
    return std::make_shared<PrimitivesTransport>(std::move(primitives));
}

void bind_transport(nb::module_& module) {
    nb::class_<Arrivals>(module, "Arrivals")
        .def(
            "frame",
            [](Arrivals& arrivals, int source, const nb::bytes& bytes) {
                const auto* data = reinterpret_cast<const std::byte*>(bytes.c_str());
                arrivals.frame(source, {data, data + bytes.size()});
            },
            nb::arg("source"), nb::arg("bytes"))
        .def("transfer_ended", &Arrivals::transfer_ended, nb::arg("number"))
        .def("failed", &Arrivals::failed, nb::arg("why"));
}

}  // namespace tailrace::internal::python
