// EpochReaderTest: writes epochs to a storage in memory, damages them, and opens them with an EpochReader
// that reads through a CountingStorage. Prints its seed when a test failed.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "doubles/memory_storage.h"
#include "read/counting_storage.h"
#include "read/epoch_builder.h"
#include "read/epoch_reader.h"
#include "read/epoch_reader_plan.h"

namespace tailrace::internal::testing_support {

using Bytes = std::vector<std::byte>;

// The tiers an epoch is written to and read from.
enum class From { shared, local, both };

class EpochReaderTest : public testing::Test {
  protected:
    EpochReaderTest() {
        const char* given = std::getenv("TAILRACE_SEED");
        seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
        random_.seed(seed_);
        set_log_level(LogLevel::warning);
        set_log_callback([this](LogLevel level, std::string_view message) {
            std::lock_guard lock(warnings_mutex_);
            if (level == LogLevel::warning) warnings_.emplace_back(message);
        });
    }
    ~EpochReaderTest() override {
        set_log_callback({});
        if (HasFailure())
            std::printf("replay with TAILRACE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    }

    void expect_whole_pages_forwards() {
        for (size_t i = 1; i < log_.calls.size(); ++i) {
            const Call &call = log_.calls[i], &before = log_.calls[i - 1];
            EXPECT_EQ(call.offset % 4096, 0u);
            EXPECT_GE(call.offset, before.offset + before.bytes);
        }
    }

    // Writes the epoch to the memory storage and opens it.
    std::unique_ptr<EpochReader> write_and_open(const BuiltEpoch& epoch, From from = From::shared) {
        if (from != From::local) {
            EXPECT_EQ(write_shared_files(memory_, "/shared", epoch).to_string(), "ok");
        }
        if (from != From::shared) {
            EXPECT_EQ(write_captured_parts(memory_, "/local", epoch).to_string(), "ok");
        }
        return open(epoch, from);
    }
    EpochSources sources(const BuiltEpoch& epoch, From from) {
        EpochSources found{epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, {}};
        if (from != From::local) {
            auto listed = list_shared(memory_, "/shared", epoch.job);
            EXPECT_TRUE(listed.ok()) << listed.status().to_string();
            auto loaded = load_shared_epoch(memory_, listed->back());
            EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
            if (loaded.ok()) found.shared = std::move(*loaded);
        }
        if (from != From::shared) {
            auto listed = list_local(memory_, "/local", epoch.job);
            EXPECT_TRUE(listed.ok()) << listed.status().to_string();
            found.local_parts = listed->parts;
        }
        return found;
    }
    std::unique_ptr<EpochReader> open(const BuiltEpoch& epoch, From from) {
        auto reader = EpochReader::open(counted_, counted_, sources(epoch, from));
        EXPECT_TRUE(reader.ok()) << reader.status().to_string();
        return reader.ok() ? std::move(*reader) : nullptr;
    }

    // Inverts a byte of a rank's stream wherever it lies.
    void flip_in_shared(const BuiltEpoch& epoch, uint32_t rank, uint64_t stream_offset) {
        const auto found = sources(epoch, From::shared);
        const auto& extent = extent_at(found.shared->streams[rank].extents, stream_offset);
        flip(found.shared->paths[extent.file], extent.file_offset + (stream_offset - extent.stream_offset));
    }
    void flip_in_local(const BuiltEpoch& epoch, uint32_t rank, uint64_t stream_offset) {
        flip(join_path("/local", to_string(PartFileName{epoch.job, epoch.key, rank, false})),
             part_header_bytes + stream_offset);
    }
    void flip(const std::string& path, uint64_t offset) {
        auto file = memory_.open(path, {Access::write});
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        std::byte byte{};
        ASSERT_EQ(*(*file)->read_at(std::span(&byte, 1), offset), 1u);
        byte ^= std::byte{0x40};
        ASSERT_TRUE((*file)->write_at(std::span(&byte, 1), offset).ok());
    }

    static uint64_t place_of(EpochReader& reader, uint32_t rank, const std::string& name) {
        return find_region(**reader.manifest(rank), name)->stream_offset;
    }

    static Status read_one(EpochReader& reader, uint32_t rank, const std::string& name, Bytes& target) {
        const RegionTarget targets[] = {{name, target}};
        return reader.read_regions(rank, targets);
    }

    // Everything a rank saved, in one call; compares.
    static void expect_rank_reads_back(EpochReader& reader, const BuiltEpoch& epoch, uint32_t rank) {
        std::vector<Bytes> memory;
        std::vector<RegionTarget> targets;
        for (const BuiltRegion& region : epoch.ranks[rank]) memory.emplace_back(region.data.size());
        for (size_t r = 0; r < memory.size(); ++r) targets.push_back({epoch.ranks[rank][r].name, memory[r]});
        const Status status = reader.read_regions(rank, targets);
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (size_t r = 0; r < memory.size(); ++r)
            ASSERT_EQ(memory[r], epoch.ranks[rank][r].data)
                << "rank " << rank << " region " << targets[r].name;
    }

    BuiltEpoch random_epoch() {
        BuiltEpoch epoch;
        epoch.seed = random_();
        epoch.file_count = static_cast<uint32_t>(1 + random_() % 4);
        epoch.leaders_per_file = static_cast<uint32_t>(1 + random_() % 3);
        epoch.block_bytes = uint64_t{512} << (random_() % 4);
        epoch.chunk_bytes = epoch.block_bytes * (1 + random_() % 64);
        epoch.stripe_bytes = epoch.block_bytes * (1 + random_() % 64);
        epoch.has_checksums = random_() % 4 != 0;
        epoch.ranks.resize(1 + random_() % 5);
        for (auto& rank : epoch.ranks) {
            const size_t regions = random_() % 12;
            for (size_t r = 0; r < regions; ++r) {
                const uint64_t sizes[] = {0,
                                          1,
                                          random_() % 1000,
                                          random_() % 100000,
                                          uint64_t{check_block_bytes},
                                          random_() % (2 * MiB)};
                rank.push_back({"region " + std::to_string(r), pattern(random_(), sizes[random_() % 6]), {}});
            }
        }
        return epoch;
    }

    uint64_t seed_ = 0;
    std::mt19937_64 random_;
    MemoryStorage memory_;
    CallLog log_;
    CountingStorage counted_{memory_, log_};
    std::mutex warnings_mutex_;
    std::vector<std::string> warnings_;
};

// One rank with a region of `bytes`.
inline BuiltEpoch one_region(uint64_t bytes) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"density", pattern(1, bytes), {}}}};
    return epoch;
}

}  // namespace tailrace::internal::testing_support
