#include "ledger/agent_messages.h"

#include "base/bytes.h"
#include "base/status_codec.h"
#include "flush/plan_fields.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_path_bytes = 1 << 16;
constexpr uint64_t writer_bytes = 8 * 8;

}  // namespace

// To the end of the message.
static void put(ByteWriter& out, const ArrayFacts& facts) {
    out.put_bytes(encode(facts));
}
static void get(ByteReader& in, ArrayFacts& facts) {
    auto decoded = decode_array_facts(in.get_bytes(in.remaining()));
    if (!decoded.ok()) return in.set_failed();
    facts = std::move(*decoded);
}

template <class Codec>
void fields(Codec& codec, CaptureNumbers& m) {
    codec(m.ranks, m.bytes, m.least_seconds, m.most_seconds, m.sum_seconds, m.most_wait_seconds,
          m.most_blocked_seconds);
}

template <class Codec>
void fields(Codec& codec, WriterStatistics& m) {
    codec(m.local_bytes, m.received_bytes, m.local_chunks, m.received_chunks);
    codec(m.read_seconds, m.local_write_seconds, m.received_write_seconds, m.idle_seconds);
}

template <class Codec>
void fields(Codec& codec, FlushStatistics& m) {
    codec(m.leader, m.local_bytes, m.received_bytes, m.sent_bytes, m.chunks_received, m.chunks_sent);
    codec(m.largest_chunk_wait_us, m.chunk_wait_us, m.seconds, m.plan_seconds, m.prepare_seconds);
    codec(m.move_seconds, m.commit_seconds, m.credit_wait_seconds, m.write_seconds, m.sync_seconds);
    codec.list(m.writers, writer_bytes);
}

template <class Codec>
void names(Codec& codec, std::vector<std::string>& names) {
    codec.list(names, 4, [&](std::string& name) { codec.text(name, max_region_name_bytes); });
}

template <class Codec>
void fields(Codec& codec, Captured& m) {
    codec(m.sequence, m.key, m.for_shared, m.status, m.stream, m.apart_bytes);
    codec.text(m.path, max_path_bytes);
    codec(m.seconds, m.wait_seconds, m.arrays);
    names(codec, m.names_apart);
}

template <class Codec>
void fields(Codec& codec, NodeCaptured& m) {
    codec.number(m.node);
    codec(m.sequence);
    codec.list(m.keys, epoch_key_bytes);
    codec(m.for_shared, m.status, m.capture, m.arrays);
    codec.list(m.names_apart, 4 + 8, [&](NamesApart& of_rank) {
        codec(of_rank.rank);
        names(codec, of_rank.names);
    });
}

template <class Codec>
void fields(Codec& codec, Decision& m) {
    codec(m.key, m.flush);
}

template <class Codec>
void fields(Codec& codec, GroupResult& m) {
    codec(m.key);
    codec.number(m.party);
    codec(m.status, m.seconds);
}

template <class Codec>
void fields(Codec& codec, EpochEnded& m) {
    codec(m.key);
    codec.choice(m.state, EpochState::failed);
    codec(m.why, m.seconds, m.captured_everywhere, m.refused);
    codec.sentence(m.note, most_sentence_bytes);
    codec.check(m.state >= EpochState::committed && (m.state == EpochState::failed) != m.why.ok());
}

template <class Codec>
void fields(Codec& codec, EpochFlushing& m) {
    codec(m.key);
}

template <class Codec>
void fields(Codec& codec, BackgroundEnded& m) {
    codec(m.why);
    codec.check(!m.why.ok());
}

template <class Codec>
void fields(Codec& codec, NodeFlushed& m) {
    codec(m.key);
    codec.number(m.node.node);
    codec.number(m.node.group);
    codec(m.node.statistics);
}

template <class Codec>
void fields(Codec& codec, SavesEnded& m) {
    codec(m.sequence);
}

template <class Codec>
void fields(Codec& codec, ArraysAsked& m) {
    codec(m.key, m.question.of_one, m.question.name, m.question.others);
}

template <class Codec>
void fields(Codec& codec, ArraysAnswered& m) {
    codec(m.key, m.facts);
}

template <class Codec>
void fields(Codec& codec, MayCommit& m) {
    codec(m.key);
}

template <class Codec>
void fields(Codec& codec, NodePrepared& m) {
    codec(m.key);
    codec.number(m.node);
    codec(m.status);
}

template <class Codec>
void fields(Codec& codec, ArraysFit& m) {
    codec(m.key);
}

template <class Codec>
void fields(Codec& codec, Announced& m) {
    auto& announcement = m.announcement;
    codec.choice(announcement.question, Question::stop);
    codec(announcement.first, announcement.last, announcement.yes);
    codec.sentence(announcement.why, most_reason_bytes);
}

template <class Codec>
void fields(Codec& codec, AnswersEnded& m) {
    codec(m.why);
    codec.check(!m.why.ok());
}

template <class Codec>
void fields(Codec& codec, StopAsked& m) {
    codec.sentence(m.why, most_reason_bytes);
}

template <class Codec>
void fields(Codec& codec, NodeProtected& m) {
    codec(m.key);
    codec.number(m.node.node);
    codec(m.node.done, m.node.seconds, m.node.sent_bytes, m.node.kept_bytes);
    codec.sentence(m.node.why, most_sentence_bytes);
}

template <class Codec>
void fields(Codec& codec, EpochProtected& m) {
    codec(m.key, m.seconds, m.losses);
}

template <class Codec>
void fields(Codec& codec, PlanToKeep& m) {
    codec(m.key);
    codec.list(m.offers, least_offer_bytes);
}

template <class Codec>
void fields(Codec& codec, NodeOffered& m) {
    codec(m.key, m.offer);
}

template <class Codec>
void fields(Codec& codec, GroupOffered& m) {
    codec(m.key);
    codec.list(m.offers, least_offer_bytes);
}

std::vector<std::byte> encode(const AgentMessage& message) {
    ByteWriter out;
    out.put(std::to_integer<uint8_t>(agent_message_mark));
    put_alternative(out, message);
    return out.take();
}

Result<AgentMessage> decode_agent_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const bool ours = in.get<uint8_t>() == std::to_integer<uint8_t>(agent_message_mark);
    const auto kind = in.get<uint8_t>();
    auto message = get_alternative<AgentMessage>(in, kind);
    if (!ours || !in.at_end())
        return Status(Code::transport, "a message about an epoch could not be decoded (" +
                                           std::to_string(bytes.size()) + " bytes, kind " +
                                           std::to_string(kind) + ")");
    return message;
}

}  // namespace tailrace::internal
