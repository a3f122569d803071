#include "collective/word.h"

#include "base/bytes.h"

namespace tailrace::collective {

std::vector<std::byte> encode(const Word& word) {
    ByteWriter writer;
    writer.put(static_cast<uint8_t>(word.kind));
    for (const bool flag : {word.failed, word.granted, word.answer, word.shared})
        writer.put(static_cast<uint8_t>(flag));
    writer.put(word.step);
    writer.put(word.window);
    writer.put(word.count);
    writer.put(word.bytes);
    writer.put(word.slot);
    if (word.shared) {
        put(writer, word.list);
        put(writer, word.data);
    }
    writer.put(uint64_t{word.ids.size()});
    for (const uint64_t id : word.ids) writer.put(id);
    writer.put(uint64_t{word.runs.size()});
    for (const Request& run : word.runs) {
        writer.put(run.offset);
        writer.put(run.bytes);
    }
    return writer.take();
}

Result<Word> decode_word(std::span<const std::byte> bytes) {
    ByteReader reader(bytes);
    Word word;
    const auto kind = reader.get<uint8_t>();
    word.kind = static_cast<Word::Kind>(kind);
    for (bool* flag : {&word.failed, &word.granted, &word.answer, &word.shared})
        *flag = reader.get<uint8_t>() != 0;
    word.step = reader.get<uint64_t>();
    word.window = reader.get<uint64_t>();
    word.count = reader.get<uint64_t>();
    word.bytes = reader.get<uint64_t>();
    word.slot = reader.get<uint32_t>();
    if (word.shared) {
        word.list = get_shared_name(reader);
        word.data = get_shared_name(reader);
    }
    word.ids.resize(reader.get_count(8));
    for (uint64_t& id : word.ids) id = reader.get<uint64_t>();
    word.runs.resize(reader.get_count(16));
    for (Request& run : word.runs) {
        run.offset = reader.get<uint64_t>();
        run.bytes = reader.get<uint64_t>();
    }
    if (!reader.at_end() || kind > static_cast<uint8_t>(Word::Kind::taken))
        return Status(Code::transport, "a collective call received a message that is none of its own");
    return word;
}

}  // namespace tailrace::collective
