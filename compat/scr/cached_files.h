// cached_files.h - the cached way of dataset_files.h.
#pragma once

#include "dataset_files.h"

namespace scr_on_tailrace {

std::unique_ptr<Output> begin_cached_output(const Place& place);
std::unique_ptr<Restart> begin_cached_restart(const Place& place, uint64_t id);

}  // namespace scr_on_tailrace
