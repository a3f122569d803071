#include "together.h"

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
