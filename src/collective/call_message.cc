#include "collective/call_message.h"

#include "base/bytes.h"

namespace tailrace::internal::collective {

template <class Codec>
void fields(Codec& codec, CallMessage& message) {
    codec.choice(message.kind, CallMessage::Kind::taken);
    codec(message.failed, message.granted, message.answer, message.shared);
    codec(message.step, message.window, message.count, message.bytes, message.slot);
    if (message.shared) {
        fields(codec, message.list);
        fields(codec, message.data);
    }
    codec.list(message.ids, 8, [&](uint64_t& id) { codec(id); });
    codec.list(message.runs, 16, [&](Request& run) { codec(run.offset, run.bytes); });
}

std::vector<std::byte> encode(const CallMessage& message) {
    ByteWriter writer;
    put_fields(writer, message);
    return writer.take();
}

Result<CallMessage> decode_call_message(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    CallMessage message;
    get_fields(reader, message);
    if (!reader.at_end())
        return Status(Code::transport, "a collective call received a message that does not belong to it");
    return message;
}

}  // namespace tailrace::internal::collective
