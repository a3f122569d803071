#include "together.h"

#include <algorithm>

namespace on_tailrace {

bool Together::guarded(const char* call, const std::function<void()>& work) const {
    try {
        work();
        return true;
    } catch (const std::exception& error) {
        complain(call, error.what());
    }
    return false;
}

bool Together::everywhere(const char* call, bool mine) {
    const bool all = ranks_->all(mine);
    if (!all && mine && ranks_->rank() == 0) complain(call, "another rank has failed");
    return all;
}

bool Together::everybody(const char* call, const std::function<void()>& work) {
    std::string why;
    try {
        work();
    } catch (const std::exception& error) {
        why = error.what();
        if (why.empty()) why = "it failed";
    }
    const bool all = ranks_->all(why.empty());
    if (all) return true;
    const auto reasons = ranks_->gathered(why);
    const auto failed = [](const std::string& reason) { return !reason.empty(); };
    const auto first = std::find_if(reasons.begin(), reasons.end(), failed);
    if (first == reasons.end()) return false;  // these are not rank 0's
    const auto others = std::count_if(first, reasons.end(), failed) - 1;
    const auto rank = first - reasons.begin();
    complain(call, (reasons.size() > 1 ? "rank " + std::to_string(rank) + ": " : "") + *first +
                       (others > 0 ? "; on " + std::to_string(others) + " more of the ranks, too" : ""));
    return false;
}

bool Together::on_first(const char* call, const std::function<void()>& work) {
    const bool mine = ranks_->rank() != 0 || guarded(call, work);
    return ranks_->all(mine);
}

std::optional<std::string> Together::from_first(const char* call, const std::function<std::string()>& work) {
    std::string made;
    if (!on_first(call, [&] { made = work(); })) return std::nullopt;
    return ranks_->of_first(made);
}

}  // namespace on_tailrace
