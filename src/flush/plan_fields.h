// The fields of a NodeOffer as it travels in messages (base/bytes.h). Pure.
#pragma once

#include "flush/plan.h"
#include "format/codec.h"

namespace tailrace::internal {

inline constexpr uint64_t least_offer_bytes = 4 + 8;

template <class Codec>
void fields(Codec& codec, NodeOffer& offer) {
    codec.number(offer.node);
    codec.list(offer.streams, stream_info_bytes);
}

}  // namespace tailrace::internal
