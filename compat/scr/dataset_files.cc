#include "dataset_files.h"

#include "bypass_files.h"
#include "cached_files.h"

namespace scr_on_tailrace {

std::unique_ptr<Output> begin_output(const Place& place, bool bypass) {
    return bypass ? begin_bypass_output(place) : begin_cached_output(place);
}

std::unique_ptr<Restart> begin_restart(const Place& place, bool bypass, uint64_t id) {
    return bypass ? begin_bypass_restart(place, id) : begin_cached_restart(place, id);
}

std::vector<Listed> of_own_ranks(
    const Place& place, uint64_t id,
    const std::function<std::vector<Listed>(const tailrace::Reader&, uint32_t rank)>& files_of) {
    const auto reader = place.session.open_epoch(id);
    std::vector<Listed> all;
    for (uint32_t rank = place.rank; rank < reader.rank_count(); rank += place.rank_count) {
        const auto files = files_of(reader, rank);
        all.insert(all.end(), files.begin(), files.end());
    }
    return all;
}

}  // namespace scr_on_tailrace
