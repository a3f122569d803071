// A Status as it travels: one byte of code, and the sentence. Pure.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"

namespace tailrace::internal {

inline constexpr uint32_t most_sentence_bytes = 1 << 16;

// A sentence of more than `most_bytes` is cut.
void put(ByteWriter& out, const Status& status, size_t most_bytes = most_sentence_bytes);

// Fails the reader when there is no Status, a code that nobody knows, or a sentence of an ok.
Status get_status(ByteReader& in);

}  // namespace tailrace::internal
