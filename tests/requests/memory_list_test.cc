// A rank's data in pieces.
#include "requests/memory_list.h"

#include <gtest/gtest.h>

#include "aggregate/seeds.h"

namespace tailrace::internal::collective {

TEST(MemoryListTest, CopiesAcrossPieces) {
    for (const uint64_t seed : seeds(1, 200)) {
        Random random(seed);
        std::vector<std::vector<std::byte>> memory(1 + below(random, 6));
        std::vector<std::byte> stream;
        for (auto& piece : memory) {
            piece.resize(below(random, 9));  // some are empty
            for (std::byte& byte : piece) byte = static_cast<std::byte>(below(random, 256));
            stream.insert(stream.end(), piece.begin(), piece.end());
        }
        const MemoryList list(std::vector<MemoryList::Memory>(memory.begin(), memory.end()));
        ASSERT_EQ(list.bytes(), stream.size());
        for (int i = 0; i < 20 && !stream.empty(); ++i) {
            const uint64_t begin = below(random, stream.size());
            const uint64_t bytes = below(random, stream.size() - begin + 1);
            std::vector<std::byte> out(bytes);
            list.copy_out(begin, out);
            const auto expected = std::span(stream).subspan(begin, bytes);
            EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin())) << "seed " << seed;
            for (std::byte& byte : out) byte ^= std::byte{0xff};
            list.copy_in(begin, out);
            std::copy(out.begin(), out.end(), expected.begin());
            std::vector<std::byte> all(stream.size());
            list.copy_out(0, all);
            EXPECT_EQ(all, stream) << "seed " << seed;
        }
    }
}

TEST(MemoryListTest, SaysWhatLiesInOnePiece) {
    std::vector<std::byte> a(10), b(10);
    const MemoryList list({a, b});
    EXPECT_EQ(list.contiguous(2, 8).data(), a.data() + 2);
    EXPECT_EQ(list.contiguous(10, 10).data(), b.data());
    EXPECT_TRUE(list.contiguous(5, 6).empty());
    EXPECT_TRUE(MemoryList().contiguous(0, 0).empty());
}

}  // namespace tailrace::internal::collective
