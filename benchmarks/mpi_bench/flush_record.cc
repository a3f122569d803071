#include "flush_record.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace mpi_bench {

namespace {

using Json = nlohmann::json;

Leader leader_of(const Json& node) {
    Leader leader;
    leader.node = node.at("node");
    // `seconds` would not do: it ends with the last leader of the group.
    for (const char* phase : {"plan_seconds", "prepare_seconds", "move_seconds", "commit_seconds"})
        leader.seconds += node.at(phase).get<double>();
    leader.bytes = node.at("local_bytes").get<uint64_t>() + node.at("received_bytes").get<uint64_t>();
    return leader;
}

}  // namespace

std::vector<Leader> read_leaders(const std::string& record_dir, uint64_t epoch) {
    std::vector<Leader> leaders;
    if (!std::filesystem::is_directory(record_dir)) return leaders;
    for (const auto& entry : std::filesystem::directory_iterator(record_dir)) {
        std::ifstream file(entry.path());
        for (std::string line; std::getline(file, line);) {
            const Json json = Json::parse(line);
            if (json.at("record") != "epoch" || json.at("epoch") != epoch || json.at("state") != "committed")
                continue;
            for (const Json& node : json.at("nodes"))
                if (node.at("role") == "leader") leaders.push_back(leader_of(node));
        }
    }
    return leaders;
}

}  // namespace mpi_bench
