// The layout of the structs that programs allocate, against the list in layout.txt: programs that were
// compiled with an older tailrace.h go on to use it. A field is added by taking words from `reserved`; its
// line is added to the list, and no other line changes but that of `reserved`.
#include <gtest/gtest.h>
#include <tailrace.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

namespace {

#define FIELD(type, name) \
    line(#type "." #name, offsetof(type, name), sizeof(static_cast<type*>(nullptr)->name))

std::string layout() {
    std::ostringstream lines;
    const auto line = [&](const char* name, size_t offset, size_t bytes) {
        lines << name << " at " << offset << ", " << bytes << " bytes\n";
    };
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
    line("tailrace_array", 0, sizeof(tailrace_array));
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
    FIELD(tailrace_epoch_info, reserved);
    line("tailrace_epoch_info", 0, sizeof(tailrace_epoch_info));
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
    line("tailrace_region_info", 0, sizeof(tailrace_region_info));
    return lines.str();
}

TEST(LayoutTest, StructsOfProgramsAreAsTheyWere) {
    std::ifstream file(TAILRACE_LAYOUT_LIST);
    ASSERT_TRUE(file.is_open()) << TAILRACE_LAYOUT_LIST;
    std::ostringstream kept;
    kept << file.rdbuf();
    EXPECT_EQ(layout(), kept.str());
}

}  // namespace
