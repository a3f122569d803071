#include "protect/messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"
#include "format/stream_info.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t max_job_bytes = 100;

}  // namespace

template <class Codec>
void fields(Codec& codec, TableMessage& message) {
    auto& identity = message.identity;
    codec(identity.key);
    codec.text(identity.job, max_job_bytes);
    codec(identity.run_uid, identity.rank_count);
    codec.text(identity.shared_dir, max_part_directory_bytes);
    codec.list(message.parts, stream_info_bytes, [&](StreamInfo& part) {
        codec(part);
        codec.check(format::check_stream_info(part, identity.rank_count).ok());
    });
}

template <class Codec>
void fields(Codec& codec, AskMessage& message) {
    codec(message.key, message.number, message.offset, message.bytes);
}

template <class Codec>
void fields(Codec& codec, DataMessage& message) {
    codec(message.key, message.number);
}

template <class Codec>
void fields(Codec& codec, RefusedMessage& message) {
    codec(message.key, message.number, message.why);
}

template <class Codec>
void fields(Codec& codec, DoneMessage& message) {
    codec(message.key);
}

template <class Codec>
void fields(Codec& codec, UnprotectedMessage& message) {
    codec(message.key, message.why);
    codec.check(!message.why.ok());
}

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
    put_alternative(out, message);
    return out.take();
}

Result<ProtectMessage> decode_protect_message(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto mark = static_cast<std::byte>(in.get<uint8_t>());
    const auto type = in.get<uint8_t>();
    auto message = get_alternative<ProtectMessage>(in, type);
    if (mark == protect_message_mark && in.at_end()) return message;
    return Status(Code::transport,
                  fmt::format("a message of {} bytes and type {} between nodes of a set is damaged",
                              bytes.size(), type));
}

}  // namespace tailrace::internal
