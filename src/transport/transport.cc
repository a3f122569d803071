// What all transports share: agreement on a status, and the transport of a single rank.
#include "transport/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "transport/in_process.h"

namespace tailrace::internal {

namespace {

// Longer sentences are cut, because in an agreement every rank receives those of all ranks.
constexpr size_t longest_sentence_bytes = 2048;
// Backends send so little without memory of their own.
constexpr size_t longest_reason_bytes = 512;

// An answer that cannot be decoded counts as a failure of that rank, never as a success. A rank that has no
// memory for its sentence says nothing.
Status decode(std::span<const std::byte> bytes) {
    if (bytes.empty()) return Status(Code::out_of_memory, "memory has run out");
    ByteReader reader(bytes);
    Status status = get_status(reader);
    return reader.at_end() ? status : Status(Code::transport, "sent something other than its status");
}

// Every rank tells all others what it sends, with put(); each takes what is meant for it, with get().
template <class Put, class Get>
Status exchange_by(Transport& transport, std::span<const Transport::Outgoing> sends,
                   std::span<const Transport::Incoming> receives, const Put& put, const Get& get) {
    ByteWriter out;
    for (const auto& send : sends) {
        out.put(static_cast<uint32_t>(send.target));
        out.put(static_cast<uint64_t>(send.bytes.size()));
        put(out, send.bytes);
    }
    TAILRACE_ASSIGN(const auto all, transport.allgather(out.bytes()));
    std::vector<ByteReader> from;
    for (const auto& bytes : all) from.emplace_back(bytes);
    for (const auto& receive : receives) {
        if (receive.source < 0 || receive.source >= transport.size())
            return Status(Code::invalid_argument, fmt::format("receiving from rank {}: there are {} ranks",
                                                              receive.source, transport.size()));
        auto& in = from[static_cast<size_t>(receive.source)];
        std::span<const std::byte> piece;
        bool found = false;
        while (!found && in.ok() && in.remaining() > 0) {
            const auto target = in.get<uint32_t>();
            piece = get(in, in.get<uint64_t>());
            found = in.ok() && target == static_cast<uint32_t>(transport.rank());
        }
        if (!found || piece.size() != receive.bytes.size())
            return Status(
                Code::invalid_argument,
                fmt::format("receiving {} bytes from rank {}: it sent {}", receive.bytes.size(),
                            receive.source, found ? fmt::format("{} bytes", piece.size()) : "nothing more"));
        if (!piece.empty()) std::memcpy(receive.bytes.data(), piece.data(), piece.size());
    }
    return {};
}

}  // namespace

// ---- collectives, and calls that all ranks make together ----------------------------------------

Result<std::vector<std::vector<std::byte>>> Transport::allgather(std::span<const std::byte> mine) {
    TAILRACE_TRY(meet());
    return gather(mine);
}

Result<std::vector<std::byte>> Transport::broadcast(int root, std::span<const std::byte> bytes) {
    TAILRACE_TRY(meet());
    return spread(root, bytes);
}

Status Transport::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
    TAILRACE_TRY(meet());
    return move_pieces(sends, receives);
}

Status Transport::drop_messages() {
    TAILRACE_TRY(meet());
    return drop_posted();
}

Status Transport::meet() {
    return common_call_ != nullptr ? common_call_->meet({}) : Status();
}

bool Transport::common_call_left() const {
    return common_call_ != nullptr && common_call_->left();
}

CommonCall::CommonCall(Transport& transport)
    : transport_(transport),
      alone_(transport.size() == 1),
      outer_(alone_ ? nullptr : transport.common_call_),
      depth_(outer_ == nullptr ? 0 : outer_->depth_ + 1),
      left_(outer_ != nullptr && outer_->left_) {
    if (left_) why_ = catching([&] { return outer_->why_; });
    if (!alone_) transport.common_call_ = this;
}

CommonCall::~CommonCall() {
    if (!alone_) transport_.common_call_ = outer_;
}

Status CommonCall::meet(const Status& mine) noexcept {
    if (alone_) return catching([&] { return mine; });
    if (left_) return catching([&] { return why_; });
    // The outermost call that somebody has left counts, and of those ranks the first.
    constexpr int nobody = INT_MAX;
    const int ranks = transport_.size();
    const auto first =
        catching([&] { return transport_.least(mine.ok() ? nobody : depth_ * ranks + transport_.rank()); });
    if (first.ok() && *first == nobody) return {};
    const Status why =
        catching([&] { return first.ok() ? reason_of(*first % ranks, mine) : first.status(); });
    const int depth = first.ok() ? *first / ranks : 0;
    for (CommonCall* call = this; call != nullptr && call->depth_ >= depth; call = call->outer_) {
        call->left_ = true;
        call->why_ = catching([&] { return why; });
    }
    return catching([&] { return why; });
}

// The same on every rank.
Status CommonCall::reason_of(int leaver, const Status& mine) {
    ByteWriter own;
    const bool said =
        leaver == transport_.rank() && catching([&] { put(own, mine, longest_reason_bytes); }).ok();
    TAILRACE_ASSIGN(const auto bytes,
                    transport_.spread(leaver, said ? own.bytes() : std::span<const std::byte>()));
    return decode(bytes).with_context(fmt::format("rank {}", leaver));
}

Status exchange_by_allgather(Transport& transport, std::span<const Transport::Outgoing> sends,
                             std::span<const Transport::Incoming> receives) {
    return exchange_by(
        transport, sends, receives,
        [](ByteWriter& out, std::span<const std::byte> bytes) { out.put_bytes(bytes); },
        [](ByteReader& in, uint64_t bytes) { return in.get_bytes(bytes); });
}

Status exchange_by_address(Transport& transport, std::span<const Transport::Outgoing> sends,
                           std::span<const Transport::Incoming> receives) {
    const Status mine = exchange_by(
        transport, sends, receives,
        [](ByteWriter& out, std::span<const std::byte> bytes) {
            out.put(reinterpret_cast<uint64_t>(bytes.data()));
        },
        [](ByteReader& in, uint64_t bytes) {
            return std::span(reinterpret_cast<const std::byte*>(in.get<uint64_t>()), bytes);
        });
    // The others may still copy from this rank's memory.
    TAILRACE_TRY(transport.allgather({}).status());
    return mine;
}

Status agree(Transport& transport, const Status& mine) {
    const int ranks = transport.size();
    if (ranks == 1) return mine;
    // Whether all are ok is known without memory for anything.
    const auto first = catching([&]() -> Result<int> {
        TAILRACE_TRY(transport.meet());
        return transport.least(mine.ok() ? ranks : transport.rank());
    });
    if (first.ok() && *first == ranks) return {};
    const auto answers = catching([&]() -> Result<std::vector<std::vector<std::byte>>> {
        TAILRACE_TRY(first.status());
        ByteWriter own;
        const bool said = catching([&] { put(own, mine, longest_sentence_bytes); }).ok();
        return transport.gather(said ? own.bytes() : std::span<const std::byte>());
    });
    if (!answers.ok()) return mine.ok() ? answers.status().with_context("agreeing on a status") : mine;

    Status worst;
    size_t worst_rank = 0;
    size_t others = 0;
    for (size_t rank = 0; rank < answers->size(); ++rank) {
        Status status = decode((*answers)[rank]);
        if (status.ok()) continue;
        if (worst.ok()) {
            worst = std::move(status);
            worst_rank = rank;
        } else {
            ++others;
        }
    }
    if (worst.ok()) return Status(Code::transport, fmt::format("rank {} failed without saying why", *first));
    std::string sentence = fmt::format("rank {}: {}", worst_rank, worst.message());
    if (others > 0)
        sentence += fmt::format(" ({} other {} failed too)", others, others == 1 ? "rank" : "ranks");
    return Status(worst.code(), std::move(sentence));
}

std::unique_ptr<Transport> make_single_transport() {
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
    return std::move(make_in_process_transports({host.data()}).front());
}

}  // namespace tailrace::internal
