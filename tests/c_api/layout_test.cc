// The layout of the structs that programs allocate, against the list in layout.txt: programs that were
// compiled with an older tailrace.h go on to use it. structs_test.py sees to it that no field is missing
// here.
#include "c_api/layout.h"

#include <tailrace.h>

#include <sstream>
#include <string>

namespace {

std::string layout() {
    std::ostringstream lines;
    FIELD(tailrace_array, type);
    FIELD(tailrace_array, dimensions);
    FIELD(tailrace_array, global_shape);
    FIELD(tailrace_array, offset);
    FIELD(tailrace_array, local_shape);
    FIELD(tailrace_array, flags);
    FIELD(tailrace_array, memory_shape);
    FIELD(tailrace_array, memory_offset);
    FIELD(tailrace_array, memory_stride_bytes);
    FIELD(tailrace_array, memory_bytes);
    FIELD(tailrace_array, reserved);
    WHOLE(tailrace_array);
    FIELD(tailrace_epoch_info, epoch);
    FIELD(tailrace_epoch_info, run);
    FIELD(tailrace_epoch_info, state);
    FIELD(tailrace_epoch_info, why_code);
    FIELD(tailrace_epoch_info, why);
    FIELD(tailrace_epoch_info, captured_bytes);
    FIELD(tailrace_epoch_info, blocked_seconds);
    FIELD(tailrace_epoch_info, flush_seconds);
    FIELD(tailrace_epoch_info, in_local);
    FIELD(tailrace_epoch_info, in_shared);
    FIELD(tailrace_epoch_info, losses_survived);
    FIELD(tailrace_epoch_info, reserved);
    WHOLE(tailrace_epoch_info);
    FIELD(tailrace_files_info, name);
    FIELD(tailrace_files_info, bytes);
    FIELD(tailrace_files_info, rank);
    FIELD(tailrace_files_info, rights);
    FIELD(tailrace_files_info, reserved);
    WHOLE(tailrace_files_info);
    FIELD(tailrace_region_info, name);
    FIELD(tailrace_region_info, bytes);
    FIELD(tailrace_region_info, is_array);
    FIELD(tailrace_region_info, type);
    FIELD(tailrace_region_info, dimensions);
    FIELD(tailrace_region_info, global_shape);
    FIELD(tailrace_region_info, offset);
    FIELD(tailrace_region_info, local_shape);
    FIELD(tailrace_region_info, flags);
    FIELD(tailrace_region_info, reserved);
    WHOLE(tailrace_region_info);
    return lines.str();
}

TEST(LayoutTest, StructsOfProgramsAreAsTheyWere) {
    expect_kept(layout(), TAILRACE_LAYOUT_LIST);
}

}  // namespace
