#include "carrier/line_messages.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status_codec.h"
#include "format/codec.h"

namespace tailrace::internal::line {

namespace {

// Two statuses must fit a message.
constexpr size_t most_bytes_of_sentence = 4096;

}  // namespace

template <class Codec>
void fields(Codec& codec, JobPiece& m) {
    codec(m.last);
    codec.bytes(m.bytes);
}

template <class Codec>
void fields(Codec& codec, Join& m) {
    codec(m.session, m.node, m.rank);
}

template <class Codec>
void fields(Codec& codec, BeginPiece& m) {
    codec(m.last);
    codec.bytes(m.bytes);
}

template <class Codec>
void fields(Codec& codec, Damaged& m) {
    codec(m.key);
}

template <class Codec>
void fields(Codec& codec, Goodbye& m) {
    codec(m.give_up);
}

template <class Codec>
void fields(Codec& codec, Mail& m) {
    codec.bytes(m.bytes);
    codec(m.last);
}

template <class Codec>
void fields(Codec& codec, Answer& m) {
    codec.sentence(m.status, most_bytes_of_sentence);
}

template <class Codec>
void fields(Codec& codec, Idle& m) {
    codec.sentence(m.recovery_failure, most_bytes_of_sentence);
    codec.sentence(m.why_ended, most_bytes_of_sentence);
}

std::vector<std::byte> encode(const Message& message) {
    ByteWriter out;
    put_alternative(out, message);
    return out.take();
}

Result<Message> decode(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    const auto kind = in.get<uint8_t>();
    auto message = get_alternative<Message>(in, kind);
    if (!in.at_end())
        return Status(Code::transport,
                      fmt::format("a message between a rank and its node's agent could not be decoded "
                                  "({} bytes, kind {})",
                                  bytes.size(), kind));
    return message;
}

}  // namespace tailrace::internal::line
