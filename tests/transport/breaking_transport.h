// A transport of which posts and transfers fail when a rule says so; everything else passes through to
// another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tailrace::testing_support {

enum class TransportCall { post, transfer };

class BreakingTransport : public Transport {
  public:
    // Says whether a call fails; `calls` counts the posts and transfers before it.
    using Rule = std::function<bool(TransportCall kind, uint64_t calls)>;
    // `inner` outlives this object.
    BreakingTransport(Transport& inner, Rule breaks) : inner_(inner), breaks_(std::move(breaks)) {}

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
    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_TRY(check(TransportCall::transfer));
        return inner_.start_send(target, tag, source);
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_TRY(check(TransportCall::transfer));
        return inner_.start_receive(source, tag, target);
    }
    void wait(std::chrono::microseconds longest, bool busy) override { inner_.wait(longest, busy); }
    void wake() override { inner_.wake(); }
    Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine) override {
        return inner_.allgather(mine);
    }
    Result<std::vector<std::byte>> broadcast(int root, std::span<const std::byte> bytes) override {
        return inner_.broadcast(root, bytes);
    }

  private:
    Status check(TransportCall kind) {
        if (!breaks_(kind, calls_++)) return {};
        return Status(Code::transport, "the network is gone");
    }
    Transport& inner_;
    const Rule breaks_;
    uint64_t calls_ = 0;
};

}  // namespace tailrace::testing_support
