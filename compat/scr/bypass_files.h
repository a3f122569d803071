// bypass_files.h - the bypass way of dataset_files.h.
#pragma once

#include "dataset_files.h"

namespace scr_on_tailrace {

std::unique_ptr<Output> begin_bypass_output(const Place& place);
std::unique_ptr<Restart> begin_bypass_restart(const Place& place, uint64_t id);

}  // namespace scr_on_tailrace
