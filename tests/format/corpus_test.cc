// Replays the fuzz corpus (fuzz/corpus/<target>/) through the fuzz targets' claims, under every compiler.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "claims.h"
#include "format/hostile.h"

namespace tailrace::internal {
namespace {

Bytes read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> characters{std::istreambuf_iterator<char>(file), {}};
    auto bytes = std::as_bytes(std::span(characters));
    return {bytes.begin(), bytes.end()};
}

std::vector<std::filesystem::path> corpus_of(std::string_view target) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(TAILRACE_CORPUS_DIR) / target))
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

TEST(CorpusTest, EveryClaimHoldsForTheWholeCorpus) {
    for (const auto& target : claim_targets) {
        auto paths = corpus_of(target.name);
        EXPECT_FALSE(paths.empty()) << target.name;
        for (const auto& path : paths) EXPECT_EQ(target.check(read_file(path)), "") << path;
    }
}

// A small fuzzer without libFuzzer: bytes of the corpus changed at random, in fields more than elsewhere.
TEST(CorpusTest, EveryClaimHoldsForChangedCorpus) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    static constexpr uint64_t interesting[] = {0, 1, 63, 64, 512, 4095, 4096, uint64_t{1} << 32, UINT64_MAX};
    for (const auto& target : claim_targets)
        for (const auto& path : corpus_of(target.name)) {
            auto original = read_file(path);
            for (int round = 0; round < 150; ++round) {
                auto bytes = original;
                for (uint64_t change = 0; change <= below(random, 4) && !bytes.empty(); ++change) {
                    uint64_t at =
                        below(random, std::min<size_t>(bytes.size(), below(random, 2) == 0 ? 200 : 100000));
                    if (below(random, 2) == 0 && at + 8 <= bytes.size())
                        store(bytes, at / 8 * 8, interesting[below(random, std::size(interesting))]);
                    else
                        bytes[at] = static_cast<std::byte>(random());
                }
                if (below(random, 4) == 0) bytes.resize(below(random, bytes.size() + 1));
                ASSERT_EQ(target.check(bytes), "") << path << " round " << round;
            }
        }
}

TEST(CorpusTest, ClaimsHoldForNoBytesAtAll) {
    for (const auto& target : claim_targets) EXPECT_EQ(target.check({}), "") << target.name;
}

}  // namespace
}  // namespace tailrace::internal
