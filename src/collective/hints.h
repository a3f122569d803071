// The settings of a collective file by name, as they come in an MPI_Info
// (tailrace_local_aggregators) and from the environment (TAILRACE_COLLECTIVE_LOCAL_AGGREGATORS).
// One table serves both. docs/collective.md lists it, and tests/collective/hints_test.cc compares
// them. Pure, except for reading the environment.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collective/collective_file.h"

namespace tailrace::internal::collective {

struct HintInfo {
    std::string_view name;    // without "tailrace_"
    std::string_view values;  // its possible values, the default first or in brackets
    std::string_view help;
};
const std::vector<HintInfo>& all_hints();

// `name` is without "tailrace_". invalid_argument names the known settings, or the possible values.
Status set_hint(Options& options, std::string_view name, std::string_view value);

// Every setting with its value, by its name without "tailrace_", in the form that set_hint() takes.
std::map<std::string, std::string> hints_in_effect(const Options& options);

// Sets all settings of the environment, and then those of `hints` (named without "tailrace_").
// Unknown names are refused.
Status set_hints(Options& options, const std::map<std::string, std::string>& hints);

}  // namespace tailrace::internal::collective
