// LinkedTransport: the transport of a rank whose machine has a link of a given rate, for benchmarks.
//
// It passes everything on to another transport. A transfer is complete only when the sender's link and the
// receiver's have had time for its bytes, each link one transfer after the other in each direction. The
// bytes themselves move as the other transport moves them. Messages and collective calls take no time on
// the link. One thread at a time uses messages and transfers, as of every transport.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "transport/transport.h"

namespace tailrace::internal {

// One direction of a link.
class LinkTime {
  public:
    using Clock = std::chrono::steady_clock;
    explicit LinkTime(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
    // When that many bytes are through, after all that came before.
    Clock::time_point occupy(uint64_t bytes) {
        const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
        free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
        return free_;
    }

  private:
    const double bytes_per_second_;
    Clock::time_point free_;
};

class LinkedTransport final : public Transport {
  public:
    LinkedTransport(std::unique_ptr<Transport> inner, double bytes_per_second)
        : inner_(std::move(inner)), out_(bytes_per_second), in_(bytes_per_second) {}

    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::string host() const override { return inner_->host(); }
    bool concurrent() const override { return inner_->concurrent(); }

    Status post(int target, std::span<const std::byte> message) override {
        return inner_->post(target, message);
    }
    Result<std::optional<Message>> poll() override { return inner_->poll(); }
    Result<bool> posts_delivered() override { return inner_->posts_delivered(); }
    Status drop_posted() override { return inner_->drop_messages(); }

    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_ASSIGN(auto inner, inner_->start_send(target, tag, source));
        return std::unique_ptr<Transfer>(
            std::make_unique<Linked>(*this, std::move(inner), out_.occupy(source.size())));
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_ASSIGN(auto inner, inner_->start_receive(source, tag, target));
        return std::unique_ptr<Transfer>(std::make_unique<Linked>(*this, std::move(inner), std::nullopt));
    }

    void wait(std::chrono::microseconds longest, bool busy) override {
        const auto until = next_due_ - LinkTime::Clock::now();
        next_due_ = LinkTime::Clock::time_point::max();
        if (until < longest)
            longest = std::max(std::chrono::ceil<std::chrono::microseconds>(until), longest.zero());
        inner_->wait(longest, busy);
    }
    void wake() override { inner_->wake(); }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        return inner_->allgather(mine);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        return inner_->broadcast(root, bytes);
    }
    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return inner_->exchange(sends, receives);
    }

  private:
    class Linked final : public Transfer {
      public:
        // A receive gets its time on the link when the bytes come.
        Linked(LinkedTransport& transport, std::unique_ptr<Transfer> inner,
               std::optional<LinkTime::Clock::time_point> due)
            : transport_(transport), inner_(std::move(inner)), due_(due) {}
        Result<std::optional<uint64_t>> test() override {
            TAILRACE_ASSIGN(const auto moved, inner_->test());
            if (!moved) return moved;
            if (!due_) due_ = transport_.in_.occupy(*moved);
            if (LinkTime::Clock::now() >= *due_) return moved;
            transport_.next_due_ = std::min(transport_.next_due_, *due_);
            return std::optional<uint64_t>();
        }
        bool take_back() override { return inner_->take_back(); }

      private:
        LinkedTransport& transport_;
        const std::unique_ptr<Transfer> inner_;
        std::optional<LinkTime::Clock::time_point> due_;
    };

    const std::unique_ptr<Transport> inner_;
    LinkTime out_, in_;
    LinkTime::Clock::time_point next_due_ =
        LinkTime::Clock::time_point::max();  // of transfers that were tested
};

}  // namespace tailrace::internal
