// Converts between the structs of tailrace.h and those of the core.
#include <algorithm>
#include <cstring>
#include <span>

#include "c_api/objects.h"

namespace tailrace::internal {

static_assert(static_cast<int>(ElementType::bytes) == TAILRACE_BYTES);
static_assert(static_cast<int>(ElementType::int8) == TAILRACE_INT8);
static_assert(static_cast<int>(ElementType::uint8) == TAILRACE_UINT8);
static_assert(static_cast<int>(ElementType::int16) == TAILRACE_INT16);
static_assert(static_cast<int>(ElementType::uint16) == TAILRACE_UINT16);
static_assert(static_cast<int>(ElementType::int32) == TAILRACE_INT32);
static_assert(static_cast<int>(ElementType::uint32) == TAILRACE_UINT32);
static_assert(static_cast<int>(ElementType::int64) == TAILRACE_INT64);
static_assert(static_cast<int>(ElementType::uint64) == TAILRACE_UINT64);
static_assert(static_cast<int>(ElementType::float16) == TAILRACE_FLOAT16);
static_assert(static_cast<int>(ElementType::bfloat16) == TAILRACE_BFLOAT16);
static_assert(static_cast<int>(ElementType::float32) == TAILRACE_FLOAT32);
static_assert(static_cast<int>(ElementType::float64) == TAILRACE_FLOAT64);
static_assert(static_cast<int>(ElementType::complex64) == TAILRACE_COMPLEX64);
static_assert(static_cast<int>(ElementType::complex128) == TAILRACE_COMPLEX128);
static_assert(static_cast<int>(ElementType::boolean) == TAILRACE_BOOL);
static_assert(element_type_count == TAILRACE_BOOL + 1);
static_assert(max_dimensions == TAILRACE_MAX_DIMENSIONS);

static_assert(static_cast<int>(EpochState::unknown) == TAILRACE_STATE_UNKNOWN);
static_assert(static_cast<int>(EpochState::captured) == TAILRACE_STATE_CAPTURED);
static_assert(static_cast<int>(EpochState::flushing) == TAILRACE_STATE_FLUSHING);
static_assert(static_cast<int>(EpochState::committed) == TAILRACE_STATE_COMMITTED);
static_assert(static_cast<int>(EpochState::kept_local) == TAILRACE_STATE_KEPT_LOCAL);
static_assert(static_cast<int>(EpochState::failed) == TAILRACE_STATE_FAILED);
static_assert(static_cast<int>(EpochState::protected_) == TAILRACE_STATE_PROTECTED);

namespace {

// A program that was built for a later version, or that left its struct uninitialised, must not get
// something different from what it asks for.
Status all_zero(std::span<const uint64_t> reserved, const char* what) {
    if (std::all_of(reserved.begin(), reserved.end(), [](uint64_t word) { return word == 0; })) return {};
    return Status(Code::invalid_argument,
                  fmt::format("the reserved fields of a {0} are not zero: begin with \"{0} array = {{0}};\", "
                              "or use the library that the program was built for; nothing was done",
                              what));
}

}  // namespace

Result<ElementType> to_type(const tailrace_type& given) {
    const int type = number_of(given);
    if (type >= TAILRACE_BYTES && type <= TAILRACE_BOOL) return static_cast<ElementType>(type);
    return Status(Code::invalid_argument,
                  fmt::format("array type {} is not a tailrace_type; nothing was done", type));
}

Result<ArrayPiece> to_piece(const tailrace_array* array) {
    TAILRACE_TRY(not_null(array, "array"));
    TAILRACE_ASSIGN(const auto type, to_type(array->type));
    if (array->dimensions < 1 || array->dimensions > TAILRACE_MAX_DIMENSIONS)
        return Status(Code::invalid_argument,
                      fmt::format("an array of {} dimensions: 1 to {} are possible; nothing was done",
                                  array->dimensions, TAILRACE_MAX_DIMENSIONS));
    TAILRACE_TRY(not_null(array->global_shape, "array.global_shape"));
    TAILRACE_TRY(not_null(array->offset, "array.offset"));
    TAILRACE_TRY(not_null(array->local_shape, "array.local_shape"));
    if ((array->flags & ~uint64_t{TAILRACE_ARRAY_GAPS | TAILRACE_ARRAY_OVERLAP}) != 0)
        return Status(Code::invalid_argument,
                      fmt::format("array.flags is {:#x}, but only TAILRACE_ARRAY_GAPS and "
                                  "TAILRACE_ARRAY_OVERLAP are known; nothing was done",
                                  array->flags));
    TAILRACE_TRY(all_zero(array->reserved, "tailrace_array"));
    auto vector_of = [&](const uint64_t* values) {
        return std::vector<uint64_t>(values, values + array->dimensions);
    };
    ArrayPiece piece{type, vector_of(array->global_shape), vector_of(array->offset),
                     vector_of(array->local_shape)};
    piece.may_have_gaps = (array->flags & TAILRACE_ARRAY_GAPS) != 0;
    piece.may_overlap = (array->flags & TAILRACE_ARRAY_OVERLAP) != 0;
    TAILRACE_TRY(check_array_piece(piece));
    return piece;
}

MemoryLayout to_layout(const tailrace_array& array) {
    const auto vector_of = [&](const uint64_t* values) {
        return values == nullptr ? std::vector<uint64_t>()
                                 : std::vector<uint64_t>(values, values + array.dimensions);
    };
    return {vector_of(array.memory_shape), vector_of(array.memory_offset),
            vector_of(array.memory_stride_bytes), array.memory_bytes};
}

namespace {

// Copies as many whole UTF-8 characters as fit.
void copy_cut(const std::string& source, char* target, size_t target_bytes) {
    size_t bytes = std::min(source.size(), target_bytes - 1);
    auto continues = [&](size_t at) { return (static_cast<unsigned char>(source[at]) & 0xc0) == 0x80; };
    while (bytes > 0 && bytes < source.size() && continues(bytes)) --bytes;
    std::memcpy(target, source.data(), bytes);
    target[bytes] = '\0';
}

}  // namespace

void to_c(const EpochInfo& info, tailrace_epoch_info& out) {
    out = {};
    out.epoch = info.epoch;
    out.run = info.run;
    out.state = static_cast<tailrace_state>(info.state);
    out.why_code = static_cast<tailrace_code>(info.why.code());
    copy_cut(info.why.ok() ? info.note : info.why.message(), out.why, sizeof out.why);
    out.captured_bytes = info.captured_bytes;
    out.blocked_seconds = info.blocked_seconds;
    out.flush_seconds = info.flush_seconds;
    out.in_local = info.in_local ? 1 : 0;
    out.in_shared = info.in_shared ? 1 : 0;
    out.losses_survived = info.losses_survived;
}

void to_c(const Region& region, tailrace_region_info& out) {
    out = {};
    out.name = region.name.c_str();
    out.bytes = region.bytes;
    if (!region.array) return;
    const ArrayPiece& piece = *region.array;
    out.is_array = 1;
    out.type = static_cast<tailrace_type>(piece.type);
    out.dimensions = static_cast<int>(piece.global_shape.size());
    std::copy(piece.global_shape.begin(), piece.global_shape.end(), out.global_shape);
    std::copy(piece.offset.begin(), piece.offset.end(), out.offset);
    std::copy(piece.local_shape.begin(), piece.local_shape.end(), out.local_shape);
    out.flags = (piece.may_have_gaps ? TAILRACE_ARRAY_GAPS : 0u) |
                (piece.may_overlap ? TAILRACE_ARRAY_OVERLAP : 0u) |
                (piece.is_list ? TAILRACE_ARRAY_LIST : 0u);
}

}  // namespace tailrace::internal
