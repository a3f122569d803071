// Protection and rebuilding as sessions do them, against the same copies and sums without any protocol.
//
//   protect_levels [--rounds N] [--mib N] [--dir DIR] [--link MIB_PER_S]     one JSON object per line
//
// First, sessions with and without redundancy save in turn, when nothing is under way: how long does
// the slowest rank's save take? (`save`; a ratio above 1 means that redundancy makes it shorter.)
//
// The ranks of a job are threads of this process, one per node, and all nodes' tiers lie in DIR (default
// /dev/shm). In each round every rank saves MIB. The time counts from the last rank's return from save until
// all ranks know that the epoch is protected. Then `alone` does the same to as many bytes: as many threads
// as there are processors read each source in blocks, copy it once (the way between two nodes), sum up,
// make the checksum and write. Then one node's directory is emptied and rebuilt, again and again, as a
// session does when it opens: against reading, copying and writing as many bytes, and reading them again.
//
// In the end nodes protect over links that carry MIB_PER_S in each direction (default 500;
// linked_transport.h): against the time in which the link carries what a node sends (`protect_over_link`).
#include <fmt/format.h>
#include <isa-l/erasure_code.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "linked_transport.h"
#include "protect/coding.h"
#include "protect/rebuild.h"
#include "session/checkpointer.h"
#include "storage/storage.h"
#include "transport/in_process.h"

namespace {

using namespace tailrace::internal;
using Clock = std::chrono::steady_clock;

constexpr size_t block_bytes = 512 << 10;

struct Level {
    const char* redundancy;
    uint32_t nodes;
    uint32_t sources;  // per byte that is kept
    uint32_t pieces;   // kept per node, each of 1/sources of its part
};

struct Spread {
    double median, least, most;
};
Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 2], values.front(), values.back()};
}
std::string json_of(const char* name, const Spread& spread) {
    return fmt::format("\"{}\": {:.3f}, \"{}_least\": {:.3f}, \"{}_most\": {:.3f}", name, spread.median, name,
                       spread.least, name, spread.most);
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void fail(const Status& why) {
    std::fprintf(stderr, "protect_levels: %s\n", why.to_string().c_str());
    std::exit(1);
}
template <class T>
T must(Result<T> result) {
    if (!result.ok()) fail(result.status());
    return std::move(result).value();
}
void must(const Status& status) {
    if (!status.ok()) fail(status);
}

class Bench {
  public:
    Bench(const Level& level, uint64_t bytes, std::string directory)
        : level_(level), bytes_(bytes), directory_(std::move(directory)) {
        std::filesystem::create_directories(directory_);
        config_.name = "bench";
        config_.local_dir = directory_ + "/local";
        config_.shared_dir = directory_ + "/shared";
        config_.redundancy = level.redundancy;
        config_.redundancy_set = level.nodes;
        config_.shared_every = 1000000;
        config_.flush_at_close = false;  // what is measured stays on the nodes
        config_.keep_local = 1;
        config_.record = false;
        config_.agent = AgentUse::none;
        config_.bandwidth_cap = 0;
        must(complete_config(config_, static_cast<int>(level.nodes)));
        for (uint32_t node = 0; node < level.nodes; ++node) hosts_.push_back(fmt::format("n{}", node));
        storage_ =
            must(make_system_storage({.engine = IoEngine::posix, .rules = {.own_in = config_.local_dir}}));
    }
    ~Bench() {
        std::error_code ignored;
        std::filesystem::remove_all(directory_, ignored);
    }

    void run(int rounds) {
        save(rounds);
        print("protect", protect(rounds, [this] { return protect_alone(); }), bytes_ * level_.nodes);
        rebuild(rounds);
    }
    void run_over_link(int rounds, double bytes_per_second) {
        link_bytes_per_second_ = bytes_per_second;
        // Of every part that it helps to protect, a node sends 1/sources, `pieces` times.
        const double sent = static_cast<double>(bytes_) * level_.pieces;
        print("protect_over_link", protect(rounds, [&] { return sent / bytes_per_second; }),
              bytes_ * level_.nodes);
    }

  private:
    void save(int rounds) {
        Config plain = config_;
        plain.redundancy = "none";
        plain.shared_dir += "-plain";
        auto others = make_in_process_transports(hosts_);
        std::vector<double> blocked(level_.nodes);
        Times times;
        each_rank([&](int rank, Checkpointer& session, std::vector<std::byte>& state) {
            const std::shared_ptr<Transport> transport = std::move(others[static_cast<size_t>(rank)]);
            auto without = must(Checkpointer::open(plain, transport, storage_, storage_));
            must(without->register_region("state", state.data(), state.size()));
            const auto time = [&](Checkpointer& one, uint64_t epoch) {
                meet();
                const auto start = Clock::now();
                must(one.save(epoch));
                blocked[static_cast<size_t>(rank)] = seconds_since(start);
                must(one.wait(epoch, std::chrono::milliseconds(0)));
                meet();
                return *std::max_element(blocked.begin(), blocked.end());
            };
            for (int round = 0; round <= 2 * rounds; ++round) {
                const auto epoch = static_cast<uint64_t>(round) + 1;
                double with = 0, plainly = 0;
                if (round % 2 == 0) with = time(session, epoch);
                plainly = time(*without, epoch);
                if (round % 2 != 0) with = time(session, epoch);
                meet();
                if (rank != 0 || round == 0) continue;
                times.add(with, plainly);
            }
            must(without->close());
        });
        print("save", times, bytes_ * level_.nodes);
    }

    struct Times {
        std::vector<double> ours, alone, ratios;
        void add(double seconds, double alone_seconds) {
            ours.push_back(seconds);
            alone.push_back(alone_seconds);
            ratios.push_back(alone_seconds / seconds);
        }
    };

    template <class Alone>
    Times protect(int rounds, const Alone& alone) {
        Times times;
        each_rank([&](int rank, Checkpointer& session, std::vector<std::byte>& state) {
            for (int round = 0; round <= rounds; ++round) {
                std::fill_n(state.begin(), 4096, static_cast<std::byte>(round));
                const auto epoch = static_cast<uint64_t>(round) + 1;
                must(session.save(epoch));
                meet();
                const auto start = Clock::now();
                while (must(session.state(epoch)).losses_survived == 0)
                    std::this_thread::sleep_for(std::chrono::microseconds(200));
                meet();
                const double seconds = seconds_since(start);
                if (rank == 0 && round > 0) times.add(seconds, alone());  // the first one touches new memory
                meet();
            }
        });
        return times;
    }

    using Body = std::function<void(int rank, Checkpointer& session, std::vector<std::byte>& state)>;
    void each_rank(const Body& body) {
        auto transports = make_in_process_transports(hosts_);
        std::vector<std::thread> threads;
        for (uint32_t rank = 0; rank < level_.nodes; ++rank)
            threads.emplace_back([&, rank, transport = linked(std::move(transports[rank]))] {
                auto session = must(Checkpointer::open(config_, transport, storage_, storage_));
                std::vector<std::byte> state(bytes_, static_cast<std::byte>(rank + 1));
                must(session->register_region("state", state.data(), state.size()));
                body(static_cast<int>(rank), *session, state);
                must(session->close());
            });
        for (auto& thread : threads) thread.join();
    }

    std::shared_ptr<Transport> linked(std::unique_ptr<Transport> transport) const {
        if (link_bytes_per_second_ == 0) return transport;
        return std::make_shared<LinkedTransport>(std::move(transport), link_bytes_per_second_);
    }

    // All ranks wait for each other.
    void meet() {
        const uint32_t turn = turn_;
        if (++waiting_ == level_.nodes) {
            waiting_ = 0;
            ++turn_;
            turn_.notify_all();
        }
        turn_.wait(turn);
    }

    // The same reads, copies, sums, checksums and writes, by as many threads as there are processors.
    double protect_alone() {
        const uint64_t piece = bytes_ / level_.sources / block_bytes * block_bytes;
        std::vector<std::unique_ptr<File>> sources, targets;
        const std::string names = directory_ + "/alone";
        for (uint32_t node = 0; node < level_.nodes; ++node) {
            sources.push_back(must(storage_->open(part_of(node), {Access::read, DirectIo::off})));
            targets.push_back(
                must(storage_->open(fmt::format("{}{}", names, node), {Access::write, DirectIo::off})));
            must(targets.back()->reserve(0, piece * level_.pieces));
        }
        const SetCoding coding(std::max(level_.nodes, 2u), std::max(level_.pieces, 1u), block_bytes);
        const uint64_t blocks = piece * level_.pieces / block_bytes * level_.nodes;
        const auto start = Clock::now();
        in_threads(blocks, [&](uint64_t block, std::vector<std::vector<std::byte>>& memory) {
            const auto node = static_cast<uint32_t>(block % level_.nodes);
            const uint64_t offset = block / level_.nodes * block_bytes;
            std::vector<Product> products;
            memory.resize(2 * size_t{level_.sources} + 1);
            for (auto& buffer : memory) buffer.resize(block_bytes);
            for (uint32_t k = 0; k < level_.sources; ++k) {
                auto& read = memory[2 * k];
                auto& arrived = memory[2 * k + 1];
                (void)must(sources[(node + 1 + k) % level_.nodes]->read_at(read, k * piece + offset % piece));
                std::memcpy(arrived.data(), read.data(), block_bytes);
                products.push_back({level_.pieces > 1 ? coding.factor(0, k) : uint8_t{1}, arrived});
            }
            std::span<const std::byte> result = memory[1];
            if (level_.sources > 1) {
                set_to_sum(products, memory.back());
                result = memory.back();
            }
            checksums_ += crc32c(result.first(block_bytes / 2)) + crc32c(result.subspan(block_bytes / 2));
            must(targets[node]->write_at(result, offset));
        });
        return seconds_since(start);
    }

    void rebuild(int rounds) {
        Times times;
        const auto lost = tier().directory(1);
        for (int round = 0; round < rounds; ++round) {
            std::filesystem::remove_all(lost);
            must(storage_->make_own_directories(lost));
            const double seconds = rebuild_once();
            times.add(seconds, rebuild_alone());
        }
        print("rebuild", times, bytes_);
    }

    LocalTier tier() const { return local_tier(config_.local_dir, config_.shared_dir, config_.name); }

    double rebuild_once() {
        KnownParts known;
        for (uint32_t node = 0; node < level_.nodes; ++node)
            for (auto& part :
                 must(list_local(*storage_, tier().directory(static_cast<int>(node)), config_.name)).parts)
                known.parts.push_back({static_cast<int>(node), part.path, part.header});
        const auto topology = make_topology(hosts_, 0);
        auto transports = make_in_process_transports(hosts_);
        std::vector<std::thread> threads;
        const auto start = Clock::now();
        for (auto& transport : transports)
            threads.emplace_back([&, own = transport.get()] {
                const auto place = tier();
                const RebuildContext context{*own, *storage_, place, topology, hosts_, config_.name, false};
                const auto rebuilt = must(rebuild_lost_parts(context, known, {}));
                if (rebuilt.added.size() != 1) fail(Status(Code::not_found, "nothing was rebuilt"));
            });
        for (auto& thread : threads) thread.join();
        return seconds_since(start);
    }

    double rebuild_alone() {
        const auto source = must(storage_->open(part_of(0), {Access::read, DirectIo::off}));
        const auto target = must(storage_->open(directory_ + "/alone0", {Access::write, DirectIo::off}));
        const auto start = Clock::now();
        const uint64_t blocks = bytes_ / block_bytes;
        const auto pass = [&](bool write) {
            in_threads(blocks, [&](uint64_t block, std::vector<std::vector<std::byte>>& memory) {
                memory.resize(2);
                for (auto& buffer : memory) buffer.resize(block_bytes);
                (void)must((write ? source : target)->read_at(memory[0], block * block_bytes));
                checksums_ += crc32c(memory[0]);
                if (!write) return;
                std::memcpy(memory[1].data(), memory[0].data(), block_bytes);
                must(target->write_at(memory[1], block * block_bytes));
            });
        };
        pass(true);
        pass(false);
        return seconds_since(start);
    }

    template <class Work>
    void in_threads(uint64_t blocks, const Work& work) {
        std::atomic<uint64_t> next{0};
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
            threads.emplace_back([&] {
                std::vector<std::vector<std::byte>> memory;
                for (uint64_t block; (block = next++) < blocks;) work(block, memory);
            });
        for (auto& thread : threads) thread.join();
    }

    std::string part_of(uint32_t node) {
        const auto directory = tier().directory(static_cast<int>(node));
        for (const auto& entry : std::filesystem::directory_iterator(directory))
            if (entry.path().extension() == ".capture") return entry.path();
        fail(Status(Code::not_found, directory + " has no captured part"));
    }

    void print(const char* what, const Times& times, uint64_t bytes) const {
        const double mib = static_cast<double>(bytes) / static_cast<double>(MiB);
        std::vector<double> rates, alone_rates;
        for (const double seconds : times.ours) rates.push_back(mib / seconds);
        for (const double seconds : times.alone) alone_rates.push_back(mib / seconds);
        std::printf(
            "{\"what\": \"%s\", \"level\": \"%s\", \"nodes\": %u, \"mib_per_node\": %.0f, %s, %s, %s}\n",
            what, level_.redundancy, level_.nodes, static_cast<double>(bytes_) / static_cast<double>(MiB),
            json_of("mib_per_s", spread_of(rates)).c_str(),
            json_of("alone_mib_per_s", spread_of(alone_rates)).c_str(),
            json_of("ratio", spread_of(times.ratios)).c_str());
        std::fflush(stdout);
    }

    const Level level_;
    const uint64_t bytes_;
    const std::string directory_;
    Config config_;
    std::vector<std::string> hosts_;
    std::shared_ptr<Storage> storage_;
    double link_bytes_per_second_ = 0;  // 0: no link
    std::atomic<uint32_t> waiting_{0}, turn_{0};
    std::atomic<uint64_t> checksums_{0};  // so that nothing is left out as useless
};

}  // namespace

int main(int count, char** arguments) {
    int rounds = 9;
    uint64_t mib = 256, link = 500;
    std::string directory = "/dev/shm";
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string_view option = arguments[i];
        if (option == "--rounds") rounds = std::max(1, std::atoi(arguments[i + 1]));
        if (option == "--mib") mib = std::max<uint64_t>(8, std::strtoull(arguments[i + 1], nullptr, 10));
        if (option == "--link") link = std::max<uint64_t>(1, std::strtoull(arguments[i + 1], nullptr, 10));
        if (option == "--dir") directory = arguments[i + 1];
    }
    set_log_level(LogLevel::warning);
    const std::string own = fmt::format("{}/tailrace-protect-levels-{}", directory, getpid());
    const std::array levels = {Level{"partner", 2, 1, 1}, Level{"partner", 4, 1, 1}, Level{"xor", 4, 3, 1},
                               Level{"rs:2", 4, 2, 2}};
    for (const Level& level : levels) Bench(level, mib * MiB, own).run(rounds);
    for (const Level& level : levels)
        Bench(level, mib * MiB, own).run_over_link(rounds, static_cast<double>(link * MiB));
    return 0;
}
