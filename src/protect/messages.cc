#include "protect/messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"
#include "format/stream_info.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_job_bytes = 100;

void put_body(ByteWriter& out, const TableMessage& message) {
    const auto& identity = message.identity;
    put(out, identity.key);
    out.put_string(identity.job);
    out.put(identity.run_uid);
    out.put(identity.rank_count);
    out.put_string(identity.shared_dir);
    out.put(static_cast<uint64_t>(message.parts.size()));
    for (const auto& part : message.parts) put(out, part);
}
void get_body(ByteReader& in, TableMessage& message) {
    auto& identity = message.identity;
    identity.key = get_key(in);
    identity.job = in.get_string(max_job_bytes);
    identity.run_uid = in.get<uint64_t>();
    identity.rank_count = in.get<uint32_t>();
    identity.shared_dir = in.get_string(max_part_directory_bytes);
    message.parts.resize(in.get_count(stream_info_bytes));
    for (auto& part : message.parts) {
        part = get_stream(in);
        if (!format::check_stream_info(part, identity.rank_count).ok()) in.set_failed();
    }
}

void put_body(ByteWriter& out, const AskMessage& message) {
    put(out, message.key);
    out.put(message.number);
    out.put(message.offset);
    out.put(message.bytes);
}
void get_body(ByteReader& in, AskMessage& message) {
    message.key = get_key(in);
    message.number = in.get<uint32_t>();
    message.offset = in.get<uint64_t>();
    message.bytes = in.get<uint64_t>();
}

template <class Answer>
void put_answer(ByteWriter& out, const Answer& message) {
    put(out, message.key);
    out.put(message.number);
}
template <class Answer>
void get_answer(ByteReader& in, Answer& message) {
    message.key = get_key(in);
    message.number = in.get<uint32_t>();
}
void put_body(ByteWriter& out, const DataMessage& message) {
    put_answer(out, message);
}
void get_body(ByteReader& in, DataMessage& message) {
    get_answer(in, message);
}
void put_body(ByteWriter& out, const RefusedMessage& message) {
    put_answer(out, message);
    put(out, message.why);
}
void get_body(ByteReader& in, RefusedMessage& message) {
    get_answer(in, message);
    message.why = get_status(in);
}

void put_body(ByteWriter& out, const DoneMessage& message) {
    put(out, message.key);
}
void get_body(ByteReader& in, DoneMessage& message) {
    message.key = get_key(in);
}

void put_body(ByteWriter& out, const UnprotectedMessage& message) {
    put(out, message.key);
    put(out, message.why);
}
void get_body(ByteReader& in, UnprotectedMessage& message) {
    message.key = get_key(in);
    message.why = get_status(in);
    if (message.why.ok()) in.set_failed();
}

// Reads the body of a message of type `type`, which is its index in the variant.
template <size_t candidate = 0>
ProtectMessage get_message(size_t type, ByteReader& in) {
    if constexpr (candidate < std::variant_size_v<ProtectMessage>) {
        if (type == candidate) {
            std::variant_alternative_t<candidate, ProtectMessage> message;
            get_body(in, message);
            return message;
        }
        return get_message<candidate + 1>(type, in);
    } else {
        in.set_failed();
        return DoneMessage();
    }
}

}  // namespace

bool is_protect_message(std::span<const std::byte> message) {
    return !message.empty() && message.front() == protect_message_mark;
}

EpochKey key_of(const ProtectMessage& message) {
    return std::visit(
        [](const auto& body) -> EpochKey {
            if constexpr (std::is_same_v<std::decay_t<decltype(body)>, TableMessage>)
                return body.identity.key;
            else
                return body.key;
        },
        message);
}

std::vector<std::byte> encode(const ProtectMessage& message) {
    ByteWriter out;
    out.put(std::to_integer<uint8_t>(protect_message_mark));
    out.put(static_cast<uint8_t>(message.index()));
    std::visit([&](const auto& body) { put_body(out, body); }, message);
    return out.take();
}

Result<ProtectMessage> decode_protect_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto mark = static_cast<std::byte>(in.get<uint8_t>());
    const auto type = in.get<uint8_t>();
    ProtectMessage message = get_message(type, in);
    if (mark == protect_message_mark && in.at_end()) return message;
    return Status(Code::transport,
                  fmt::format("a message of {} bytes and type {} between nodes of a set is damaged",
                              bytes.size(), type));
}

}  // namespace tailrace::internal
