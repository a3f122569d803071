#include "bench/tune_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.h"
#include "config/config.h"
#include "text.h"

namespace tailrace::internal::tool {

namespace {

constexpr double least_noise = 0.02;
constexpr size_t runs_for_a_choice = 3;
constexpr size_t best_repeated = 3;
constexpr int rounds_of_a_step = 2;
constexpr uint32_t writers_step = 2;
constexpr uint32_t fewest_buffers = 4;
constexpr uint64_t least_buffer = 4 * MiB, most_buffer = 64 * MiB, buffer_step = 4;
// Used only if the limits leave no room for more.
constexpr uint64_t smallest_buffer = least_tuned_memory_bytes / fewest_buffers;
constexpr uint32_t least_depth = 8, most_depth = 128, depth_step = 4;

struct Way {
    IoEngine engine;
    DirectIo direct;
};
// Uncached I/O is left out. It is fast alone, but not beside a program (docs/performance.md).
constexpr std::array<Way, 4> ways = {{{IoEngine::io_uring, DirectIo::automatic},
                                      {IoEngine::posix, DirectIo::automatic},
                                      {IoEngine::io_uring, DirectIo::off},
                                      {IoEngine::posix, DirectIo::off}}};

std::string rate_text(double bytes_per_second) {
    return fmt::format("{:.0f} MiB/s", bytes_per_second / static_cast<double>(MiB));
}

uint64_t memory_of(const BenchCase& bench) {
    return bench.buffers * bench.buffer_bytes;
}

// What settings cost the program: threads first, then memory.
std::pair<uint32_t, uint64_t> cost_of(const BenchCase& bench) {
    return {bench.writers, memory_of(bench)};
}

// Two buffers for each writer: one is written while the next is filled.
void set_writers(BenchCase& bench, uint32_t writers) {
    bench.writers = writers;
    bench.buffers = std::max(fewest_buffers, 2 * writers);
}

}  // namespace

TuneSearch::TuneSearch(const BenchCase& defaults, const TuneLimits& limits)
    : defaults_(defaults), limits_(limits) {}

TuneSearch::Tried& TuneSearch::find(const BenchCase& bench) {
    for (Tried& tried : tried_)
        if (tried.bench == bench) return tried;
    return tried_.emplace_back(Tried{bench, {}, false});
}

const TuneSearch::Tried* TuneSearch::known(const BenchCase& bench) const {
    for (const Tried& tried : tried_)
        if (tried.bench == bench) return &tried;
    return nullptr;
}

void TuneSearch::take(const BenchCase& bench, double bytes_per_second) {
    find(bench).rates.push_back(bytes_per_second);
}

void TuneSearch::refuse(const BenchCase& bench) {
    find(bench).refused = true;
}

// ---- what next ---------------------------------------------------------------------------------------

bool TuneSearch::fits(const BenchCase& bench) const {
    return bench.writers >= 1 && bench.writers <= limits_.most_writers &&
           memory_of(bench) <= limits_.most_memory_bytes && check_case(bench).ok();
}

void TuneSearch::add_coarse(std::vector<BenchCase>& round) const {
    const bool defaults_fit = fits(defaults_);
    if (defaults_fit) round.push_back(defaults_);
    for (const Way& way : ways)
        for (const uint32_t writers : {1u, 4u, 16u}) {
            BenchCase bench = defaults_;
            bench.engine = way.engine;
            bench.direct = way.direct;
            bench.buffer_bytes = 16 * MiB;
            set_writers(bench, std::min(writers, limits_.most_writers));
            while (memory_of(bench) > limits_.most_memory_bytes && bench.buffer_bytes > smallest_buffer)
                bench.buffer_bytes /= 2;
            if (fits(bench) && std::find(round.begin(), round.end(), bench) == round.end())
                round.push_back(bench);
        }
    // The defaults come last. So the first runs can be chosen, however short the time is.
    if (!defaults_fit) round.push_back(defaults_);
}

std::vector<BenchCase> TuneSearch::neighbours(const BenchCase& bench) const {
    std::vector<BenchCase> list;
    auto add = [&](auto change) {
        BenchCase other = bench;
        change(other);
        const Tried* before = known(other);
        const bool judged =
            before != nullptr && (before->refused || before->rates.size() >= runs_for_a_choice);
        if (other != bench && fits(other) && !judged &&
            std::find(list.begin(), list.end(), other) == list.end())
            list.push_back(other);
    };
    add([](BenchCase& other) { set_writers(other, other.writers * writers_step); });
    add([](BenchCase& other) { set_writers(other, std::max(1u, other.writers / writers_step)); });
    add([](BenchCase& other) {
        other.buffer_bytes = std::min(most_buffer, other.buffer_bytes * buffer_step);
    });
    add([](BenchCase& other) {
        const uint64_t least = std::min(least_buffer, other.buffer_bytes);
        other.buffer_bytes = std::max(least, other.buffer_bytes / buffer_step);
    });
    if (bench.engine == IoEngine::io_uring) {
        add([](BenchCase& other) {
            other.queue_depth = std::min(most_depth, other.queue_depth * depth_step);
        });
        add([](BenchCase& other) {
            other.queue_depth = std::max(least_depth, other.queue_depth / depth_step);
        });
    }
    return list;
}

const TuneSearch::Tried* TuneSearch::fastest(size_t least_runs) const {
    const Tried* best = nullptr;
    for (const Tried& tried : tried_)
        if (tried.rates.size() >= least_runs && fits(tried.bench) &&
            (best == nullptr || tried.median() > best->median()))
            best = &tried;
    return best;
}

std::vector<BenchCase> TuneSearch::next_round() {
    std::vector<BenchCase> round;
    if (stage_ == Stage::coarse) {
        add_coarse(round);
        stage_ = Stage::repeat;
        return round;
    }
    if (stage_ == Stage::repeat && repeats_ < 2) {
        ++repeats_;
        std::vector<const Tried*> order;
        for (const Tried& tried : tried_)
            if (!tried.rates.empty()) order.push_back(&tried);
        std::stable_sort(order.begin(), order.end(),
                         [](const Tried* a, const Tried* b) { return a->median() > b->median(); });
        size_t chosen = 0;
        for (const Tried* tried : order) {
            const bool best = fits(tried->bench) && chosen < best_repeated;
            chosen += best ? 1 : 0;
            if (best || is_default(*tried)) round.push_back(tried->bench);
        }
        if (!round.empty()) return round;
    }
    if (stage_ == Stage::repeat) {
        stage_ = Stage::refine;
        repeats_ = rounds_of_a_step;
        if (const Tried* best = fastest(runs_for_a_choice)) centre_ = best->bench;
    }
    if (stage_ == Stage::refine && repeats_ >= rounds_of_a_step) {
        // The neighbours have been run as often as a step needs. Does one take over?
        repeats_ = 0;
        const Tried* centre = known(centre_);
        const Tried* best = centre;
        for (const BenchCase& bench : around_) {
            const Tried* other = known(bench);
            if (other != nullptr && !other->rates.empty() && other->median() > best->median()) best = other;
        }
        bool moved = best != nullptr && best != centre && best->median() > centre->median() * (1 + noise());
        if (!moved) {
            // No neighbour is faster. Does one that is as fast need less?
            const Tried* fast = fastest(2);
            best = centre;
            for (const BenchCase& bench : around_)
                if (const Tried* other = known(bench); other != nullptr && other->rates.size() >= 2 &&
                                                       other->median() >= fast->median() / (1 + noise()) &&
                                                       cost_of(bench) < cost_of(best->bench))
                    best = other;
            moved = best != centre;
        }
        const bool first = around_.empty();
        if (moved) centre_ = best->bench;
        around_ = centre != nullptr && (moved || first) ? neighbours(centre_) : std::vector<BenchCase>();
        if (around_.empty()) stage_ = Stage::over;
    }
    if (stage_ == Stage::over) return round;
    ++repeats_;
    round.push_back(centre_);
    for (const BenchCase& bench : around_)
        if (const Tried* before = known(bench); before == nullptr || !before->refused) round.push_back(bench);
    return round;
}

// ---- what was found ------------------------------------------------------------------------------------

double TuneSearch::noise() const {
    std::vector<double> spreads;
    for (const Tried& tried : tried_) {
        const Spread spread = spread_of(tried.rates);
        if (spread.count >= runs_for_a_choice && spread.median > 0)
            spreads.push_back((spread.most - spread.least) / 2 / spread.median);
    }
    return std::max(least_noise, spread_of(std::move(spreads)).median);
}

const TuneSearch::Tried* TuneSearch::choice() const {
    const Tried* best = fastest(2);
    if (best == nullptr) {
        // One run of each case decides nothing. The defaults stay if they were measured and are
        // allowed.
        const Tried* defaults = known(defaults_);
        return defaults != nullptr && !defaults->rates.empty() && fits(defaults_) ? defaults : fastest(1);
    }
    const double enough = best->median() / (1 + noise());
    const Tried* chosen = best;
    for (const Tried& tried : tried_) {
        if (tried.rates.size() < 2 || tried.median() < enough || !fits(tried.bench)) continue;
        if (is_default(*chosen)) break;
        if (is_default(tried) || cost_of(tried.bench) < cost_of(chosen->bench)) chosen = &tried;
    }
    return chosen;
}

std::string settings_text(const BenchCase& bench) {
    const std::string engine = bench.engine == IoEngine::io_uring
                                   ? fmt::format("io_uring ({} requests in flight)", bench.queue_depth)
                               : bench.engine == IoEngine::posix ? "plain system calls"
                                                                 : "the default engine";
    return fmt::format("{} {}, {} writer{}, {} buffers of {}", engine,
                       bench.direct == DirectIo::off ? "through the page cache" : "around the page cache",
                       bench.writers, bench.writers == 1 ? "" : "s", bench.buffers,
                       format_bytes(bench.buffer_bytes));
}

std::vector<std::string> TuneSearch::explanation() const {
    const Tried* chosen = choice();
    if (chosen == nullptr) return {"Nothing could be measured."};
    std::vector<std::string> lines;
    const Spread rate = spread_of(chosen->rates);
    lines.push_back(fmt::format("Chosen: {}: {} (from {} to {} in {} run{}), {}.",
                                settings_text(chosen->bench), rate_text(rate.median), rate_text(rate.least),
                                rate_text(rate.most), rate.count, rate.count == 1 ? "" : "s",
                                end_text(chosen->bench)));
    const Tried* defaults = known(defaults_);
    if (is_default(*chosen)) {
        const auto compared = std::count_if(tried_.begin(), tried_.end(), [&](const Tried& tried) {
            return !is_default(tried) && tried.rates.size() >= 2;
        });
        lines.push_back(
            compared == 0 || rate.count < 2
                ? "These are the defaults. Too few settings were run twice to tell whether others are "
                  "faster: give the search more time with --time."
                : fmt::format(
                      "These are the defaults; of {} other setting{} that {} run twice or more, none was "
                      "faster by more than the noise.",
                      compared, compared == 1 ? "" : "s", compared == 1 ? "was" : "were"));
    } else if (defaults != nullptr && !defaults->rates.empty()) {
        lines.push_back(fmt::format(
            "The defaults ({}) reach {}: the choice is {:.2f} times as fast.{}",
            settings_text(defaults->bench), rate_text(defaults->median()), rate.median / defaults->median(),
            fits(defaults_) ? "" : " They take more threads or memory than the limits allow."));
    }
    if (!is_default(*chosen) && rate.count < 2)
        lines.emplace_back(
            "Nothing was run twice, so this says little: give the search more time with --time.");
    if (const Tried* best = fastest(2); best != nullptr && best != chosen)
        lines.push_back(
            fmt::format("The fastest, {}, reaches {}: {:.2f} times the choice. The gain is within the noise, "
                        "and it takes more threads or memory.",
                        settings_text(best->bench), rate_text(best->median()), best->median() / rate.median));
    // The best of each other way to the disk.
    for (const Way& way : ways) {
        if (way.engine == chosen->bench.engine && way.direct == chosen->bench.direct) continue;
        const Tried* best = nullptr;
        bool refused = false;
        for (const Tried& tried : tried_) {
            if (tried.bench.engine != way.engine || tried.bench.direct != way.direct || !fits(tried.bench))
                continue;
            refused = refused || tried.refused;
            if (!tried.rates.empty() && (best == nullptr || tried.median() > best->median())) best = &tried;
        }
        const std::string name =
            fmt::format("{} {}", way.engine == IoEngine::posix ? "Plain system calls" : "io_uring",
                        way.direct == DirectIo::off ? "through the page cache" : "around the page cache");
        if (best != nullptr)
            lines.push_back(fmt::format("{} reach{} {} at best, with {} writer{}: {:.2f} of the choice.",
                                        name, way.engine == IoEngine::posix ? "" : "es",
                                        rate_text(best->median()), best->bench.writers,
                                        best->bench.writers == 1 ? "" : "s", best->median() / rate.median));
        else if (refused)
            lines.push_back(fmt::format("{}: not possible here.", name));
    }
    size_t runs = 0, cases = 0, judged = 0;
    for (const Tried& tried : tried_) {
        runs += tried.rates.size();
        cases += tried.rates.empty() ? 0 : 1;
        judged += tried.rates.size() >= runs_for_a_choice ? 1 : 0;
    }
    const std::string noise_text =
        judged > 0
            ? fmt::format("Runs of the same settings differ by about {:.0f} % in either direction",
                          noise() * 100)
            : fmt::format("Nothing was run often enough to tell how much runs differ; {:.0f} % is assumed",
                          noise() * 100);
    lines.push_back(fmt::format("{}; a smaller gain counts as equal. {} setting{} tried in {} run{}; {}.",
                                noise_text, cases, cases == 1 ? " was" : "s were", runs, runs == 1 ? "" : "s",
                                converged() ? "no neighbour of the best was faster by more than that"
                                            : "the search ended before it had tried all neighbours"));
    return lines;
}

std::string tune_toml(const TuneSearch::Tried& choice, const std::vector<std::string>& explanation,
                      const BenchMachine& machine) {
    const BenchCase& bench = choice.bench;
    std::string text =
        fmt::format("# Settings of tailrace for {} ({}) from {}, found by `tailrace tune`.\n#\n",
                    machine.directory, machine.file_system, machine.host);
    for (const std::string& line : explanation) text += fmt::format("# {}\n", line);
    text +=
        fmt::format("#\n# Load: {} processes of {} +-{} % per node, {} follower{}{}.\n\n", bench.processes,
                    format_bytes(bench.process_bytes), bench.imbalance_percent, bench.followers,
                    bench.followers == 1 ? "" : "s", bench.durable ? "" : ", without syncs");
    Config config;
    config.writers = bench.writers;
    config.buffers = bench.buffers;
    config.buffer_bytes = bench.buffer_bytes;
    config.io_engine = bench.engine;
    config.queue_depth = bench.queue_depth;
    config.direct_io = bench.direct;
    for (const char* key : {"writers", "buffers", "buffer_bytes", "io_engine", "queue_depth", "direct_io"})
        text += fmt::format("{} = {}\n", key, toml_value(*get_config(config, key)));
    return text;
}

}  // namespace tailrace::internal::tool
