// The exchange of manifests: that ranks which open an epoch together read each manifest once, and that damage
// in one tier, or in what came over the transport, costs nothing but another read.
#include "read/manifest_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "read/epoch_reader_fixture.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

constexpr uint64_t rows = 60, columns = 500;

// Rank `rank` of `count` has some rows of the grid, whose element i (row-major) is i.
ArrayPiece piece_of(int rank, int count) {
    const auto r = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(count);
    ArrayPiece piece;
    piece.type = ElementType::int32;
    piece.global_shape = {rows, columns};
    piece.offset = {rows * r / n, 0};
    piece.local_shape = {rows * (r + 1) / n - piece.offset[0], columns};
    return piece;
}

Bytes values_of(const ArrayPiece& piece) {
    return counting_array("", piece.global_shape, piece.offset, piece.local_shape).data;
}

void save_grid(Machines& machines, int nodes, int per_node) {
    run(job_on(machines, hosts_of(nodes, per_node)), [&](Checkpointer& session) {
        const ArrayPiece piece = piece_of(session.rank(), nodes * per_node);
        Bytes memory = values_of(piece);
        ASSERT_TRUE(session.register_array("grid", memory.data(), piece).ok());
        ASSERT_TRUE(session.save(1).ok());
        ASSERT_TRUE(session.close().ok());
    });
}

SharedEpoch epoch_in(Machines& machines) {
    auto listed = list_shared(*machines.shared, small_config().shared_dir, small_config().name);
    EXPECT_TRUE(listed.ok() && listed->size() == 1);
    auto loaded = load_shared_epoch(*machines.shared, listed->front());
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
}

void flip(Storage& storage, const std::string& path, uint64_t offset) {
    auto file = storage.open(path, {Access::write});
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    std::byte byte{};
    ASSERT_EQ(*(*file)->read_at(std::span(&byte, 1), offset), 1u);
    byte ^= std::byte{0x40};
    ASSERT_TRUE((*file)->write_at(std::span(&byte, 1), offset).ok() && (*file)->sync().ok());
}

void flip_shared_manifest(Machines& machines, uint32_t rank) {
    const SharedEpoch epoch = epoch_in(machines);
    const StreamExtent& head = epoch.streams[rank].extents.front();
    flip(*machines.shared, epoch.paths[head.file], head.file_offset + 20);
}

void flip_local_manifest(Machines& machines, const std::string& host, uint32_t rank) {
    Storage& local = *machines.local.at(host);
    const auto node = join_path("/local", local.list("/local").value()[0].name);
    flip(local, join_path(node, to_string(PartFileName{"job", {1, 1}, rank, false})), part_header_bytes + 20);
}

void expect_whole_grid(EpochReader& reader) {
    const ArrayPiece whole = piece_of(0, 1);
    Bytes memory(values_of(whole).size());
    const Status status = reader.read_box("grid", whole.offset, whole.local_shape, memory);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(memory, values_of(whole));
}

class ManifestExchangeTest : public testing::Test {
  protected:
    void SetUp() override {
        set_log_callback([](LogLevel, std::string_view) {});
    }
    void TearDown() override { set_log_callback({}); }

    // How many reads begin at each manifest in the shared files while `body` runs on every rank.
    std::vector<long> manifest_reads(const std::vector<std::string>& hosts,
                                     const std::function<void(Checkpointer&)>& body) {
        const SharedEpoch epoch = epoch_in(machines);
        Job job = job_on(machines, hosts);
        CallLog log;
        job.shared = std::make_shared<CountingStorage>(*machines.shared, log);
        run(job, body);
        std::vector<long> reads;
        for (const StreamMap& stream : epoch.streams) {
            const StreamExtent& head = stream.extents.front();
            reads.push_back(std::count_if(log.calls.begin(), log.calls.end(), [&](const Call& call) {
                return call.path == epoch.paths[head.file] && call.offset == head.file_offset;
            }));
        }
        return reads;
    }

    Machines machines;
};

TEST_F(ManifestExchangeTest, RanksThatOpenAnEpochReadEachManifestOnce) {
    save_grid(machines, 3, 2);
    machines.local.clear();
    const auto reads = manifest_reads(hosts_of(2, 2), [](Checkpointer& session) {
        auto reader = session.open_epoch(std::nullopt, std::nullopt, false);
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_TRUE((*reader)->arrays()->front().complete);
        expect_whole_grid(**reader);
    });
    EXPECT_THAT(reads, testing::ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST_F(ManifestExchangeTest, ElasticRestoreReadsEachManifestOnce) {
    save_grid(machines, 3, 1);
    machines.local.clear();
    const auto reads = manifest_reads(hosts_of(5, 1), [](Checkpointer& session) {
        const ArrayPiece piece = piece_of(session.rank(), 5);
        Bytes memory(values_of(piece).size());
        ASSERT_TRUE(session.register_array("grid", memory.data(), piece).ok());
        const auto restored = session.restore(std::nullopt, {});
        ASSERT_TRUE(restored.ok()) << restored.status().to_string();
        EXPECT_EQ(memory, values_of(piece));
    });
    EXPECT_THAT(reads, testing::ElementsAre(1, 1, 1));
}

// On two machines: no rank can open the captured part of the other, so both open the shared files and prefer
// their own part.
TEST_F(ManifestExchangeTest, ManifestDamagedInOneTierComesFromTheOther) {
    for (const bool damage_local : {true, false}) {
        machines = Machines();
        save_grid(machines, 2, 1);
        if (damage_local)
            flip_local_manifest(machines, "m1", 1);
        else
            flip_shared_manifest(machines, 1);  // then only rank 1 can read it, in its own part
        run(job_on(machines, hosts_of(2, 1)), [](Checkpointer& session) {
            auto reader = session.open_epoch(std::nullopt, std::nullopt, false);
            ASSERT_TRUE(reader.ok()) << reader.status().to_string();
            expect_whole_grid(**reader);
        });
    }
}

TEST_F(ManifestExchangeTest, ManifestDamagedInEveryTierIsCorruptAndTheOtherRanksCanBeRead) {
    save_grid(machines, 2, 1);
    flip_local_manifest(machines, "m1", 1);
    flip_shared_manifest(machines, 1);
    run(job_on(machines, hosts_of(2, 1)), [](Checkpointer& session) {
        auto reader = session.open_epoch(std::nullopt, std::nullopt, false);
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_EQ((*reader)->arrays().status().code(), Code::corrupt);
        Bytes memory(values_of(piece_of(0, 2)).size());
        const RegionTarget target{"grid", memory};
        EXPECT_TRUE((*reader)->read_regions(0, {&target, 1}).ok());
        EXPECT_EQ(memory, values_of(piece_of(0, 2)));
    });
}

// ---- what came over the transport ----------------------------------------------------------------------

using KeptManifestTest = EpochReaderTest;

TEST_F(KeptManifestTest, WhatIsKeptIsNotReadAgain) {
    const BuiltEpoch epoch = one_region(1000);
    auto source = write_and_open(epoch);
    auto bytes = source->manifest_bytes(0);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    auto target = open(epoch, From::shared);
    log_.clear();
    ASSERT_EQ(target->keep_manifest(0, *bytes).to_string(), "ok");
    ASSERT_TRUE(target->manifest(0).ok());
    EXPECT_EQ((*target->manifest(0))->regions.front().name, "density");
    EXPECT_TRUE(log_.calls.empty());
    // A second one changes nothing: what was handed out stays where it is.
    const PartManifest* const first = *target->manifest(0);
    EXPECT_EQ(target->keep_manifest(0, *bytes).to_string(), "ok");
    EXPECT_EQ(*target->manifest(0), first);
}

TEST_F(KeptManifestTest, WhatIsNotThisRanksManifestIsRefusedAndReadFromTheFiles) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 10), {}}}, {{"b", pattern(2, 10), {}}}};
    auto reader = write_and_open(epoch);
    const auto right = *reader->manifest_bytes(0);
    for (size_t i = 0; i < right.size(); ++i) {
        auto flipped = right;
        flipped[i] ^= std::byte{0x40};
        ASSERT_EQ(reader->keep_manifest(0, flipped).code(), Code::corrupt) << "byte " << i;
    }
    EXPECT_EQ(reader->keep_manifest(0, std::span(right).first(right.size() - 1)).code(), Code::corrupt);
    EXPECT_EQ(reader->keep_manifest(0, {}).code(), Code::corrupt);
    // A sound one of the same rank and sizes, but of other data.
    BuiltEpoch other = epoch;
    other.ranks[0][0].data = pattern(7, 10);
    ASSERT_TRUE(write_captured_parts(memory_, "/local", other).ok());
    const auto of_other = *open(other, From::local)->manifest_bytes(0);
    ASSERT_EQ(of_other.size(), right.size());
    EXPECT_EQ(reader->keep_manifest(0, of_other).code(), Code::corrupt);
    EXPECT_EQ(reader->keep_manifest(1, right).code(), Code::corrupt);
    EXPECT_EQ(reader->keep_manifest(2, right).code(), Code::not_found);
    log_.clear();
    EXPECT_EQ((*reader->manifest(0))->regions.front().name, "a");
    EXPECT_EQ((*reader->manifest(1))->regions.front().name, "b");
    EXPECT_EQ(log_.calls.size(), 2u);
}

}  // namespace
}  // namespace tailrace::internal
