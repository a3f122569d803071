#include "aggregate/messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "flush/plan_fields.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_job_bytes = 100;

constexpr std::string_view names[] = {"OFFER",   "PLAN",   "CREDIT", "CHUNK", "EMPTY",
                                      "SEGMENT", "FAILED", "ABORT",  "RESULT"};
static_assert(std::size(names) == std::variant_size_v<AggregatorMessage>);

}  // namespace

template <class Codec>
void fields(Codec& codec, OfferMessage& message) {
    codec(message.key);
    codec.text(message.job, max_job_bytes);
    codec(message.run_uid, message.rank_count, message.offer, message.refused);
}

template <class Codec>
void fields(Codec& codec, PlanMessage& message) {
    FlushPlan& plan = message.plan;
    codec(plan.key);
    codec.text(plan.job, max_job_bytes);
    codec(plan.run_uid, plan.rank_count, plan.file_count);
    codec.number(plan.group.index);
    codec.number(plan.group.first_node);
    codec.number(plan.group.last_node);
    codec(plan.group.first_file, plan.group.last_file);
    codec.list(plan.leaders, sizeof(uint32_t), [&](int& leader) { codec.number(leader); });
    codec.list(plan.offers, least_offer_bytes);
    codec(plan.chunk_bytes, plan.block_bytes, plan.stripe_align);
    codec.choice(plan.placement, Placement::contiguous);
}

template <class Codec>
void fields(Codec& codec, CreditMessage& message) {
    codec(message.key, message.credit);
}

template <class Codec>
void fields(Codec& codec, ChunkMessage& message) {
    codec(message.key, message.credit, message.rank, message.stream_offset, message.bytes);
}

template <class Codec>
void fields(Codec& codec, EmptyMessage& message) {
    codec(message.key, message.credit, message.why);
}

template <class Codec>
void fields(Codec& codec, SegmentMessage& message) {
    codec(message.key, message.status, message.written.bytes, message.written.mark);
}

template <class Codec>
void fields(Codec& codec, FailedMessage& message) {
    codec(message.key, message.why);
}

template <class Codec>
void fields(Codec& codec, AbortMessage& message) {
    codec(message.key, message.why);
}

template <class Codec>
void fields(Codec& codec, ResultMessage& message) {
    codec(message.key, message.status);
}

std::vector<std::byte> encode(const AggregatorMessage& message) {
    ByteWriter out;
    out.put(std::to_integer<uint8_t>(aggregator_message_mark));
    put_alternative(out, message);
    return out.take();
}

EpochKey key_of(const AggregatorMessage& message) {
    return std::visit(
        [](const auto& body) -> EpochKey {
            if constexpr (std::is_same_v<std::decay_t<decltype(body)>, PlanMessage>) {
                return body.plan.key;
            } else {
                return body.key;
            }
        },
        message);
}

std::string_view name_of(const AggregatorMessage& message) {
    return names[message.index()];
}

Status check_way(const AggregatorMessage& message, int source, int target, const Group& group) {
    const bool from_coordinator = std::holds_alternative<PlanMessage>(message) ||
                                  std::holds_alternative<AbortMessage>(message) ||
                                  std::holds_alternative<ResultMessage>(message);
    const bool to_coordinator = std::holds_alternative<OfferMessage>(message) ||
                                std::holds_alternative<SegmentMessage>(message) ||
                                std::holds_alternative<FailedMessage>(message);
    if (source >= group.first_node && source < group.last_node &&
        (!from_coordinator || source == group.first_node) && (!to_coordinator || target == group.first_node))
        return {};
    return Status(
        Code::transport,
        fmt::format("node {} told node {} {}, which does not go that way in a group of nodes {} to {}",
                    source, target, name_of(message), group.first_node, group.last_node - 1));
}

Result<AggregatorMessage> decode_aggregator_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto mark = static_cast<std::byte>(in.get<uint8_t>());
    const auto type = in.get<uint8_t>();
    auto message = get_alternative<AggregatorMessage>(in, type);
    if (mark != aggregator_message_mark || !in.at_end()) {
        return Status(
            Code::transport,
            fmt::format("a message of {} bytes and type {} between nodes is damaged", bytes.size(), type));
    }
    if (const auto* plan = std::get_if<PlanMessage>(&message)) TAILRACE_TRY(check_plan(plan->plan));
    return message;
}

}  // namespace tailrace::internal
