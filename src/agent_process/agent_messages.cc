#include "agent_process/agent_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "base/text.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t mark = 0x67415254;  // "TRAg"
constexpr uint32_t protocol_version = 4;
constexpr uint32_t max_path_bytes = 4096;
constexpr size_t longest_text_bytes = most_sentence_bytes / 2;
constexpr size_t max_waiting = 5;
constexpr uint64_t least_bytes = 30;  // of what lists hold

}  // namespace

template <class Codec>
void fields(Codec& codec, AwaitedNodes& nodes) {
    codec(nodes.first, nodes.last);
    codec.sentence(nodes.host, most_sentence_bytes);
}

template <class Codec>
void fields(Codec& codec, DrainedEpoch& epoch) {
    codec.sentence(epoch.job, most_sentence_bytes);
    codec(epoch.key);
    codec.sentence(epoch.shared_dir, most_sentence_bytes);
    codec.choice(epoch.state, DrainedEpoch::State::stopped);
    codec.sentence(epoch.why, most_sentence_bytes);
    codec.list(epoch.waiting_for, 3 * sizeof(uint32_t));
    codec(epoch.own_bytes, epoch.wrote);
}

template <class Codec>
void fields(Codec& codec, CarriedStatus& status) {
    codec.sentence(status.job, most_sentence_bytes);
    codec.sentence(status.shared_dir, most_sentence_bytes);
    codec(status.run, status.node, status.nodes, status.ranks, status.connected, status.epochs);
    codec(status.ending);
}

template <class Codec>
void fields(Codec& codec, SessionOpens& message) {
    codec.text(message.shared_dir, max_path_bytes);
}

template <class Codec>
void fields(Codec& codec, EndAsked& message) {
    codec(message.grace_ms);
}

template <class Codec>
void fields(Codec& codec, CarrierPlace& place) {
    codec(place.world, place.agent, place.agents);
    codec.check(place.agent < place.agents);
}

template <class Codec>
void fields(Codec& codec, MayOpen& message) {
    codec(message.carries);
}

template <class Codec>
void fields(Codec& codec, AgentStatus& status) {
    codec(status.process, status.started_unix_ms, status.sessions, status.working, status.stopping);
    codec(status.left);
    codec.sentence(status.busy, most_sentence_bytes);
    codec.sentence(status.failed, most_sentence_bytes);
    codec.list(status.epochs, least_bytes);
    codec(status.carries);
    codec.list(status.carried, least_bytes);
}

template <class Codec>
void fields(Codec& codec, LineBytes& message) {
    codec.bytes(message.bytes);
}

namespace {

// The first nodes, and a range that the others lie in.
void cut_waiting(std::vector<AwaitedNodes>& waiting) {
    if (waiting.size() <= max_waiting) return;
    AwaitedNodes rest = waiting[max_waiting - 1];
    rest.host.clear();
    for (size_t i = max_waiting; i < waiting.size(); ++i) {
        rest.first = std::min(rest.first, waiting[i].first);
        rest.last = std::max(rest.last, waiting[i].last);
    }
    waiting.resize(max_waiting - 1);
    waiting.push_back(std::move(rest));
}

// The newest epochs, and the first of what each waits for.
AgentStatus with_shorter_lists(AgentStatus status) {
    auto& epochs = status.epochs;
    if (epochs.size() > max_status_epochs) epochs.erase(epochs.begin(), epochs.end() - max_status_epochs);
    if (status.carried.size() > max_status_epochs) status.carried.resize(max_status_epochs);
    for (auto& epoch : epochs) cut_waiting(epoch.waiting_for);
    return status;
}

void cut(std::string& text, size_t most_bytes) {
    if (text.size() > most_bytes) text = std::string(cut_text(text, most_bytes)) + "...";
}

void cut(Status& status, size_t most_bytes) {
    if (status.message().size() <= most_bytes) return;
    std::string sentence = status.message();
    cut(sentence, most_bytes);
    status = Status(status.code(), std::move(sentence));
}

void cut_texts(AgentStatus& status, size_t most_bytes) {
    cut(status.busy, most_bytes);
    cut(status.failed, most_bytes);
    for (auto& epoch : status.epochs) {
        cut(epoch.job, most_bytes);
        cut(epoch.shared_dir, most_bytes);
        cut(epoch.why, most_bytes);
        for (auto& nodes : epoch.waiting_for) cut(nodes.host, most_bytes);
    }
    for (auto& carried : status.carried) {
        cut(carried.job, most_bytes);
        cut(carried.shared_dir, most_bytes);
    }
}

std::vector<std::byte> encode_whole(const AgentProcessMessage& message) {
    ByteWriter out;
    out.put(mark);
    out.put(protocol_version);
    put_alternative(out, message);
    return out.take();
}

}  // namespace

std::vector<std::byte> encode(const AgentProcessMessage& message) {
    const auto* status = std::get_if<AgentStatus>(&message);
    if (status == nullptr) return encode_whole(message);
    auto shorter = with_shorter_lists(*status);
    // Texts are whole unless the status would not fit in a packet. Then the longest are cut, and marked.
    for (size_t most_bytes = longest_text_bytes;; most_bytes /= 2) {
        cut_texts(shorter, most_bytes);
        auto bytes = encode_whole(shorter);
        if (bytes.size() <= max_agent_message_bytes) return bytes;
    }
}

Result<AgentProcessMessage> decode_agent_process_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const bool ours = in.get<uint32_t>() == mark;
    const auto version = in.get<uint32_t>();
    if (ours && in.ok() && version != protocol_version)
        return Status(Code::unsupported,
                      fmt::format("the agent and its client speak versions {} and {} of their protocol: use "
                                  "the same version of tailrace for both",
                                  version, protocol_version));
    const auto type = in.get<uint8_t>();
    auto message = get_alternative<AgentProcessMessage>(in, type);
    if (!ours || !in.at_end())
        return Status(Code::transport,
                      fmt::format("a message of {} bytes at the agent's socket is damaged", bytes.size()));
    return message;
}

}  // namespace tailrace::internal
