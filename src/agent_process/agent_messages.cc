#include "agent_process/agent_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t mark = 0x67415254;  // "TRAg"
constexpr uint32_t protocol_version = 2;
constexpr uint32_t max_text_bytes = 4096;
constexpr size_t max_waiting = 5;

std::string_view cut(std::string_view text) {
    return text.substr(0, 200);
}

void put_epoch(ByteWriter& out, const DrainedEpoch& epoch) {
    out.put_string(cut(epoch.job));
    put(out, epoch.key);
    out.put_string(cut(epoch.shared_dir));
    out.put(static_cast<uint8_t>(epoch.state));
    put(out, Status(epoch.why.code(), std::string(cut(epoch.why.message()))));
    const size_t waiting = std::min(epoch.waiting_for.size(), max_waiting);
    out.put(static_cast<uint64_t>(waiting));
    for (size_t i = 0; i < waiting; ++i) out.put_string(cut(epoch.waiting_for[i]));
    out.put(epoch.bytes);
    out.put(static_cast<uint8_t>(epoch.wrote));
}

DrainedEpoch get_epoch(ByteReader& in) {
    DrainedEpoch epoch;
    epoch.job = in.get_string(max_text_bytes);
    epoch.key = get_key(in);
    epoch.shared_dir = in.get_string(max_text_bytes);
    const auto state = in.get<uint8_t>();
    if (state > static_cast<uint8_t>(DrainedEpoch::State::stopped)) in.set_failed();
    epoch.state = static_cast<DrainedEpoch::State>(state);
    epoch.why = get_status(in);
    const uint64_t waiting = in.get_count(sizeof(uint32_t));
    for (uint64_t i = 0; i < waiting && in.ok(); ++i)
        epoch.waiting_for.push_back(in.get_string(max_text_bytes));
    epoch.bytes = in.get<uint64_t>();
    epoch.wrote = in.get<uint8_t>() != 0;
    return epoch;
}

void put_carried(ByteWriter& out, const CarriedStatus& status) {
    out.put_string(cut(status.job));
    out.put_string(cut(status.shared_dir));
    for (const uint32_t number : {status.run, status.node, status.nodes, status.ranks, status.connected,
                                  status.epochs, static_cast<uint32_t>(status.ending)})
        out.put(number);
}

CarriedStatus get_carried(ByteReader& in) {
    CarriedStatus status;
    status.job = in.get_string(max_text_bytes);
    status.shared_dir = in.get_string(max_text_bytes);
    for (uint32_t* number :
         {&status.run, &status.node, &status.nodes, &status.ranks, &status.connected, &status.epochs})
        *number = in.get<uint32_t>();
    status.ending = in.get<uint32_t>() != 0;
    return status;
}

void put_status(ByteWriter& out, const AgentStatus& status) {
    out.put(status.process);
    out.put(static_cast<uint64_t>(status.started_unix_ms));
    out.put(status.sessions);
    out.put(static_cast<uint8_t>(status.working));
    out.put(static_cast<uint8_t>(status.stopping));
    out.put(status.left);
    out.put_string(cut(status.busy));
    out.put_string(cut(status.failed));
    const size_t count = std::min(status.epochs.size(), max_status_epochs);
    out.put(static_cast<uint64_t>(count));
    for (size_t i = status.epochs.size() - count; i < status.epochs.size(); ++i)
        put_epoch(out, status.epochs[i]);
    out.put(static_cast<uint8_t>(status.carries));
    const size_t carried = std::min(status.carried.size(), max_status_epochs);
    out.put(static_cast<uint64_t>(carried));
    for (size_t i = 0; i < carried; ++i) put_carried(out, status.carried[i]);
}

AgentStatus get_agent_status(ByteReader& in) {
    AgentStatus status;
    status.process = in.get<uint32_t>();
    status.started_unix_ms = static_cast<int64_t>(in.get<uint64_t>());
    status.sessions = in.get<uint32_t>();
    status.working = in.get<uint8_t>() != 0;
    status.stopping = in.get<uint8_t>() != 0;
    status.left = in.get<uint32_t>();
    status.busy = in.get_string(max_text_bytes);
    status.failed = in.get_string(max_text_bytes);
    const uint64_t count = in.get_count(30);
    for (uint64_t i = 0; i < count && in.ok(); ++i) status.epochs.push_back(get_epoch(in));
    status.carries = in.get<uint8_t>() != 0;
    const uint64_t carried = in.get_count(30);
    for (uint64_t i = 0; i < carried && in.ok(); ++i) status.carried.push_back(get_carried(in));
    return status;
}

void put_let_go(ByteWriter& out, const LetGo& message) {
    out.put(static_cast<uint8_t>(message.carries.has_value()));
    const auto place = message.carries.value_or(CarrierPlace{});
    out.put(place.world);
    out.put(place.agent);
    out.put(place.agents);
}

LetGo get_let_go(ByteReader& in) {
    const bool carries = in.get<uint8_t>() != 0;
    CarrierPlace place;
    place.world = in.get<uint64_t>();
    place.agent = in.get<uint32_t>();
    place.agents = in.get<uint32_t>();
    if (carries && place.agent >= place.agents) in.set_failed();
    return {carries ? std::optional(place) : std::nullopt};
}

AgentProcessMessage get_message(uint8_t type, ByteReader& in) {
    switch (type) {
        case 0:
            return SessionOpens{in.get_string(max_text_bytes)};
        case 1:
            return SessionOpened{};
        case 2:
            return StatusAsked{};
        case 3:
            return DrainAsked{};
        case 4:
            return EndAsked{in.get<uint64_t>()};
        case 5:
            return get_let_go(in);
        case 6:
            return get_agent_status(in);
        case 7: {
            const auto bytes = in.get_bytes(in.get<uint32_t>());
            return LineBytes{{bytes.begin(), bytes.end()}};
        }
        default:
            in.set_failed();
            return StatusAsked{};
    }
}

}  // namespace

std::vector<std::byte> encode(const AgentProcessMessage& message) {
    ByteWriter out;
    out.put(mark);
    out.put(protocol_version);
    out.put(static_cast<uint8_t>(message.index()));
    if (const auto* opens = std::get_if<SessionOpens>(&message)) out.put_string(opens->shared_dir);
    if (const auto* let_go = std::get_if<LetGo>(&message)) put_let_go(out, *let_go);
    if (const auto* line = std::get_if<LineBytes>(&message))
        out.put_string({reinterpret_cast<const char*>(line->bytes.data()), line->bytes.size()});
    if (const auto* stop = std::get_if<EndAsked>(&message)) out.put(stop->grace_ms);
    if (const auto* status = std::get_if<AgentStatus>(&message)) put_status(out, *status);
    return out.take();
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
    auto message = get_message(type, in);
    if (!ours || !in.at_end())
        return Status(Code::transport,
                      fmt::format("a message of {} bytes at the agent's socket is damaged", bytes.size()));
    return message;
}

}  // namespace tailrace::internal
