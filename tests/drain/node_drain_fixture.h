// NodeDrainFixture: jobs that die, and the drains of their nodes. Ranks are threads, storages are in memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "drain/node_drain.h"
#include "flush/plan.h"
#include "format/file_table.h"
#include "format/original_files.h"
#include "protect/sets.h"
#include "session/sample_program.h"
#include "threads/executor.h"

namespace tailrace::internal::testing_support {

inline const auto never = [] { return false; };

// Four machines with two ranks each, two files. The jobs of a test run on the same machines.
class NodeDrainFixture : public testing::Test {
  protected:
    // Saves epochs 1 to `epochs`, and dies at the n-th operation in the shared directory.
    void run_and_die(uint64_t epochs, uint64_t die_at, bool concurrent = true) {
        FaultPlan faults;
        faults.die_at_operation = die_at;
        run_and_die(epochs, faults, concurrent);
    }
    // Dies early in the flush of each epoch, when all nodes have its plan.
    void run_and_die_planned(uint64_t epochs, bool concurrent = true) {
        FaultPlan faults;
        faults.die_at_operation = 12;
        faults.before_death = [&](const std::string& path) {
            const auto name = parse_shared_file_name(path.substr(path.rfind('/') + 1));
            if (!concurrent || !name) return;
            const auto deadline = SteadyClock::now() + std::chrono::seconds(20);
            while (!planned_everywhere(name->key.epoch) && SteadyClock::now() < deadline)
                sleep_for(std::chrono::milliseconds(1));
        };
        run_and_die(epochs, faults, concurrent);
        for (uint64_t epoch = 1; epoch <= epochs; ++epoch) ASSERT_TRUE(planned_everywhere(epoch)) << epoch;
    }
    void run_and_die(uint64_t epochs, const FaultPlan& faults, bool concurrent) {
        Job job = job_on(machines_, hosts_);
        job.concurrent = concurrent;
        job.config = config_;
        job.shared = std::make_shared<FaultyStorage>(machines_.shared, faults.die_at_operation, faults);
        run_job(job, [&](int, Checkpointer* session, const Status&) {
            if (session == nullptr) return;
            State_ state;
            for (uint64_t epoch = 1; epoch <= epochs; ++epoch)
                (void)(with_original_files_ ? save_with_file(*session, state, epoch)
                                            : save(*session, state, epoch));
            (void)session->close();
        });
        machines_.shared->process_death();
        for (auto& [host, local] : machines_.local) local->process_death();
    }

    // As a program with files_as = original saves one file of each rank.
    static std::string file_of(int rank) {
        return "d" + std::to_string(rank / 2) + "/r" + std::to_string(rank);
    }
    static Status save_with_file(Checkpointer& session, testing_support::State& state, uint64_t epoch) {
        fill(state, epoch, session.rank());
        put(session, state);
        const auto name = file_of(session.rank());
        const auto table = encode_file_table(std::vector<SavedFile>{{name, 0600}});
        const auto file = content(epoch, session.rank(), 5, 40000);
        std::vector<RegionSource> more(3);
        more[0].name = file_table_region;
        more[0].memory = table;
        more[1].name = original_files_region;
        more[2].name = file_region(name);
        more[2].memory = file;
        return session.save_with(epoch, std::move(more));
    }
    void expect_original_files(uint64_t epoch) {
        const auto directory = join_path(
            config_.shared_dir, original_files_directory(config_.name) + "/" + original_files_name(epoch));
        const auto bytes_of = [&](const std::string& name) {
            const auto file = machines_.shared->open(join_path(directory, name), {});
            std::vector<std::byte> bytes(file.ok() ? *(*file)->size() : 0);
            if (file.ok()) (void)(*file)->read_at(bytes, 0);
            return bytes;
        };
        const auto mark = bytes_of(file_list_name);
        const auto list = decode_file_list({reinterpret_cast<const char*>(mark.data()), mark.size()});
        ASSERT_TRUE(list.ok()) << list.status().message();
        EXPECT_EQ(list->files.size(), hosts_.size());
        for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank)
            EXPECT_TRUE(bytes_of(file_of(rank)) == content(epoch, rank, 5, 40000)) << "rank " << rank;
    }

    Result<DrainPass> drain(int node, std::shared_ptr<Storage> shared = nullptr,
                            NodeDrain::Order order = NodeDrain::Order::oldest_first) {
        NodeDrain drain(config_, machines_.local_of(host_of(node)), shared ? shared : machines_.shared);
        if (lost_) drain.write_for(*lost_);
        return drain.pass(directory_of(node), never, order);
    }
    // Returns its storage, so that it can come back.
    std::shared_ptr<MemoryStorage> lose(int node) {
        auto storage = machines_.local_of(host_of(node));
        machines_.local.erase(host_of(node));
        return storage;
    }
    std::string host_of(int node) const { return "m" + std::to_string(node); }
    std::string directory_of(int node) const {
        return local_tier(config_.local_dir, config_.shared_dir, config_.name).directory(node);
    }
    std::vector<std::string> records_of(int node) {
        std::vector<std::string> names;
        const auto listed = machines_.local_of(host_of(node))->list(directory_of(node));
        if (listed.ok())
            for (const auto& entry : *listed)
                if (parse_plan_file_name(entry.name)) names.push_back(entry.name);
        return names;
    }
    // Whether every node has its record, and every node that keeps a copy also the one that belongs to it.
    bool planned_everywhere(uint64_t epoch) {
        const std::vector<std::string> domains{"m0", "m1", "m2", "m3"};
        const auto sets = make_sets(domains, *parse_redundancy(config_.redundancy), config_.redundancy_set);
        for (int node = 0; node < node_count; ++node) {
            const auto id = static_cast<uint32_t>(node);
            if (!has(node, to_string(PlanFileName{config_.name, {epoch, 1}, id, false}))) return false;
            if (sets.sets.empty()) continue;
            const auto& set = sets.set_of(node);
            const auto position = copy_keeper(set, sets.position_of(node));
            if (!position) continue;
            const int keeper = set.nodes[*position];
            const auto group = [&](int of) { return group_of_node(of, node_count, config_.files).index; };
            if (group(keeper) != group(node) &&
                !has(keeper, to_string(KeptPlanFileName{config_.name, {epoch, 1}, id, false})))
                return false;
        }
        return true;
    }
    std::vector<uint64_t> planned_everywhere() {
        std::vector<uint64_t> epochs;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch)
            if (planned_everywhere(epoch)) epochs.push_back(epoch);
        return epochs;
    }
    bool has(int node, const std::string& name) {
        return machines_.local_of(host_of(node))->open(join_path(directory_of(node), name), {}).ok();
    }
    std::vector<uint64_t> committed() {
        std::vector<uint64_t> epochs;
        const auto listed = list_shared(*machines_.shared, config_.shared_dir, config_.name);
        if (!listed.ok()) return epochs;
        for (const auto& files : *listed)
            if (looks_complete(files)) {
                EXPECT_TRUE(load_shared_epoch(*machines_.shared, files).ok()) << files.key.epoch;
                epochs.push_back(files.key.epoch);
            }
        return epochs;
    }
    // By their slots. A loss of power may have taken names back that a session had given last.
    std::vector<uint64_t> complete() {
        std::vector<uint64_t> epochs;
        const auto listed = list_shared(*machines_.shared, config_.shared_dir, config_.name);
        if (listed.ok())
            for (const auto& files : *listed)
                if (load_shared_epoch(*machines_.shared, files).ok()) epochs.push_back(files.key.epoch);
        return epochs;
    }
    // Restores it on all ranks, from the shared directory alone.
    void expect_in_shared(uint64_t epoch) {
        Machines elsewhere;
        elsewhere.shared = machines_.shared;
        Job job = job_on(elsewhere, hosts_);
        job.config = config_;
        run(job, [&](Checkpointer& session) { expect_restored(session, epoch, epoch); });
    }
    std::vector<std::string> left_in_shared() {
        auto names = shared_names(machines_, config_);
        std::erase_if(names, [&](const std::string& name) {
            return name.ends_with(".tailrace") || name == original_files_directory(config_.name);
        });
        return names;
    }

    using State_ = testing_support::State;
    static constexpr int node_count = 4;
    std::vector<std::string> hosts_ = hosts_of(node_count, 2);
    Machines machines_;
    Config config_ = small_config();
    std::optional<LostNodes> lost_;  // of all drains
    bool with_original_files_ = false;
};

}  // namespace tailrace::internal::testing_support
