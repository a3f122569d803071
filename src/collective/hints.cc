#include "collective/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/environment.h"
#include "base/text.h"
#include "base/units.h"

namespace tailrace::internal::collective {

namespace {

// A hint, and how it is parsed and printed.
struct Hint {
    HintInfo info;
    bool (*set)(Options&, std::string_view);
    std::string (*get)(const Options&);
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

// A number is printed as it is, unless it is one of the choices.
template <class Value, size_t count>
std::string chosen(Value value, const Choice<Value> (&choices)[count]) {
    for (const Choice<Value>& choice : choices)
        if (choice.value == value) return std::string(choice.name);
    return fmt::format("{}", static_cast<int64_t>(value));
}

template <class Number>
bool number(Number& place, std::string_view text, Number least) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least) return false;
    place = value;
    return true;
}

bool bytes(uint64_t& place, std::string_view text, uint64_t least, uint64_t most) {
    const Result<uint64_t> parsed = parse_bytes(text);
    if (!parsed.ok() || *parsed < least || *parsed > most) return false;
    place = *parsed;
    return true;
}

constexpr Choice<int> local_choices[] = {{"auto", 0}, {"all", -1}};
constexpr Choice<int> global_choices[] = {{"auto", 0}};
constexpr Choice<Layout> layout_choices[] = {
    {"contiguous", Layout::contiguous}, {"cyclic", Layout::cyclic}, {"group-cyclic", Layout::group_cyclic}};
constexpr Choice<Exchange> exchange_choices[] = {
    {"auto", Exchange::automatic}, {"always", Exchange::always}, {"never", Exchange::never}};
constexpr Choice<Sieve> sieve_choices[] = {
    {"auto", Sieve::automatic}, {"always", Sieve::always}, {"never", Sieve::never}};
constexpr Choice<DirectIo> direct_choices[] = {{"off", DirectIo::off},
                                               {"auto", DirectIo::automatic},
                                               {"on", DirectIo::on},
                                               {"uncached", DirectIo::uncached}};
constexpr Choice<bool> yes_or_no[] = {{"yes", true}, {"no", false}};

const std::vector<Hint>& table() {
    static const std::vector<Hint> hints = {
        {{"local_aggregators", "auto | all | N (1 or more)",
          "local aggregators per node (c): chosen from the requests; every rank, which is two-phase I/O; or "
          "N"},
         [](Options& options, std::string_view text) {
             int& place = options.plan.local_aggregators_per_node;
             return choose(place, text, local_choices) || number(place, text, 1);
         },
         [](const Options& options) {
             return chosen(options.plan.local_aggregators_per_node, local_choices);
         }},
        {{"global_aggregators", "auto | N (1 or more)",
          "global aggregators: one per node, or N spread over the nodes"},
         [](Options& options, std::string_view text) {
             int& place = options.plan.global_aggregators;
             return choose(place, text, global_choices) || number(place, text, 1);
         },
         [](const Options& options) { return chosen(options.plan.global_aggregators, global_choices); }},
        {{"buffer_size", "1 to 4GiB (default 16MiB)",
          "what a global aggregator moves in one round; it has three such buffers"},
         [](Options& options, std::string_view text) {
             return bytes(options.plan.domains.window_bytes, text, 1, 4 * GiB);
         },
         [](const Options& options) { return fmt::format("{}", options.plan.domains.window_bytes); }},
        {{"layout", "contiguous | cyclic | group-cyclic",
          "file domains: one part of the file for each global aggregator; windows in turn; or stripes in "
          "turn among as many as there are stripes"},
         [](Options& options, std::string_view text) {
             return choose(options.plan.domains.layout, text, layout_choices);
         },
         [](const Options& options) { return chosen(options.plan.domains.layout, layout_choices); }},
        {{"stripes", "0 | N", "group-cyclic: the file's stripe count; 0: as many as global aggregators"},
         [](Options& options, std::string_view text) {
             return number(options.plan.domains.stripes, text, 0);
         },
         [](const Options& options) { return fmt::format("{}", options.plan.domains.stripes); }},
        {{"alignment", "a power of two from 512 to 1GiB (default 4KiB)",
          "borders of file domains lie at multiples of it: a power of two, such as a stripe"},
         [](Options& options, std::string_view text) {
             uint64_t& place = options.plan.domains.align_bytes;
             uint64_t value = 0;
             if (!bytes(value, text, 512, GiB) || (value & (value - 1)) != 0) return false;
             place = value;
             return true;
         },
         [](const Options& options) { return fmt::format("{}", options.plan.domains.align_bytes); }},
        {{"exchange", "auto | always | never",
          "whether requests go through aggregators: where it helps, always, or each rank for itself"},
         [](Options& options, std::string_view text) {
             return choose(options.plan.exchange, text, exchange_choices);
         },
         [](const Options& options) { return chosen(options.plan.exchange, exchange_choices); }},
        {{"sieve_reads", "auto | always | never",
          "whether small holes are read along with what is around them"},
         [](Options& options, std::string_view text) {
             return choose(options.sieve_reads, text, sieve_choices);
         },
         [](const Options& options) { return chosen(options.sieve_reads, sieve_choices); }},
        {{"sieve_writes", "auto | always | never",
          "whether small holes are read first and written along: auto on file systems behind a network"},
         [](Options& options, std::string_view text) {
             return choose(options.sieve_writes, text, sieve_choices);
         },
         [](const Options& options) { return chosen(options.sieve_writes, sieve_choices); }},
        {{"direct_io", "off | auto | on | uncached",
          "whether aggregators go around the page cache, or through it and out of it at once"},
         [](Options& options, std::string_view text) {
             return choose(options.direct_io, text, direct_choices);
         },
         [](const Options& options) { return chosen(options.direct_io, direct_choices); }},
        {{"ranks_per_node", "0 | N", "take N consecutive ranks of a machine for a node; 0: all of them"},
         [](Options& options, std::string_view text) {
             return number(options.ranks_per_node, text, uint32_t{0});
         },
         [](const Options& options) { return fmt::format("{}", options.ranks_per_node); }},
        {{"shared_memory", "yes | no", "whether ranks of a node share memory; two layers need it"},
         [](Options& options, std::string_view text) {
             return choose(options.shared_memory, text, yes_or_no);
         },
         [](const Options& options) { return chosen(options.shared_memory, yes_or_no); }},
    };
    return hints;
}

// A hint's environment variable is this and the hint's name in capitals.
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
                      fmt::format("tailrace_{} = \"{}\": it may be {}", shortened(name), shortened(value),
                                  hint.info.values));
    }
    std::string known;
    for (const Hint& hint : table())
        known += fmt::format("{}tailrace_{}", known.empty() ? "" : ", ", hint.info.name);
    return Status(Code::invalid_argument,
                  fmt::format("there is no setting tailrace_{}; there are: {}", shortened(name), known));
}

std::map<std::string, std::string> hints_in_effect(const Options& options) {
    std::map<std::string, std::string> all;
    for (const Hint& hint : table()) all.emplace(hint.info.name, hint.get(options));
    return all;
}

Status set_hints(Options& options, const std::map<std::string, std::string>& hints) {
    for (const auto& [variable, value] : environment_variables(prefix)) {
        if (value.empty()) continue;  // empty is as good as unset
        if (std::any_of(variable.begin(), variable.end(), [](unsigned char c) { return std::islower(c); }))
            return Status(Code::invalid_argument,
                          fmt::format("environment variable {}: its name must be in capitals", variable));
        TAILRACE_TRY(set_hint(options, hint_of(variable), value)
                         .with_context(fmt::format("environment variable {}", variable)));
    }
    for (const auto& [name, value] : hints) TAILRACE_TRY(set_hint(options, name, value));
    return Status();
}

}  // namespace tailrace::internal::collective
