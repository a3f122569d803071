// Calls beyond what 32 bits can count: more than 2^31 bytes of one rank, far behind the 4 GiB border of the
// file, and what has to be said of more than 2^31 requests. The file makes its bytes up and checks those it
// is given, and a rank's requests all have the same memory, so that the test itself needs next to none.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>

#include "base/units.h"
#include "collective/call_message.h"
#include "collective/team.h"
#include "doubles/memory_storage.h"
#include "requests/statistics.h"

namespace tailrace::internal::collective {

namespace {

// The file in units: 64 KiB of the first rank, then two small pieces of the others.
constexpr uint64_t begin_of_file = uint64_t{3} << 32;
constexpr uint64_t large = 64 * KiB, small = 512, unit = large + 2 * small;
constexpr uint64_t units = (uint64_t{1} << 31) / large + 100;
constexpr uint64_t piece_bytes[] = {large, small, small};
constexpr uint64_t piece_begin[] = {0, large, large + small};

std::byte byte_of_rank(int rank) {
    return static_cast<std::byte>('A' + rank);
}

// Calls use(rank, part) for the pieces of `range`.
template <class Use>
void for_each_piece(const FileWindow& range, Use use) {
    for (uint64_t at = begin_of_file + (range.begin - begin_of_file) / unit * unit; at < range.end;
         at += unit)
        for (int rank = 0; rank < 3; ++rank) {
            const Request part = clip({at + piece_begin[rank], piece_bytes[rank]}, range);
            if (part.bytes > 0) use(rank, part);
        }
}

uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    uint64_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

struct Seen {
    std::atomic<uint64_t> bytes = 0;  // that went in or out
    std::atomic<uint64_t> wrong = 0;  // writes with other bytes than they should have
    std::atomic<uint64_t> most_resident = 0;
    void note(uint64_t more) {
        bytes += more;
        const uint64_t now = resident_bytes();
        for (uint64_t most = most_resident; now > most && !most_resident.compare_exchange_weak(most, now);) {
        }
    }
};

class MadeUpFile final : public File {
  public:
    explicit MadeUpFile(Seen& seen) : seen_(seen) {}

    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        seen_.note(target.size());
        for_each_piece({offset, offset + target.size()}, [&](int rank, const Request& part) {
            std::fill_n(target.data() + (part.offset - offset), part.bytes, byte_of_rank(rank));
        });
        return target.size();
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        seen_.note(source.size());
        for_each_piece({offset, offset + source.size()}, [&](int rank, const Request& part) {
            const std::byte* first = source.data() + (part.offset - offset);
            if (first[0] != byte_of_rank(rank) || first[part.bytes - 1] != byte_of_rank(rank)) ++seen_.wrong;
        });
        return Status();
    }
    Status reserve(uint64_t, uint64_t) override { return Status(); }
    Status truncate(uint64_t) override { return Status(); }
    Status sync() override { return Status(); }
    Result<uint64_t> size() override { return begin_of_file + units * unit; }
    Status close() override { return Status(); }
    const std::string& path() const override { return path_; }

  private:
    Seen& seen_;
    const std::string path_ = team_path;
};

class MadeUpStorage final : public MemoryStorage {
  public:
    explicit MadeUpStorage(Seen& seen) : seen_(seen) {}
    Result<std::unique_ptr<File>> open(const std::string&, const OpenOptions&) override {
        return std::unique_ptr<File>(std::make_unique<MadeUpFile>(seen_));
    }

  private:
    Seen& seen_;
};

}  // namespace

TEST(LargeCallsTest, MoreThan2GiBPassThroughBoundedMemory) {
    constexpr uint64_t window = 1 * MiB;
    for (const bool writes : {true, false}) {
        Seen seen;
        const auto storage = std::make_shared<MadeUpStorage>(seen);
        Options options;
        options.mode = Mode::write;
        options.plan.local_aggregators_per_node = 1;
        options.plan.domains.window_bytes = window;
        std::atomic<uint64_t> before = 0;
        const auto outcomes =
            run_team({"a", "a", "b"}, storage, options, [&](int rank, CollectiveFile& file) {
                const auto r = static_cast<size_t>(rank);
                RankAccess access;
                std::vector<std::byte> memory(piece_bytes[r], writes ? byte_of_rank(rank) : std::byte{0});
                for (uint64_t i = 0; i < units; ++i)
                    access.requests.push_back({begin_of_file + i * unit + piece_begin[r], piece_bytes[r]});
                access.memory =
                    MemoryList(std::vector<MemoryList::Memory>(units, MemoryList::Memory(memory)));
                (void)file.statistics();  // all have their lists
                if (rank == 0) before = resident_bytes();
                (void)file.statistics();
                const auto moved = writes ? file.write(std::move(access)) : file.read(std::move(access));
                if (!moved.ok()) return moved.status();
                EXPECT_EQ(*moved, units * piece_bytes[r]);
                EXPECT_TRUE(std::all_of(memory.begin(), memory.end(),
                                        [&](std::byte byte) { return byte == byte_of_rank(rank); }));
                return Status();
            });
        for (const Status& outcome : outcomes) ASSERT_TRUE(outcome.ok()) << outcome.message();
        EXPECT_EQ(seen.bytes, units * unit);
        EXPECT_EQ(seen.wrong, 0u);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        std::puts("the memory is not compared: a sanitizer's cannot be told from the library's");
#else
        // Two nodes: two slots of a local and three buffers of a global aggregator on each, all ranks' lists
        // a second time where their aggregators see them, and the windows' numbers, stacks and messages.
        constexpr uint64_t lists = 3 * units * sizeof(Request);
        EXPECT_GT(seen.most_resident, before + window) << "nothing was seen";
        EXPECT_LT(seen.most_resident, before + 2 * 5 * (window + 4 * KiB) + lists + 6 * MiB);
#endif
    }
}

// One list of more than 2^31 requests: the same pages of it again and again, all asking for the same bytes.
TEST(LargeCallsTest, MoreThan2To31RequestsAreMerged) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
    GTEST_SKIP() << "takes too long in this build";
#else
    constexpr size_t block_bytes = 2 * MiB, blocks = (size_t{1} << 31) * sizeof(Request) / block_bytes + 1;
    constexpr uint64_t count = blocks * block_bytes / sizeof(Request), offset = uint64_t{5} << 32, bytes = 3;
    const int file = memfd_create("requests", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    const std::vector<Request> block(block_bytes / sizeof(Request), Request{offset, bytes});
    ASSERT_EQ(write(file, block.data(), block_bytes), static_cast<ssize_t>(block_bytes));
    void* place =
        mmap(nullptr, blocks * block_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    auto* const memory = static_cast<std::byte*>(place);
    for (size_t i = 0; i < blocks; ++i)
        ASSERT_NE(mmap(memory + i * block_bytes, block_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0),
                  MAP_FAILED);
    const std::span<const Request> requests(reinterpret_cast<const Request*>(memory), count);

    const auto summary = summarise(requests, false, team_path);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(summary->requests, count);
    EXPECT_EQ(summary->bytes, count * bytes);
    std::vector<Request> runs;
    const MergeCounts counts = merge(std::span(&requests, 1), runs);
    EXPECT_GT(count, uint64_t{1} << 31);
    EXPECT_EQ(counts.requests, count);
    EXPECT_EQ(counts.overlapping_bytes, (count - 1) * bytes);
    EXPECT_EQ(runs, (std::vector<Request>{{offset, bytes}}));
    munmap(place, blocks * block_bytes);
    close(file);
#endif
}

TEST(LargeCallsTest, MoreThan2To31RequestsAreCounted) {
    // Such lists do not fit into a test's memory; what is said and decided about them does.
    constexpr uint64_t many = uint64_t{3} << 31;
    Topology topology;
    topology.node_of_rank = {0, 0, 1, 1};
    topology.ranks_of_node = {{0, 1}, {2, 3}};
    std::vector<RankSummary> ranks(4);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
        ranks[rank] = {{many, many * 100, rank * 100, many * 400, false}, true};
    const Decision decision = decide(topology, ranks, {});
    EXPECT_EQ(decision.way, Way::two_layer);
    EXPECT_EQ(decision.reason.find("25769803776 requests of 100 B"), 0u) << decision.reason;

    const Domains domains(accessed_range(ranks), 2, {});
    EXPECT_EQ(domains.window_of(many * 400 - 1), domains.rounds() * 2 - 1);

    CallMessage message;
    message.kind = CallMessage::Kind::offer;
    message.window = many;
    message.count = many + 1;
    message.bytes = many * 100;
    const auto back = decode_call_message(encode(message));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->window, many);
    EXPECT_EQ(back->count, many + 1);
    EXPECT_EQ(back->bytes, many * 100);

    Statistics sum, one;
    one.requests = one.requests_after_local = many;
    for (int rank = 0; rank < 4; ++rank) sum.add(one);
    const auto told = decode_statistics(encode(sum));
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->requests, 4 * many);
    EXPECT_EQ(told->requests_after_local, 4 * many);
}

}  // namespace tailrace::internal::collective
