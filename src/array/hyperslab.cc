#include "array/hyperslab.h"

#include <algorithm>
#include <cstring>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

// In how many of the trailing dimensions `part` is as long as `whole`. Along these its rows follow
// each other without a gap, so they merge into one run.
size_t full_trailing_dimensions(const Box& whole, const Box& part) {
    size_t full = 0;
    while (full < part.shape.size()) {
        const size_t d = part.shape.size() - 1 - full;
        if (part.shape[d] != whole.shape[d]) break;
        ++full;
    }
    return full;
}

// The distance, in elements, between neighbours along each dimension of an array laid out as `box`.
std::vector<uint64_t> strides(const Box& box) {
    std::vector<uint64_t> stride(box.shape.size(), 1);
    for (size_t d = box.shape.size(); d-- > 1;) stride[d - 1] = stride[d] * box.shape[d];
    return stride;
}

uint64_t start_of(const Box& part, const Box& whole, const std::vector<uint64_t>& stride) {
    uint64_t start = 0;
    for (size_t d = 0; d < part.shape.size(); ++d) start += (part.offset[d] - whole.offset[d]) * stride[d];
    return start;
}

[[maybe_unused]] bool contains(const Box& whole, const Box& part) {
    if (whole.shape.size() != part.shape.size()) return false;
    for (size_t d = 0; d < part.shape.size(); ++d) {
        if (part.offset[d] < whole.offset[d]) return false;
        const uint64_t from = part.offset[d] - whole.offset[d];
        if (from > whole.shape[d] || part.shape[d] > whole.shape[d] - from) return false;
    }
    return true;
}

// The first of the dimensions that a run which is contiguous in both spans.
size_t first_run_dimension(const Box& part, const Box& a, const Box& b) {
    const size_t full = std::min(full_trailing_dimensions(a, part), full_trailing_dimensions(b, part));
    return full == part.shape.size() ? 0 : part.shape.size() - 1 - full;
}

uint64_t elements_from(const Box& part, size_t dimension) {
    uint64_t count = 1;
    for (size_t d = dimension; d < part.shape.size(); ++d) count *= part.shape[d];
    return count;
}

// The loop under everything here: calls visit(start in a, start in b, count) for every run that is
// contiguous in both. A run spans the dimensions from `run_dimension` on. An odometer counts
// through those before it.
template <class Visit>
void walk(const Box& part, const Box& a, const Box& b, const Visit& visit) {
    INVARIANT(contains(a, part) && contains(b, part));
    if (part.elements() == 0) return;
    const auto stride_a = strides(a);
    const auto stride_b = strides(b);
    uint64_t at_a = start_of(part, a, stride_a);
    uint64_t at_b = start_of(part, b, stride_b);

    const size_t run_dimension = first_run_dimension(part, a, b);
    const uint64_t count = elements_from(part, run_dimension);
    std::vector<uint64_t> index(run_dimension, 0);
    while (true) {
        visit(at_a, at_b, count);
        size_t d = run_dimension;
        while (d > 0) {
            --d;
            at_a += stride_a[d];
            at_b += stride_b[d];
            if (++index[d] < part.shape[d]) break;
            at_a -= stride_a[d] * part.shape[d];
            at_b -= stride_b[d] * part.shape[d];
            index[d] = 0;
            if (d == 0) return;
        }
        if (run_dimension == 0) return;
    }
}

}  // namespace

uint64_t Box::elements() const {
    uint64_t count = 1;
    for (uint64_t extent : shape) count *= extent;
    return count;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
    INVARIANT(a.shape.size() == b.shape.size());
    Box common;
    common.offset.reserve(a.shape.size());
    common.shape.reserve(a.shape.size());
    for (size_t d = 0; d < a.shape.size(); ++d) {
        const uint64_t from = std::max(a.offset[d], b.offset[d]);
        const uint64_t to = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
        if (from >= to) return std::nullopt;
        common.offset.push_back(from);
        common.shape.push_back(to - from);
    }
    return common;
}

std::vector<Box> subtract(const Box& from, const Box& taken) {
    std::vector<Box> left;
    const bool empty = std::find(from.shape.begin(), from.shape.end(), 0) != from.shape.end();
    if (empty) return left;
    const auto common = intersect(from, taken);
    if (!common) {
        left.push_back(from);
        return left;
    }
    // Dimension by dimension, cut off what lies before and after the common part, and narrow the
    // rest to the common part's extent.
    Box rest = from;
    for (size_t d = 0; d < from.shape.size(); ++d) {
        const uint64_t rest_end = rest.offset[d] + rest.shape[d];
        const uint64_t common_end = common->offset[d] + common->shape[d];
        if (rest.offset[d] < common->offset[d]) {
            Box before = rest;
            before.shape[d] = common->offset[d] - rest.offset[d];
            left.push_back(std::move(before));
        }
        if (common_end < rest_end) {
            Box after = rest;
            after.offset[d] = common_end;
            after.shape[d] = rest_end - common_end;
            left.push_back(std::move(after));
        }
        rest.offset[d] = common->offset[d];
        rest.shape[d] = common->shape[d];
    }
    return left;
}

void for_each_run(const Box& whole, const Box& part,
                  const std::function<void(uint64_t start_element, uint64_t element_count)>& visit) {
    walk(part, whole, whole, [&](uint64_t start, uint64_t, uint64_t count) { visit(start, count); });
}

void for_each_common_run(
    const Box& part, const Box& a, const Box& b,
    const std::function<void(uint64_t start_in_a, uint64_t start_in_b, uint64_t element_count)>& visit) {
    walk(part, a, b, visit);
}

uint64_t common_run_elements(const Box& part, const Box& a, const Box& b) {
    return elements_from(part, first_run_dimension(part, a, b));
}

void copy_box(const Box& part, const Box& source_box, std::span<const std::byte> source,
              const Box& target_box, std::span<std::byte> target, uint64_t element_bytes) {
    walk(part, source_box, target_box, [&](uint64_t from, uint64_t to, uint64_t count) {
        COSTLY_INVARIANT((from + count) * element_bytes <= source.size());
        COSTLY_INVARIANT((to + count) * element_bytes <= target.size());
        std::memcpy(target.data() + to * element_bytes, source.data() + from * element_bytes,
                    count * element_bytes);
    });
}

}  // namespace tailrace::internal
