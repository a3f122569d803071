// A transport of which posts and transfers fail when a rule says so, at their start or while they are under
// way; everything else passes through to another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tailrace::internal::testing_support {

enum class TransportCall { post, transfer };

// A transfer that fails under way, as MPI's may: the backend goes on touching its memory.
class BreakingTransfer : public Transfer {
  public:
    explicit BreakingTransfer(std::unique_ptr<Transfer> inner) : inner_(std::move(inner)) {}
    ~BreakingTransfer() override { (void)inner_->take_back(); }
    Result<std::optional<uint64_t>> test() override {
        return Status(Code::transport, "the network went away");
    }
    bool take_back() override { return false; }

  private:
    std::unique_ptr<Transfer> inner_;
};

class BreakingTransport : public Transport {
  public:
    // Says whether a call fails; `calls` counts the posts and transfers before it.
    using Rule = std::function<bool(TransportCall kind, uint64_t calls)>;
    // `inner` outlives this object. `breaks_under_way`: whether a transfer that has been started fails.
    BreakingTransport(Transport& inner, Rule breaks, Rule breaks_under_way = nullptr)
        : inner_(inner), breaks_(std::move(breaks)), breaks_under_way_(std::move(breaks_under_way)) {}

    // Memory that transfers may still touch although they have failed.
    const std::vector<std::span<const std::byte>>& lost() const { return lost_; }

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::string host() const override { return inner_.host(); }
    bool concurrent() const override { return inner_.concurrent(); }
    Status post(int target, std::span<const std::byte> message) override {
        TAILRACE_TRY(check(TransportCall::post));
        return inner_.post(target, message);
    }
    Result<std::optional<Message>> poll() override { return inner_.poll(); }
    Result<bool> posts_delivered() override { return inner_.posts_delivered(); }
    Status drop_posted() override { return inner_.drop_messages(); }
    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_TRY(check(TransportCall::transfer));
        return may_break(inner_.start_send(target, tag, source), source);
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_TRY(check(TransportCall::transfer));
        return may_break(inner_.start_receive(source, tag, target), target);
    }
    void wait(std::chrono::microseconds longest, bool busy) override { inner_.wait(longest, busy); }
    void wake() override { inner_.wake(); }
    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        return inner_.allgather(mine);
    }
    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return exchange_by_allgather(*this, sends, receives);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        return inner_.broadcast(root, bytes);
    }

  private:
    Status check(TransportCall kind) {
        if (!breaks_(kind, calls_++)) return {};
        return Status(Code::transport, "the network is gone");
    }
    Result<std::unique_ptr<Transfer>> may_break(Result<std::unique_ptr<Transfer>> transfer,
                                                std::span<const std::byte> memory) {
        if (!transfer.ok() || !breaks_under_way_ || !breaks_under_way_(TransportCall::transfer, calls_))
            return transfer;
        lost_.push_back(memory);
        return std::unique_ptr<Transfer>(std::make_unique<BreakingTransfer>(std::move(transfer).value()));
    }
    Transport& inner_;
    const Rule breaks_, breaks_under_way_;
    uint64_t calls_ = 0;
    std::vector<std::span<const std::byte>> lost_;
};

}  // namespace tailrace::internal::testing_support
