// What commits can be restored, on any number of ranks; what cannot is refused before it is committed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <thread>

#include "array/random_arrays.h"
#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "read/array_judge.h"
#include "session/sample_program.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

ArrayPiece piece_of(std::vector<uint64_t> shape, std::vector<uint64_t> offset, std::vector<uint64_t> local) {
    return {ElementType::uint32, std::move(shape), std::move(offset), std::move(local)};
}

// The arrays of a rank, in memory of their own.
class Registered {
  public:
    explicit Registered(Checkpointer& session) : session_(session) {}
    void put(const std::string& name, const std::optional<ArrayPiece>& piece) {
        auto& memory = memory_[name];
        (void)session_.unregister(name);
        if (!piece) return;
        memory = memory_of(*piece, static_cast<uint32_t>(session_.rank()));
        const Status registered = session_.register_array(name, memory.data(), *piece);
        ASSERT_TRUE(registered.ok()) << registered.to_string();
    }
    void put(const RandomArray& array) {
        put(array.name, array.pieces.at(static_cast<size_t>(session_.rank())));
    }
    Status save(uint64_t epoch) {
        const Status saved = session_.save(epoch);
        return saved.ok() ? session_.wait(epoch, for_ever) : saved;
    }

  private:
    Checkpointer& session_;
    std::map<std::string, std::vector<uint32_t>> memory_;
};

// Every element of the array that some rank saved, read back one by one.
void expect_array(EpochReader& reader, const RandomArray& array) {
    const auto first = std::find_if(array.pieces.begin(), array.pieces.end(),
                                    [](const auto& piece) { return piece.has_value(); });
    if (first == array.pieces.end()) return;
    const auto& shape = (*first)->global_shape;
    const auto whole = expected_whole(array);
    for (uint64_t at = 0; at < whole.size(); ++at) {
        if (!whole[at]) continue;
        std::vector<uint64_t> offset(shape.size());
        uint64_t rest = at;
        for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) offset[d] = rest % shape[d];
        uint32_t value = 0;
        const Status read = reader.read_box(array.name, offset, std::vector<uint64_t>(shape.size(), 1),
                                            std::as_writable_bytes(std::span(&value, 1)));
        ASSERT_TRUE(read.ok()) << read.to_string();
        ASSERT_EQ(value, *whole[at]) << array.name << " at " << at;
    }
}

uint64_t files_of_epoch(Machines& machines, const Config& config, uint64_t epoch) {
    uint64_t files = 0;
    auto listed = list_shared(*machines.shared, config.shared_dir, config.name);
    if (listed.ok())
        for (const auto& one : *listed)
            if (one.key.epoch == epoch) files += one.files.size();
    return files;
}

void round_with_random_pieces(uint64_t seed) {
    std::mt19937_64 random(seed);
    const int nodes = static_cast<int>(1 + random() % 4), per_node = static_cast<int>(1 + random() % 2);
    const auto ranks = static_cast<size_t>(nodes * per_node);
    std::vector<RandomArray> arrays;
    for (size_t a = 1 + random() % 3; a > 0; --a)
        arrays.push_back(random_array(random, "array " + std::to_string(a), ranks));
    const bool good = std::all_of(arrays.begin(), arrays.end(), may_be_committed);
    RandomArray base{"base", {}};
    for (size_t rank = 0; rank < ranks; ++rank)
        base.pieces.push_back(piece_of({ranks, 2}, {rank, 0}, {1, 2}));

    Machines machines;
    Job job = job_on(machines, hosts_of(nodes, per_node));
    job.concurrent = random() % 3 > 0;
    job.config.keep_shared = 1;
    job.config.files = static_cast<uint32_t>(1 + random() % 3);
    job.config.queue_policy = static_cast<QueuePolicy>(random() % 3);
    run(job, [&](Checkpointer& session) {
        Registered registered(session);
        registered.put(base);
        ASSERT_TRUE(registered.save(1).ok());
        for (const auto& array : arrays) registered.put(array);
        const Status second = registered.save(2);
        EXPECT_EQ(second.ok(), good) << second.to_string();
        if (!good) {
            EXPECT_EQ(second.code(), Code::invalid_argument);
            const bool names_one = std::any_of(arrays.begin(), arrays.end(), [&](const RandomArray& array) {
                return !may_be_committed(array) &&
                       second.message().find("'" + array.name + "'") != std::string::npos;
            });
            EXPECT_TRUE(names_one) << second.to_string();
            EXPECT_FALSE(session.close().ok());
        }
    });
    EXPECT_EQ(files_of_epoch(machines, job.config, 2), good ? job.config.files : 0u);
    EXPECT_EQ(files_of_epoch(machines, job.config, 1), good ? 0u : job.config.files);

    // On other ranks, from the shared directory alone now and then.
    if (random() % 2 == 0) machines.local.clear();
    Job next = job_on(machines, hosts_of(static_cast<int>(1 + random() % 8), 1));
    next.config = job.config;
    next.concurrent = job.concurrent;
    run(next, [&](Checkpointer& session) {
        auto reader = session.open_epoch(std::nullopt, std::nullopt, true);
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_EQ((*reader)->key().epoch, good ? 2u : 1u);
        expect_array(**reader, base);
        if (good)
            for (const auto& array : arrays) expect_array(**reader, array);
    });
}

TEST(ArrayCommitTest, WhatCommitsRestoresOnAnyNumberOfRanksAndWhatIsRefusedIsNamed) {
    const char* given = std::getenv("TAILRACE_SEED");
    const uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    const uint64_t rounds = given != nullptr ? 1 : 60;
    std::cout << "seeds " << first << " to " << first + rounds - 1 << " (TAILRACE_SEED=n replays one)\n";
    for (uint64_t seed = first; seed < first + rounds && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("TAILRACE_SEED=" + std::to_string(seed));
        round_with_random_pieces(seed);
    }
}

// One scenario in every way in which ranks may communicate.
class ArrayRefusalTest : public testing::TestWithParam<bool> {
  protected:
    Job job_of(int nodes, int per_node) {
        Job job = job_on(machines_, hosts_of(nodes, per_node));
        job.concurrent = GetParam();
        job.config.keep_shared = 1;
        return job;
    }
    Machines machines_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, ArrayRefusalTest, testing::Bool(), [](const auto& way) {
    return std::string(way.param ? "Concurrent" : "InCollectiveCallsOnly");
});

TEST_P(ArrayRefusalTest, ARefusedEpochLeavesTheEarlierOneAndTheNextSaveWorks) {
    const Job job = job_of(2, 2);
    run(job, [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        Registered registered(session);
        registered.put("u", piece_of({16}, {4 * rank}, {4}));
        ASSERT_TRUE(registered.save(1).ok());
        registered.put("u", piece_of({16}, {4 * rank}, {rank == 2 ? 2u : 4u}));
        const Status refused = registered.save(2);
        EXPECT_EQ(refused.code(), Code::invalid_argument);
        EXPECT_THAT(
            refused.message(),
            HasSubstr("elements [10:12] of array 'u' (uint32 [16]) are in no rank's piece: the nearest "
                      "is [8:10] of rank 2"));
        EXPECT_THAT(refused.message(), HasSubstr("earlier epochs are intact"));
        std::vector<uint32_t> memory(4);
        ASSERT_TRUE(session.update_array("u", memory.data(), piece_of({16}, {4 * rank}, {4})).ok());
        const auto restored = session.restore(std::nullopt, {});
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(*restored, 1u);
        EXPECT_EQ(memory, memory_of(piece_of({16}, {4 * rank}, {4}), session.rank()));
        EXPECT_THAT(session.restore(2, {}).status().message(), HasSubstr("there is no complete epoch 2"));
        registered.put("u", piece_of({16}, {4 * rank}, {4}));
        EXPECT_TRUE(registered.save(3).ok());
        EXPECT_THAT(session.close().message(), HasSubstr("elements [10:12]"));
    });
    EXPECT_EQ(files_of_epoch(machines_, job.config, 1), 0u);
    EXPECT_EQ(files_of_epoch(machines_, job.config, 2), 0u);
    EXPECT_EQ(files_of_epoch(machines_, job.config, 3), job.config.files);
    run(job, [&](Checkpointer& session) {
        const auto listed = session.list();
        ASSERT_TRUE(listed.ok());
        for (const auto& epoch : *listed) EXPECT_NE(epoch.epoch, 2u);
    });
}

TEST_P(ArrayRefusalTest, OverlapsDifferingShapesAndUndeclaredGapsAreRefusedAndDeclaredOnesAreNot) {
    run(job_of(2, 1), [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        Registered registered(session);
        registered.put("u", piece_of({8}, {4 * rank}, {4}));
        registered.put("v", piece_of({8}, {3 * rank}, {5}));
        EXPECT_THAT(
            registered.save(1).message(),
            HasSubstr("elements [3:5] of array 'v' (uint32 [8]) are in two pieces: [0:5] of rank 0 and "
                      "[3:8] of rank 1"));
        registered.put("v", piece_of({8 + rank}, {0}, {8 + rank}));
        EXPECT_THAT(registered.save(2).message(), HasSubstr("array 'v' cannot be put together: rank 0 saves "
                                                            "[0:8] of uint32 [8], and rank 1 saves [0:9] of "
                                                            "uint32 [9]"));
        registered.put("v", rank == 0 ? std::optional(piece_of({8}, {0}, {4})) : std::nullopt);
        EXPECT_THAT(registered.save(3).message(), HasSubstr("rank 1 has no piece"));
        registered.put("v", piece_of({8}, {0}, {0}));
        EXPECT_THAT(registered.save(4).message(), HasSubstr("all others are empty"));
        auto declared = piece_of({8}, {3 * rank}, {4});
        declared.may_have_gaps = declared.may_overlap = true;
        registered.put("v", declared);
        EXPECT_TRUE(registered.save(5).ok());
        (void)session.close();
    });
}

// shared_every keeps every second epoch in the node-local tier: judged all the same, and neither offered nor
// counted.
TEST_P(ArrayRefusalTest, WhatStaysInTheNodeLocalTierIsJudgedAsWell) {
    Job job = job_of(2, 1);
    job.config.shared_every = 100;
    job.config.keep_local = 2;
    run(job, [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        Registered registered(session);
        registered.put("u", piece_of({8}, {4 * rank}, {4}));
        ASSERT_TRUE(registered.save(1).ok());
        ASSERT_TRUE(registered.save(2).ok());
        registered.put("u", piece_of({8}, {4 * rank}, {3}));
        for (uint64_t epoch = 3; epoch < 8; ++epoch)
            EXPECT_EQ(registered.save(epoch).code(), Code::invalid_argument);
        std::vector<uint32_t> memory(4);
        ASSERT_TRUE(session.update_array("u", memory.data(), piece_of({8}, {4 * rank}, {4})).ok());
        const auto restored = session.restore(std::nullopt, {});
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(*restored, 2u);
        (void)session.close();
    });
}

// Parts that were captured and never judged: an earlier version's, or those of a program that was killed in
// between.
TEST_P(ArrayRefusalTest, RecoveryPassesOverWhatCannotBeRestored) {
    Job first = job_of(2, 1);
    first.config.keep_local = 4;
    first.config.shared_every = 100;
    run(first, [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        Registered registered(session);
        registered.put("u", piece_of({8}, {4 * rank}, {4}));
        ASSERT_TRUE(registered.save(1).ok());
        ASSERT_TRUE(registered.save(2).ok());
    });
    // Epoch 3 is put there as its ranks would have captured it.
    for (auto& [host, storage] : machines_.local) {
        auto directories = storage->list("/local");
        ASSERT_TRUE(directories.ok());
        for (const auto& directory : *directories) {
            const std::string path = "/local/" + directory.name;
            auto listing = list_local(*storage, path, first.config.name);
            ASSERT_TRUE(listing.ok());
            for (const auto& part : listing->parts) {
                if (part.header.key.epoch != 2) continue;
                const auto rank = part.header.stream.rank;
                PartManifest manifest{rank, 2, true, 0, 0, false, {}};
                Region region;
                region.name = "u";
                region.bytes = 12;
                region.array = piece_of({8}, {4 * rank}, {3});
                manifest.regions.push_back(region);
                ASSERT_TRUE(lay_out(manifest).ok());
                const std::vector<std::byte> data(12);
                manifest.regions[0].block_crcs[0] = crc32c(data);
                PartHeader header = part.header;
                header.key.epoch = 3;
                header.sequence = 3;
                const auto encoded = encode(manifest);
                header.stream = {rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(encoded)};
                auto file = storage->open(
                    join_path(path, to_string(PartFileName{header.job, header.key, rank, false})),
                    {Access::create_new, DirectIo::off});
                ASSERT_TRUE(file.ok());
                ASSERT_TRUE((*file)->write_at(encode(header), 0).ok());
                ASSERT_TRUE((*file)->write_at(encoded, part_header_bytes).ok());
                ASSERT_TRUE(
                    (*file)->write_at(data, part_header_bytes + manifest.regions[0].stream_offset).ok());
            }
        }
    }
    Job next = job_of(2, 1);
    run(next, [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        std::vector<uint32_t> memory(4);
        ASSERT_TRUE(session.register_array("u", memory.data(), piece_of({8}, {4 * rank}, {4})).ok());
        const auto restored = session.restore(std::nullopt, {});
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(*restored, 2u);
        const auto listed = session.list();
        ASSERT_TRUE(listed.ok());
        for (const auto& epoch : *listed) EXPECT_NE(epoch.epoch, 3u);
    });
    EXPECT_EQ(files_of_epoch(machines_, next.config, 3), 0u);
    EXPECT_EQ(files_of_epoch(machines_, next.config, 2), next.config.files);
}

// Node 1 can still say that it has captured the epoch, and not what its tables say.
TEST(ArrayCommitTest, WhatEndsBetweenCaptureAndVerdictIsNotCommittedAndRecovered) {
    Machines machines;
    Job job = job_on(machines, hosts_of(2, 1));
    job.breaks = [](int rank, TransportCall kind, uint64_t calls) {
        return rank == 1 && kind == TransportCall::post && calls == 1;
    };
    const auto piece = [](uint64_t rank) { return piece_of({8}, {4 * rank}, {4}); };
    run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
        ASSERT_NE(session, nullptr) << opened.to_string();
        Registered registered(*session);
        registered.put("u", piece(static_cast<uint64_t>(rank)));
        EXPECT_FALSE(registered.save(1).ok());
        (void)session->close();
    });
    auto listed = list_shared(*machines.shared, job.config.shared_dir, job.config.name);
    ASSERT_TRUE(listed.ok());
    for (const auto& files : *listed) EXPECT_FALSE(load_shared_epoch(*machines.shared, files).ok());
    job.breaks = nullptr;
    run(job, [&](Checkpointer& session) {
        std::vector<uint32_t> memory(4);
        const auto own = piece(static_cast<uint64_t>(session.rank()));
        ASSERT_TRUE(session.register_array("u", memory.data(), own).ok());
        const auto restored = session.restore(std::nullopt, {});
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(memory, memory_of(own, static_cast<uint32_t>(session.rank())));
    });
    EXPECT_EQ(files_of_epoch(machines, job.config, 1), job.config.files);
}

// What node 1 posts: that it has captured an epoch, that its parts are sound, and how its group ended; and
// what its tables say, when they changed.
TEST(ArrayCommitTest, AProgramThatRegistersTheSameAsBeforeIsNotAskedAgain) {
    Machines machines;
    Job job = job_on(machines, hosts_of(2, 1));
    job.config.record = false;
    std::atomic<uint64_t> posts{0};
    job.breaks = [&](int rank, TransportCall kind, uint64_t) {
        if (rank == 1 && kind == TransportCall::post) ++posts;
        return false;
    };
    std::vector<uint64_t> after;
    run(job, [&](Checkpointer& session) {
        const auto rank = static_cast<uint64_t>(session.rank());
        Registered registered(session);
        for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
            registered.put("u",
                           piece_of({epoch < 4 ? 8u : 10u}, {4 * rank}, {epoch == 4 && rank == 1 ? 6u : 4u}));
            ASSERT_TRUE(registered.save(epoch).ok());
            if (rank == 1) after.push_back(posts);
        }
    });
    ASSERT_EQ(after.size(), 4u);
    EXPECT_EQ(after[0], 4u);
    EXPECT_EQ(after[1] - after[0], 3u);
    EXPECT_EQ(after[2] - after[1], 3u);
    EXPECT_EQ(after[3] - after[2], 4u);
}

// In collective calls summaries go in slices.
TEST(ArrayCommitTest, ManyArraysAreJudgedTogetherInSlices) {
    constexpr uint32_t ranks = 3, arrays = 500;
    for (const bool gap : {false, true}) {
        auto transports = make_in_process_transports(hosts_of(3, 1), false);
        std::vector<std::thread> threads;
        std::vector<Status> verdicts(ranks);
        for (uint32_t rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                const ArrayPoints points(7);
                std::vector<std::string> names;
                std::vector<ArrayPiece> pieces;
                for (uint32_t a = 0; a < arrays; ++a) {
                    names.push_back("array " + std::to_string(a));
                    const uint64_t rows = gap && rank == 2 ? 1 : 2;
                    pieces.push_back(piece_of({6}, {2 * rank}, {rows}));
                }
                std::vector<NamedPiece> table;
                for (uint32_t a = 0; a < arrays; ++a) table.push_back({names[a], &pieces[a]});
                const auto judged = judge_together(
                    *transports[rank], ranks,
                    [&](const ArrayQuestion& question) {
                        ArrayFacts facts;
                        facts.add(points, question, rank, table);
                        return facts;
                    },
                    1);
                verdicts[rank] = judged.ok() ? *judged->verdict : judged.status();
            });
        for (auto& thread : threads) thread.join();
        for (const auto& verdict : verdicts) {
            EXPECT_EQ(verdict.ok(), !gap) << verdict.to_string();
            EXPECT_THAT(verdict.message(), HasSubstr(gap ? "(499 more of its arrays" : ""));
        }
    }
}

}  // namespace
}  // namespace tailrace::internal
