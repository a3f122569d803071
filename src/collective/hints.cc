#include "collective/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/environment.h"
#include "base/units.h"

namespace tailrace::collective {

namespace {

struct Hint {
    HintInfo info;
    bool (*set)(Options&, std::string_view);
};

template <class Value>
struct Choice {
    std::string_view name;
    Value value;
};

template <class Value, size_t count>
bool choose(Value& place, std::string_view text, const Choice<Value> (&choices)[count]) {
    for (const Choice<Value>& choice : choices) {
        if (choice.name != text) continue;
        place = choice.value;
        return true;
    }
    return false;
}

template <class Number>
bool number(Number& place, std::string_view text, Number least) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least) return false;
    place = value;
    return true;
}

constexpr Choice<Sieve> sieve_choices[] = {
    {"auto", Sieve::automatic}, {"always", Sieve::always}, {"never", Sieve::never}};

const std::vector<Hint>& table() {
    static const std::vector<Hint> hints = {
        {{"local_aggregators", "auto | all | N",
          "local aggregators per node (c): chosen from the requests; every rank, which is two-phase I/O; or "
          "N"},
         [](Options& options, std::string_view text) {
             int& place = options.plan.local_aggregators_per_node;
             return choose(place, text, {{"auto", 0}, {"all", -1}}) || number(place, text, 1);
         }},
        {{"global_aggregators", "auto | N", "global aggregators: one per node, or N spread over the nodes"},
         [](Options& options, std::string_view text) {
             int& place = options.plan.global_aggregators;
             return choose(place, text, {{"auto", 0}}) || number(place, text, 1);
         }},
        {{"buffer_size", "16MiB", "what a global aggregator moves in one round; it has three such buffers"},
         [](Options& options, std::string_view text) {
             const Result<uint64_t> bytes = parse_bytes(text);
             if (!bytes.ok() || *bytes == 0 || *bytes > 4 * GiB) return false;
             options.plan.domains.window_bytes = *bytes;
             return true;
         }},
        {{"layout", "contiguous | cyclic | group-cyclic",
          "file domains: one part of the file for each global aggregator; windows in turn; or stripes in "
          "turn among as many as there are stripes"},
         [](Options& options, std::string_view text) {
             return choose(options.plan.domains.layout, text,
                           {{"contiguous", Layout::contiguous},
                            {"cyclic", Layout::cyclic},
                            {"group-cyclic", Layout::group_cyclic}});
         }},
        {{"stripes", "0 | N", "group-cyclic: the file's stripe count; 0: as many as global aggregators"},
         [](Options& options, std::string_view text) {
             return number(options.plan.domains.stripes, text, 0);
         }},
        {{"alignment", "4KiB",
          "borders of file domains lie at multiples of it: a power of two, such as a stripe"},
         [](Options& options, std::string_view text) {
             const Result<uint64_t> bytes = parse_bytes(text);
             if (!bytes.ok() || *bytes < 512 || *bytes > GiB || (*bytes & (*bytes - 1)) != 0) return false;
             options.plan.domains.align_bytes = *bytes;
             return true;
         }},
        {{"exchange", "auto | always | never",
          "whether requests go through aggregators: where it helps, always, or each rank for itself"},
         [](Options& options, std::string_view text) {
             return choose(
                 options.plan.exchange, text,
                 {{"auto", Exchange::automatic}, {"always", Exchange::always}, {"never", Exchange::never}});
         }},
        {{"sieve_reads", "auto | always | never",
          "whether small holes are read along with what is around them"},
         [](Options& options, std::string_view text) {
             return choose(options.sieve_reads, text, sieve_choices);
         }},
        {{"sieve_writes", "auto | always | never",
          "whether small holes are read first and written along: auto on file systems behind a network"},
         [](Options& options, std::string_view text) {
             return choose(options.sieve_writes, text, sieve_choices);
         }},
        {{"direct_io", "off | auto | on", "whether aggregators go around the page cache"},
         [](Options& options, std::string_view text) {
             return choose(options.direct_io, text,
                           {{"off", DirectIo::off}, {"auto", DirectIo::automatic}, {"on", DirectIo::on}});
         }},
        {{"ranks_per_node", "0 | N", "take N consecutive ranks of a machine for a node; 0: all of them"},
         [](Options& options, std::string_view text) {
             return number(options.ranks_per_node, text, uint32_t{0});
         }},
        {{"shared_memory", "yes | no", "whether ranks of a node share memory; two layers need it"},
         [](Options& options, std::string_view text) {
             return choose(options.shared_memory, text, {{"yes", true}, {"no", false}});
         }},
    };
    return hints;
}

// A hint's environment variable is this and its name in capitals.
constexpr std::string_view prefix = "TAILRACE_COLLECTIVE_";

std::string hint_of(std::string_view variable) {
    std::string name(variable.substr(prefix.size()));
    for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return name;
}

}  // namespace

const std::vector<HintInfo>& all_hints() {
    static const std::vector<HintInfo> infos = [] {
        std::vector<HintInfo> all;
        for (const Hint& hint : table()) all.push_back(hint.info);
        return all;
    }();
    return infos;
}

Status set_hint(Options& options, std::string_view name, std::string_view value) {
    for (const Hint& hint : table()) {
        if (hint.info.name != name) continue;
        if (hint.set(options, value)) return Status();
        return Status(Code::invalid_argument,
                      fmt::format("tailrace_{} = \"{}\" is none of: {}", name, value, hint.info.values));
    }
    std::string known;
    for (const Hint& hint : table())
        known += fmt::format("{}tailrace_{}", known.empty() ? "" : ", ", hint.info.name);
    return Status(Code::invalid_argument,
                  fmt::format("there is no setting tailrace_{}; there are: {}", name, known));
}

Status set_hints(Options& options, const std::map<std::string, std::string>& hints) {
    for (const auto& [variable, value] : environment_variables(prefix)) {
        if (value.empty()) continue;  // as good as unset
        if (std::any_of(variable.begin(), variable.end(), [](unsigned char c) { return std::islower(c); }))
            return Status(Code::invalid_argument,
                          fmt::format("environment variable {}: they are in capitals", variable));
        TAILRACE_TRY(set_hint(options, hint_of(variable), value)
                         .with_context(fmt::format("environment variable {}", variable)));
    }
    for (const auto& [name, value] : hints) TAILRACE_TRY(set_hint(options, name, value));
    return Status();
}

}  // namespace tailrace::collective
