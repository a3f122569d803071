#include "base/status_codec.h"

#include "base/text.h"

namespace tailrace::internal {

void put(ByteWriter& out, const Status& status, size_t most_bytes) {
    out.put(static_cast<uint8_t>(status.code()));
    out.put_string(cut_text(status.message(), most_bytes));
}

Status get_status(ByteReader& in) {
    const auto code = in.get<uint8_t>();
    std::string sentence = in.get_string(most_sentence_bytes);
    if (code > static_cast<uint8_t>(Code::aborted) || (code == 0 && !sentence.empty())) in.set_failed();
    if (!in.ok() || code == 0) return {};
    return Status(static_cast<Code>(code), std::move(sentence));
}

}  // namespace tailrace::internal
