// Redundancy: how nodes keep their captured parts safe from the loss of a node (setting
// `redundancy`, field `scheme` of a protect object). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

enum class Scheme : uint32_t {  // numbers as in protect objects
    none = 0,
    partner = 1,  // one other node of the set keeps a copy
    parity = 2,   // XOR over the set
    solomon = 3,  // Reed-Solomon over the set
};

struct Redundancy {
    Scheme scheme = Scheme::none;
    uint32_t losses = 0;  // how many nodes of a set may be lost: 1, or K of rs:K; 0 for none
    bool operator==(const Redundancy&) const = default;
};

// A set has at most this many nodes, so that any K below it can be coded in bytes.
inline constexpr uint32_t max_set_nodes = 128;

// "none", "partner", "xor" or "rs:K" with K from 1 to max_set_nodes - 1.
Result<Redundancy> parse_redundancy(std::string_view text);
std::string to_string(const Redundancy& redundancy);

}  // namespace tailrace::internal
