#include "ledger/agent_messages.h"

#include <bit>
#include <iterator>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "base/text.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_path_bytes = 1 << 16;

void put(ByteWriter& out, const Residues& residues) {
    for (const uint64_t value : residues) out.put(value);
}
void put_flag(ByteWriter& out, bool value) {
    out.put(static_cast<uint8_t>(value));
}
void put_seconds(ByteWriter& out, double seconds) {
    out.put(std::bit_cast<uint64_t>(seconds));
}

Residues get_residues(ByteReader& in) {
    Residues residues;
    for (uint64_t& value : residues) value = in.get<uint64_t>();
    return residues;
}
bool get_flag(ByteReader& in) {
    const auto value = in.get<uint8_t>();
    if (value > 1) in.set_failed();
    return value == 1;
}
double get_seconds(ByteReader& in) {
    return std::bit_cast<double>(in.get<uint64_t>());
}
int get_int(ByteReader& in) {
    const auto value = in.get<uint32_t>();
    if (value > INT32_MAX) in.set_failed();
    return static_cast<int>(value);
}

void put_numbers(ByteWriter& out, const CaptureNumbers& numbers) {
    out.put(numbers.ranks);
    out.put(numbers.bytes);
    put_seconds(out, numbers.least_seconds);
    put_seconds(out, numbers.most_seconds);
    put_seconds(out, numbers.sum_seconds);
    put_seconds(out, numbers.most_wait_seconds);
    put_seconds(out, numbers.most_blocked_seconds);
}
CaptureNumbers get_capture_numbers(ByteReader& in) {
    CaptureNumbers numbers;
    numbers.ranks = in.get<uint32_t>();
    numbers.bytes = in.get<uint64_t>();
    numbers.least_seconds = get_seconds(in);
    numbers.most_seconds = get_seconds(in);
    numbers.sum_seconds = get_seconds(in);
    numbers.most_wait_seconds = get_seconds(in);
    numbers.most_blocked_seconds = get_seconds(in);
    return numbers;
}

// The fields of statistics, in the order in which they travel. One list serves both directions.
constexpr uint64_t FlushStatistics::*flush_counts[] = {
    &FlushStatistics::local_bytes,  &FlushStatistics::received_bytes,
    &FlushStatistics::sent_bytes,   &FlushStatistics::chunks_received,
    &FlushStatistics::chunks_sent,  &FlushStatistics::largest_chunk_wait_us,
    &FlushStatistics::chunk_wait_us};
constexpr double FlushStatistics::*flush_seconds[] = {
    &FlushStatistics::seconds,       &FlushStatistics::plan_seconds,   &FlushStatistics::prepare_seconds,
    &FlushStatistics::move_seconds,  &FlushStatistics::commit_seconds, &FlushStatistics::credit_wait_seconds,
    &FlushStatistics::write_seconds, &FlushStatistics::sync_seconds};
constexpr uint64_t WriterStatistics::*writer_counts[] = {
    &WriterStatistics::local_bytes, &WriterStatistics::received_bytes, &WriterStatistics::local_chunks,
    &WriterStatistics::received_chunks};
constexpr double WriterStatistics::*writer_seconds[] = {
    &WriterStatistics::read_seconds, &WriterStatistics::local_write_seconds,
    &WriterStatistics::received_write_seconds, &WriterStatistics::idle_seconds};
constexpr uint64_t writer_bytes = 8 * (std::size(writer_counts) + std::size(writer_seconds));

void put_body(ByteWriter& out, const Captured& m) {
    out.put(m.sequence);
    put(out, m.key);
    put_flag(out, m.for_shared);
    put(out, m.status);
    put(out, m.stream);
    out.put_string(m.path);
    put_seconds(out, m.seconds);
    put_seconds(out, m.wait_seconds);
    put(out, m.arrays);
}
Captured get_captured(ByteReader& in) {
    Captured m;
    m.sequence = in.get<uint64_t>();
    m.key = get_key(in);
    m.for_shared = get_flag(in);
    m.status = get_status(in);
    m.stream = get_stream(in);
    m.path = in.get_string(max_path_bytes);
    m.seconds = get_seconds(in);
    m.wait_seconds = get_seconds(in);
    m.arrays = get_residues(in);
    return m;
}

void put_body(ByteWriter& out, const NodeCaptured& m) {
    out.put(static_cast<uint32_t>(m.node));
    out.put(m.sequence);
    out.put(static_cast<uint64_t>(m.keys.size()));
    for (const auto& key : m.keys) put(out, key);
    put_flag(out, m.for_shared);
    put(out, m.status);
    put_numbers(out, m.capture);
    put(out, m.arrays);
}
NodeCaptured get_node_captured(ByteReader& in) {
    NodeCaptured m;
    m.node = get_int(in);
    m.sequence = in.get<uint64_t>();
    const uint64_t count = in.get_count(12);
    for (uint64_t i = 0; i < count; ++i) m.keys.push_back(get_key(in));
    m.for_shared = get_flag(in);
    m.status = get_status(in);
    m.capture = get_capture_numbers(in);
    m.arrays = get_residues(in);
    return m;
}

void put_body(ByteWriter& out, const Decision& m) {
    put(out, m.key);
    put_flag(out, m.flush);
}
Decision get_decision(ByteReader& in) {
    Decision m;
    m.key = get_key(in);
    m.flush = get_flag(in);
    return m;
}

void put_body(ByteWriter& out, const GroupResult& m) {
    put(out, m.key);
    out.put(static_cast<uint32_t>(m.party));
    put(out, m.status);
    put_seconds(out, m.seconds);
}
GroupResult get_group_result(ByteReader& in) {
    GroupResult m;
    m.key = get_key(in);
    m.party = get_int(in);
    m.status = get_status(in);
    m.seconds = get_seconds(in);
    return m;
}

void put_body(ByteWriter& out, const EpochEnded& m) {
    put(out, m.key);
    out.put(static_cast<uint8_t>(m.state));
    put(out, m.why);
    put_seconds(out, m.seconds);
    put_flag(out, m.captured_everywhere);
    out.put_string(cut_text(m.note, most_sentence_bytes));
    put_flag(out, m.refused);
}
EpochEnded get_epoch_ended(ByteReader& in) {
    EpochEnded m;
    m.key = get_key(in);
    const auto state = in.get<uint8_t>();
    if (state < static_cast<uint8_t>(EpochState::committed) ||
        state > static_cast<uint8_t>(EpochState::failed))
        in.set_failed();
    m.state = static_cast<EpochState>(state);
    m.why = get_status(in);
    if ((m.state == EpochState::failed) == m.why.ok()) in.set_failed();
    m.seconds = get_seconds(in);
    m.captured_everywhere = get_flag(in);
    m.note = in.get_string(most_sentence_bytes);
    m.refused = get_flag(in);
    return m;
}

void put_body(ByteWriter& out, const EpochFlushing& m) {
    put(out, m.key);
}

void put_body(ByteWriter& out, const BackgroundEnded& m) {
    put(out, m.why);
}
BackgroundEnded get_background_ended(ByteReader& in) {
    BackgroundEnded m{get_status(in)};
    if (m.why.ok()) in.set_failed();
    return m;
}

void put_body(ByteWriter& out, const NodeFlushed& m) {
    const FlushStatistics& numbers = m.node.statistics;
    put(out, m.key);
    out.put(static_cast<uint32_t>(m.node.node));
    out.put(static_cast<uint32_t>(m.node.group));
    put_flag(out, numbers.leader);
    for (const auto field : flush_counts) out.put(numbers.*field);
    for (const auto field : flush_seconds) put_seconds(out, numbers.*field);
    out.put(static_cast<uint64_t>(numbers.writers.size()));
    for (const WriterStatistics& writer : numbers.writers) {
        for (const auto field : writer_counts) out.put(writer.*field);
        for (const auto field : writer_seconds) put_seconds(out, writer.*field);
    }
}
NodeFlushed get_node_flushed(ByteReader& in) {
    NodeFlushed m;
    FlushStatistics& numbers = m.node.statistics;
    m.key = get_key(in);
    m.node.node = get_int(in);
    m.node.group = get_int(in);
    numbers.leader = get_flag(in);
    for (const auto field : flush_counts) numbers.*field = in.get<uint64_t>();
    for (const auto field : flush_seconds) numbers.*field = get_seconds(in);
    numbers.writers.resize(in.get_count(writer_bytes));
    for (WriterStatistics& writer : numbers.writers) {
        for (const auto field : writer_counts) writer.*field = in.get<uint64_t>();
        for (const auto field : writer_seconds) writer.*field = get_seconds(in);
    }
    return m;
}

void put_body(ByteWriter& out, const SavesEnded& m) {
    out.put(m.sequence);
}

void put_body(ByteWriter& out, const ArraysAsked& m) {
    put(out, m.key);
    put_flag(out, m.question.of_one);
    put(out, m.question.name);
    out.put(m.question.others);
}
ArraysAsked get_arrays_asked(ByteReader& in) {
    ArraysAsked m;
    m.key = get_key(in);
    m.question.of_one = get_flag(in);
    m.question.name = get_residues(in);
    m.question.others = in.get<uint64_t>();
    return m;
}

void put_body(ByteWriter& out, const ArraysAnswered& m) {
    put(out, m.key);
    out.put_bytes(encode(m.facts));
}
ArraysAnswered get_arrays_answered(ByteReader& in) {
    ArraysAnswered m;
    m.key = get_key(in);
    auto facts = decode_array_facts(in.get_bytes(in.remaining()));
    if (facts.ok())
        m.facts = std::move(*facts);
    else
        in.set_failed();
    return m;
}

void put_body(ByteWriter& out, const MayCommit& m) {
    put(out, m.key);
}

void put_body(ByteWriter& out, const ArraysFit& m) {
    put(out, m.key);
}

void put_body(ByteWriter& out, const PartsVerified& m) {
    put(out, m.key);
    put(out, m.status);
}
PartsVerified get_parts_verified(ByteReader& in) {
    PartsVerified m;
    m.key = get_key(in);
    m.status = get_status(in);
    return m;
}

void put_body(ByteWriter& out, const Announced& m) {
    out.put(static_cast<uint8_t>(m.announcement.question));
    out.put(m.announcement.first);
    out.put(m.announcement.last);
    put_flag(out, m.announcement.yes);
    out.put_string(cut_text(m.announcement.why, most_reason_bytes));
}
Announced get_announced(ByteReader& in) {
    Announced m;
    const auto question = in.get<uint8_t>();
    if (question >= question_count) in.set_failed();
    m.announcement.question = question == 0 ? Question::save : Question::stop;
    m.announcement.first = in.get<uint64_t>();
    m.announcement.last = in.get<uint64_t>();
    m.announcement.yes = get_flag(in);
    m.announcement.why = in.get_string(most_reason_bytes);
    return m;
}

void put_body(ByteWriter& out, const AnswersEnded& m) {
    put(out, m.why);
}
AnswersEnded get_answers_ended(ByteReader& in) {
    AnswersEnded m{get_status(in)};
    if (m.why.ok()) in.set_failed();
    return m;
}

void put_body(ByteWriter& out, const StopAsked& m) {
    out.put_string(cut_text(m.why, most_reason_bytes));
}

void put_body(ByteWriter& out, const NodeProtected& m) {
    put(out, m.key);
    out.put(static_cast<uint32_t>(m.node.node));
    put_flag(out, m.node.done);
    out.put_string(cut_text(m.node.why, most_sentence_bytes));
    put_seconds(out, m.node.seconds);
    out.put(m.node.sent_bytes);
    out.put(m.node.kept_bytes);
}
NodeProtected get_node_protected(ByteReader& in) {
    NodeProtected m;
    m.key = get_key(in);
    m.node.node = get_int(in);
    m.node.done = get_flag(in);
    m.node.why = in.get_string(most_sentence_bytes);
    m.node.seconds = get_seconds(in);
    m.node.sent_bytes = in.get<uint64_t>();
    m.node.kept_bytes = in.get<uint64_t>();
    return m;
}

void put_body(ByteWriter& out, const EpochProtected& m) {
    put(out, m.key);
    put_seconds(out, m.seconds);
    out.put(m.losses);
}
EpochProtected get_epoch_protected(ByteReader& in) {
    EpochProtected m;
    m.key = get_key(in);
    m.seconds = get_seconds(in);
    m.losses = in.get<uint32_t>();
    return m;
}

void put_body(ByteWriter& out, const PlanToKeep& m) {
    put(out, m.key);
    out.put(static_cast<uint64_t>(m.offers.size()));
    for (const auto& offer : m.offers) {
        out.put(static_cast<uint32_t>(offer.node));
        out.put(static_cast<uint64_t>(offer.streams.size()));
        for (const auto& stream : offer.streams) put(out, stream);
    }
}
PlanToKeep get_plan_to_keep(ByteReader& in) {
    PlanToKeep m;
    m.key = get_key(in);
    const uint64_t count = in.get_count(4 + 8);
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
        auto& offer = m.offers.emplace_back();
        offer.node = get_int(in);
        offer.streams.resize(in.get_count(stream_info_bytes));
        for (auto& stream : offer.streams) stream = get_stream(in);
    }
    return m;
}

AgentMessage get_body(ByteReader& in, uint8_t kind) {
    switch (kind) {
        case 0:
            return get_captured(in);
        case 1:
            return get_node_captured(in);
        case 2:
            return get_decision(in);
        case 3:
            return get_group_result(in);
        case 4:
            return get_epoch_ended(in);
        case 5:
            return EpochFlushing{get_key(in)};
        case 6:
            return get_background_ended(in);
        case 7:
            return get_node_flushed(in);
        case 8:
            return SavesEnded{in.get<uint64_t>()};
        case 9:
            return get_arrays_asked(in);
        case 10:
            return get_arrays_answered(in);
        case 11:
            return MayCommit{get_key(in)};
        case 12:
            return get_parts_verified(in);
        case 13:
            return ArraysFit{get_key(in)};
        case 14:
            return get_announced(in);
        case 15:
            return get_answers_ended(in);
        case 16:
            return StopAsked{in.get_string(most_reason_bytes)};
        case 17:
            return get_node_protected(in);
        case 18:
            return get_epoch_protected(in);
        case 19:
            return get_plan_to_keep(in);
        default:
            in.set_failed();
            return EpochFlushing{};
    }
}

}  // namespace

bool is_agent_message(std::span<const std::byte> message) {
    return !message.empty() && message.front() == agent_message_mark;
}

std::vector<std::byte> encode(const AgentMessage& message) {
    ByteWriter out;
    out.put(std::to_integer<uint8_t>(agent_message_mark));
    out.put(static_cast<uint8_t>(message.index()));
    std::visit([&](const auto& body) { put_body(out, body); }, message);
    return out.take();
}

Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const bool ours = in.get<uint8_t>() == std::to_integer<uint8_t>(agent_message_mark);
    const auto kind = in.get<uint8_t>();
    AgentMessage message = get_body(in, kind);
    if (!ours || !in.at_end())
        return Status(Code::transport, "a message about an epoch could not be decoded (" +
                                           std::to_string(bytes.size()) + " bytes, kind " +
                                           std::to_string(kind) + ")");
    return message;
}

}  // namespace tailrace::internal
