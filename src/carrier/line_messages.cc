#include "carrier/line_messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"

namespace tailrace::internal::line {

namespace {

// Two statuses must fit a message.
constexpr size_t most_bytes_of_sentence = 4096;

bool get_flag(ByteReader& in) {
    const auto value = in.get<uint8_t>();
    if (value > 1) in.set_failed();
    return value == 1;
}
void put_all(ByteWriter& out, const std::vector<std::byte>& bytes) {
    out.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
std::vector<std::byte> get_all(ByteReader& in) {
    const auto bytes = in.get_bytes(in.get<uint32_t>());
    return {bytes.begin(), bytes.end()};
}

void put_body(ByteWriter& out, const JobPiece& m) {
    out.put(static_cast<uint8_t>(m.last));
    put_all(out, m.bytes);
}
void put_body(ByteWriter& out, const Join& m) {
    out.put(m.session);
    out.put(m.node);
    out.put(m.rank);
}
void put_body(ByteWriter& out, const BeginPiece& m) {
    out.put(static_cast<uint8_t>(m.last));
    put_all(out, m.bytes);
}
void put_body(ByteWriter& out, const Damaged& m) {
    put(out, m.key);
}
void put_body(ByteWriter&, const Close&) {}
void put_body(ByteWriter& out, const Goodbye& m) {
    out.put(static_cast<uint8_t>(m.give_up));
}
void put_body(ByteWriter& out, const Mail& m) {
    put_all(out, m.bytes);
}
void put_body(ByteWriter& out, const Answer& m) {
    put(out, m.status, most_bytes_of_sentence);
}
void put_body(ByteWriter& out, const Idle& m) {
    put(out, m.recovery_failure, most_bytes_of_sentence);
    put(out, m.why_ended, most_bytes_of_sentence);
}
void put_body(ByteWriter&, const Ended&) {}

Message get_body(ByteReader& in, uint8_t kind) {
    switch (kind) {
        case 0: {
            JobPiece m;
            m.last = get_flag(in);
            m.bytes = get_all(in);
            return m;
        }
        case 1: {
            Join m;
            m.session = in.get<uint64_t>();
            m.node = in.get<uint32_t>();
            m.rank = in.get<uint32_t>();
            return m;
        }
        case 2: {
            BeginPiece m;
            m.last = get_flag(in);
            m.bytes = get_all(in);
            return m;
        }
        case 3:
            return Damaged{get_key(in)};
        case 4:
            return Close{};
        case 5:
            return Goodbye{get_flag(in)};
        case 6:
            return Mail{get_all(in)};
        case 7:
            return Answer{get_status(in)};
        case 8: {
            Idle m;
            m.recovery_failure = get_status(in);
            m.why_ended = get_status(in);
            return m;
        }
        case 9:
            return Ended{};
        default:
            in.set_failed();
            return Close{};
    }
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
    ByteWriter out;
    out.put(static_cast<uint8_t>(message.index()));
    std::visit([&](const auto& body) { put_body(out, body); }, message);
    return out.take();
}

Result<Message> decode(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto kind = in.get<uint8_t>();
    Message message = get_body(in, kind);
    if (!in.at_end())
        return Status(Code::transport,
                      fmt::format("a message between a rank and its node's agent could not be decoded "
                                  "({} bytes, kind {})",
                                  bytes.size(), kind));
    return message;
}

}  // namespace tailrace::internal::line
