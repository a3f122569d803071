#include "collective/call_message.h"

#include "base/bytes.h"

namespace tailrace::internal::collective {

std::vector<std::byte> encode(const CallMessage& message) {
    ByteWriter writer;
    writer.put(static_cast<uint8_t>(message.kind));
    for (const bool flag : {message.failed, message.granted, message.answer, message.shared})
        writer.put(static_cast<uint8_t>(flag));
    writer.put(message.step);
    writer.put(message.window);
    writer.put(message.count);
    writer.put(message.bytes);
    writer.put(message.slot);
    if (message.shared) {
        put(writer, message.list);
        put(writer, message.data);
    }
    writer.put(uint64_t{message.ids.size()});
    for (const uint64_t id : message.ids) writer.put(id);
    writer.put(uint64_t{message.runs.size()});
    for (const Request& run : message.runs) {
        writer.put(run.offset);
        writer.put(run.bytes);
    }
    return writer.take();
}

Result<CallMessage> decode_call_message(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    CallMessage message;
    const auto kind = reader.get<uint8_t>();
    message.kind = static_cast<CallMessage::Kind>(kind);
    for (bool* flag : {&message.failed, &message.granted, &message.answer, &message.shared})
        *flag = reader.get<uint8_t>() != 0;
    message.step = reader.get<uint64_t>();
    message.window = reader.get<uint64_t>();
    message.count = reader.get<uint64_t>();
    message.bytes = reader.get<uint64_t>();
    message.slot = reader.get<uint32_t>();
    if (message.shared) {
        message.list = get_shared_name(reader);
        message.data = get_shared_name(reader);
    }
    message.ids.resize(reader.get_count(8));
    for (uint64_t& id : message.ids) id = reader.get<uint64_t>();
    message.runs.resize(reader.get_count(16));
    for (Request& run : message.runs) {
        run.offset = reader.get<uint64_t>();
        run.bytes = reader.get<uint64_t>();
    }
    if (!reader.at_end() || kind > static_cast<uint8_t>(CallMessage::Kind::taken))
        return Status(Code::transport, "a collective call received a message that does not belong to it");
    return message;
}

}  // namespace tailrace::internal::collective
