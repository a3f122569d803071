// A Status as it is sent: one byte of code, and the sentence. Pure.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace tailrace::internal {

inline constexpr uint32_t most_sentence_bytes = 1 << 16;

// A sentence of more than `most_bytes` is cut.
void put(ByteWriter& out, const Status& status, size_t most_bytes = most_sentence_bytes);

// Fails the reader if there is no Status, or an unknown code, or an ok with a sentence.
Status get_status(ByteReader& in);
inline void get(ByteReader& in, Status& status) {
    status = get_status(in);
}

}  // namespace tailrace::internal
