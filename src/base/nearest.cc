#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

constexpr size_t longest_slip = 256;  // the distance takes quadratic time, and longer texts are no slips

char folded(char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

}  // namespace

// Restricted Damerau-Levenshtein distance, by rows: before_last, last and current hold the
// distances of the first i - 2, i - 1 and i characters of `a` to every beginning of `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), current(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) current[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        before_last.swap(last);
        last.swap(current);
        current[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const bool same = folded(a[i - 1]) == folded(b[j - 1]);
            current[j] = std::min({last[j] + 1, current[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
            const bool swapped = i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                                 folded(a[i - 2]) == folded(b[j - 1]);
            if (swapped) current[j] = std::min(current[j], before_last[j - 2] + 1);
        }
    }
    return current[b.size()];
}

std::string_view nearest_name(std::string_view wrong, std::span<const std::string_view> names) {
    INVARIANT(!names.empty());
    wrong = wrong.substr(0, longest_slip);
    return *std::min_element(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
        return edit_distance(wrong, a) < edit_distance(wrong, b);
    });
}

bool is_near(std::string_view wrong, std::string_view right) {
    return wrong.size() <= longest_slip && 2 * edit_distance(wrong, right) <= wrong.size();
}

}  // namespace tailrace::internal
