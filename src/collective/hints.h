// The settings of a collective file by name, as they come in an MPI_Info (tailrace_local_aggregators) and
// from the environment (TAILRACE_COLLECTIVE_LOCAL_AGGREGATORS). One table for both; docs/collective.md lists
// it, and tests/collective/hints_test.cc compares. Pure, but for reading the environment.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collective/collective_file.h"

namespace tailrace::internal::collective {

struct HintInfo {
    std::string_view name;    // without "tailrace_"
    std::string_view values;  // what it may be, the default first or in brackets
    std::string_view help;
};
const std::vector<HintInfo>& all_hints();

// `name` without "tailrace_". invalid_argument with the names there are, or the values it may have.
Status set_hint(Options& options, std::string_view name, std::string_view value);

// Every setting as it is, by its name without "tailrace_"; set_hint() takes it so.
std::map<std::string, std::string> hints_in_effect(const Options& options);

// All that the environment has, later those of `hints` (named without "tailrace_"). Names that are not known
// are refused.
Status set_hints(Options& options, const std::map<std::string, std::string>& hints);

}  // namespace tailrace::internal::collective
