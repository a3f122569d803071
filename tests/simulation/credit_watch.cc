#include "simulation/credit_watch.h"

#include <fmt/format.h>

#include "aggregate/aggregator.h"
#include "aggregate/credit_book.h"
#include "aggregate/messages.h"

namespace tailrace::internal::testing_support {

namespace {

// In the second byte of a message.
template <class Message>
bool is_a(std::span<const std::byte> bytes) {
    static const std::byte type = encode(AggregatorMessage(Message{}))[1];
    return bytes.size() > 1 && is_aggregator_message(bytes) && bytes[1] == type;
}

// Even tags are those of chunks (aggregate/messages.h).
bool is_of_a_chunk(uint32_t tag) {
    return tag % 2 == 0;
}

}  // namespace

CreditWatch::CreditWatch(Bounds bounds, std::function<void(const std::string&)> broken)
    : bounds_(bounds), broken_(std::move(broken)) {}

bool CreditWatch::gives_credit(std::span<const std::byte> message) {
    return is_a<CreditMessage>(message);
}

void CreditWatch::posted(int source, int target, std::span<const std::byte> message) {
    // Others may be long, and are not looked at.
    if (!gives_credit(message) && !is_a<ChunkMessage>(message) && !is_a<EmptyMessage>(message)) return;
    const auto decoded = decode_aggregator_message(message);
    if (!decoded.ok())
        return broken_(
            fmt::format("rank {} sends what cannot be decoded: {}", source, decoded.status().message()));
    if (const auto* credit = std::get_if<CreditMessage>(&*decoded)) granted(source, target, credit->credit);
    if (const auto* chunk = std::get_if<ChunkMessage>(&*decoded))
        answered(target, source, chunk->credit, chunk->bytes);
    if (const auto* empty = std::get_if<EmptyMessage>(&*decoded)) answered(target, source, empty->credit, 0);
}

void CreditWatch::granted(int leader, int follower, uint32_t credit) {
    auto& its = leaders_[leader];
    auto& open = its.open[follower];
    if (!open.insert(credit).second)
        return broken_(
            fmt::format("leader {} gives credit {} to {}, who has it already", leader, credit, follower));
    ++its.open_count;
    if (open.size() > CreditBook::max_open)
        broken_(fmt::format("follower {} has {} credits of leader {}", follower, open.size(), leader));
    check_buffers(leader);
}

void CreditWatch::answered(int leader, int follower, uint32_t credit, uint64_t bytes) {
    auto& its = leaders_[leader];
    if (its.open[follower].erase(credit) == 0)
        return broken_(fmt::format("follower {} answers credit {} of leader {}, which is not open", follower,
                                   credit, leader));
    --its.open_count;
    if (bytes > bounds_.buffer_bytes)
        broken_(fmt::format("follower {} sends {} bytes for a buffer of {}", follower, bytes,
                            bounds_.buffer_bytes));
}

void CreditWatch::receive_begins(int rank, uint32_t tag) {
    if (!is_of_a_chunk(tag)) return;
    ++leaders_[rank].receives;
    check_buffers(rank);
}

void CreditWatch::receive_ends(int rank, uint32_t tag) {
    if (is_of_a_chunk(tag)) --leaders_[rank].receives;
}

void CreditWatch::check_buffers(int leader) {
    const auto& its = leaders_[leader];
    if (its.open_count + its.receives > bounds_.buffers)
        broken_(fmt::format("leader {} has {} credits open and {} receives, and only {} buffers", leader,
                            its.open_count, its.receives, bounds_.buffers));
}

uint64_t CreditWatch::open() const {
    uint64_t sum = 0;
    for (const auto& [rank, leader] : leaders_) sum += leader.open_count;
    return sum;
}

}  // namespace tailrace::internal::testing_support
