#include "results.h"

#include <algorithm>
#include <cstdio>

namespace mpi_bench {

namespace {

constexpr double mib = 1048576;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Json spread(const std::vector<double>& values) {
    return {{"median", median(values)},
            {"least", *std::min_element(values.begin(), values.end())},
            {"most", *std::max_element(values.begin(), values.end())},
            {"values", values}};
}

// How equally long the leaders of a flush were busy.
struct Evenness {
    double mean_seconds = 0, slowest_seconds = 0;
    double slowest_by_mean() const { return mean_seconds > 0 ? slowest_seconds / mean_seconds : 1; }
};

Evenness evenness_of(const std::vector<Leader>& leaders) {
    Evenness evenness;
    for (const Leader& leader : leaders) {
        evenness.mean_seconds += leader.seconds / static_cast<double>(leaders.size());
        evenness.slowest_seconds = std::max(evenness.slowest_seconds, leader.seconds);
    }
    return evenness;
}

Json json_of(const std::vector<Leader>& leaders) {
    const Evenness evenness = evenness_of(leaders);
    Json json{{"mean_seconds", evenness.mean_seconds},
              {"slowest_seconds", evenness.slowest_seconds},
              {"slowest_by_mean", evenness.slowest_by_mean()},
              {"leaders", Json::array()}};
    for (const Leader& leader : leaders)
        json["leaders"].push_back(
            {{"node", leader.node}, {"seconds", leader.seconds}, {"bytes", leader.bytes}});
    return json;
}

void print_leaders(const std::string& name, const Times& times) {
    for (size_t flush = 0; flush < times.leaders.size(); ++flush) {
        const std::vector<Leader>& leaders = times.leaders[flush];
        const Evenness evenness = evenness_of(leaders);
        std::printf("%s, flush %zu: leaders %zu, mean %.4f s, slowest %.4f s, slowest/mean %.2f, MiB of each",
                    name.c_str(), flush + 1, leaders.size(), evenness.mean_seconds, evenness.slowest_seconds,
                    evenness.slowest_by_mean());
        for (const Leader& leader : leaders) std::printf(" %.1f", static_cast<double>(leader.bytes) / mib);
        std::printf("\n");
    }
}

}  // namespace

Json json_of(const Times& times) {
    Json json{{"local_seconds", spread(times.local)},    {"flush_seconds", spread(times.flush)},
              {"open_seconds", spread(times.open)},      {"cold_read_seconds", spread(times.cold)},
              {"warm_read_seconds", spread(times.warm)}, {"flushes", Json::array()}};
    for (const auto& leaders : times.leaders) json["flushes"].push_back(json_of(leaders));
    return json;
}

void print_table(const Load& load, const std::vector<std::unique_ptr<Strategy>>& strategies,
                 const std::map<std::string, Times>& results) {
    const double all = static_cast<double>(load.all_bytes) / mib;
    std::printf("\nK = %d, %d ranks, %.1f MiB in all; MiB/s until durable, for tailrace after save\n",
                load.files, load.size, all);
    int width = 20;
    for (const auto& strategy : strategies)
        width = std::max(width, static_cast<int>(strategy->name().size()));
    std::printf("%-*s %8s %8s %8s %10s %9s %9s %8s %8s %8s\n", width, "", "median", "least", "most",
                "tailrace/x", "local s", "with it", "cold", "warm", "open s");
    const auto ours = results.find("tailrace");
    for (const auto& strategy : strategies) {
        const Times& times = results.at(strategy->name());
        const auto [fast, slow] = std::minmax_element(times.flush.begin(), times.flush.end());
        const std::string ratio =
            ours == results.end()
                ? "-"
                : std::to_string(median(times.flush) / median(ours->second.flush)).substr(0, 5);
        std::printf("%-*s %8.0f %8.0f %8.0f %10s %9.4f %9.0f %8.0f %8.0f %8.4f\n", width,
                    strategy->name().c_str(), all / median(times.flush), all / *slow, all / *fast,
                    ratio.c_str(), median(times.local), all / (median(times.local) + median(times.flush)),
                    all / median(times.cold), all / median(times.warm), median(times.open));
    }
    for (const auto& strategy : strategies) print_leaders(strategy->name(), results.at(strategy->name()));
}

}  // namespace mpi_bench
