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

}  // namespace scr_on_tailrace
