#include "aggregate/messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_job_bytes = 100;
constexpr uint64_t min_offer_bytes = 4 + 8;

void put(ByteWriter& out, const NodeOffer& offer) {
    out.put(static_cast<uint32_t>(offer.node));
    out.put(static_cast<uint64_t>(offer.streams.size()));
    for (const StreamInfo& stream : offer.streams) put(out, stream);
}
// For numbers that are int in memory: nodes and groups.
int get_int(ByteReader& in) {
    const auto value = in.get<uint32_t>();
    if (value > static_cast<uint32_t>(INT32_MAX)) in.set_failed();
    return in.ok() ? static_cast<int>(value) : 0;
}
NodeOffer get_offer(ByteReader& in) {
    NodeOffer offer;
    offer.node = get_int(in);
    offer.streams.resize(in.get_count(stream_info_bytes));
    for (StreamInfo& stream : offer.streams) stream = get_stream(in);
    return offer;
}

// ---- one put_body per message type, and its get_body --------------------------------------------

void put_body(ByteWriter& out, const OfferMessage& message) {
    put(out, message.key);
    out.put_string(message.job);
    out.put(message.run_uid);
    out.put(message.rank_count);
    put(out, message.offer);
    put(out, message.refused);
}
void get_body(ByteReader& in, OfferMessage& message) {
    message.key = get_key(in);
    message.job = in.get_string(max_job_bytes);
    message.run_uid = in.get<uint64_t>();
    message.rank_count = in.get<uint32_t>();
    message.offer = get_offer(in);
    message.refused = get_status(in);
}

void put_body(ByteWriter& out, const PlanMessage& message) {
    const FlushPlan& plan = message.plan;
    put(out, plan.key);
    out.put_string(plan.job);
    out.put(plan.run_uid);
    out.put(plan.rank_count);
    out.put(plan.file_count);
    out.put(static_cast<uint32_t>(plan.group.index));
    out.put(static_cast<uint32_t>(plan.group.first_node));
    out.put(static_cast<uint32_t>(plan.group.last_node));
    out.put(plan.group.first_file);
    out.put(plan.group.last_file);
    out.put(static_cast<uint64_t>(plan.leaders.size()));
    for (int leader : plan.leaders) out.put(static_cast<uint32_t>(leader));
    out.put(static_cast<uint64_t>(plan.offers.size()));
    for (const NodeOffer& offer : plan.offers) put(out, offer);
    out.put(plan.chunk_bytes);
    out.put(plan.block_bytes);
    out.put(plan.stripe_align);
    out.put(static_cast<uint8_t>(plan.placement));
}
void get_body(ByteReader& in, PlanMessage& message) {
    FlushPlan& plan = message.plan;
    plan.key = get_key(in);
    plan.job = in.get_string(max_job_bytes);
    plan.run_uid = in.get<uint64_t>();
    plan.rank_count = in.get<uint32_t>();
    plan.file_count = in.get<uint32_t>();
    plan.group.index = get_int(in);
    plan.group.first_node = get_int(in);
    plan.group.last_node = get_int(in);
    plan.group.first_file = in.get<uint32_t>();
    plan.group.last_file = in.get<uint32_t>();
    plan.leaders.resize(in.get_count(sizeof(uint32_t)));
    for (int& leader : plan.leaders) leader = get_int(in);
    plan.offers.resize(in.get_count(min_offer_bytes));
    for (NodeOffer& offer : plan.offers) offer = get_offer(in);
    plan.chunk_bytes = in.get<uint64_t>();
    plan.block_bytes = in.get<uint64_t>();
    plan.stripe_align = in.get<uint64_t>();
    const auto placement = in.get<uint8_t>();
    if (placement > static_cast<uint8_t>(Placement::contiguous)) return in.set_failed();
    plan.placement = static_cast<Placement>(placement);
}

void put_body(ByteWriter& out, const CreditMessage& message) {
    put(out, message.key);
    out.put(message.credit);
}
void get_body(ByteReader& in, CreditMessage& message) {
    message.key = get_key(in);
    message.credit = in.get<uint32_t>();
}

void put_body(ByteWriter& out, const ChunkMessage& message) {
    put(out, message.key);
    out.put(message.credit);
    out.put(message.rank);
    out.put(message.stream_offset);
    out.put(message.bytes);
}
void get_body(ByteReader& in, ChunkMessage& message) {
    message.key = get_key(in);
    message.credit = in.get<uint32_t>();
    message.rank = in.get<uint32_t>();
    message.stream_offset = in.get<uint64_t>();
    message.bytes = in.get<uint64_t>();
}

void put_body(ByteWriter& out, const EmptyMessage& message) {
    put(out, message.key);
    out.put(message.credit);
    put(out, message.why);
}
void get_body(ByteReader& in, EmptyMessage& message) {
    message.key = get_key(in);
    message.credit = in.get<uint32_t>();
    message.why = get_status(in);
}

void put_body(ByteWriter& out, const SegmentMessage& message) {
    put(out, message.key);
    put(out, message.status);
    out.put(message.data_bytes);
}
void get_body(ByteReader& in, SegmentMessage& message) {
    message.key = get_key(in);
    message.status = get_status(in);
    message.data_bytes = in.get<uint64_t>();
}

void put_body(ByteWriter& out, const FailedMessage& message) {
    put(out, message.key);
    put(out, message.why);
}
void get_body(ByteReader& in, FailedMessage& message) {
    message.key = get_key(in);
    message.why = get_status(in);
}

void put_body(ByteWriter& out, const AbortMessage& message) {
    put(out, message.key);
    put(out, message.why);
}
void get_body(ByteReader& in, AbortMessage& message) {
    message.key = get_key(in);
    message.why = get_status(in);
}

void put_body(ByteWriter& out, const ResultMessage& message) {
    put(out, message.key);
    put(out, message.status);
}
void get_body(ByteReader& in, ResultMessage& message) {
    message.key = get_key(in);
    message.status = get_status(in);
}

constexpr std::string_view names[] = {"OFFER",   "PLAN",   "CREDIT", "CHUNK", "EMPTY",
                                      "SEGMENT", "FAILED", "ABORT",  "RESULT"};
static_assert(std::size(names) == std::variant_size_v<AggregatorMessage>);

// Reads the body of a message of type `type`, which is its index in the variant.
template <size_t candidate = 0>
AggregatorMessage get_message(size_t type, ByteReader& in) {
    if constexpr (candidate < std::variant_size_v<AggregatorMessage>) {
        if (type == candidate) {
            std::variant_alternative_t<candidate, AggregatorMessage> message;
            get_body(in, message);
            return message;
        }
        return get_message<candidate + 1>(type, in);
    } else {
        in.set_failed();
        return ResultMessage();
    }
}

}  // namespace

std::vector<std::byte> encode(const AggregatorMessage& message) {
    ByteWriter out;
    out.put(std::to_integer<uint8_t>(aggregator_message_mark));
    out.put(static_cast<uint8_t>(message.index()));
    std::visit([&](const auto& body) { put_body(out, body); }, message);
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

Result<AggregatorMessage> decode_aggregator_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto mark = static_cast<std::byte>(in.get<uint8_t>());
    const auto type = in.get<uint8_t>();
    AggregatorMessage message = get_message(type, in);
    if (mark != aggregator_message_mark || !in.at_end()) {
        return Status(
            Code::transport,
            fmt::format("a message of {} bytes and type {} between nodes is damaged", bytes.size(), type));
    }
    if (const auto* plan = std::get_if<PlanMessage>(&message)) TAILRACE_TRY(check_plan(plan->plan));
    return message;
}

}  // namespace tailrace::internal
