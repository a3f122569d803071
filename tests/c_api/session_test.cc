// The life of a session: save, state, wait, list, restore.
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "c_api/fixture.h"

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

namespace {

using SessionTest = CApiTest;

std::vector<int> pattern(size_t count, int start) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), start);
    return values;
}

tailrace_code add(tailrace_session* session, const char* name, std::vector<int>& values) {
    return tailrace_register(session, name, values.data(), values.size() * sizeof(int));
}

// Somebody has moved the directory away, and another bears its name: that one is not this session's.
TEST_F(SessionTest, ADirectoryThatTookThePlaceOfTheLockedOneIsLeftAlone) {
    tailrace_session* session = open({{"keep_shared", "1"}});
    static char memory[100000];
    ASSERT_TRUE(ok(tailrace_register(session, "a", memory, sizeof memory)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    ASSERT_TRUE(ok(tailrace_wait(session, 1, -1)));
    std::filesystem::copy(shared_, directory_ + "/another");
    std::filesystem::rename(shared_, directory_ + "/moved");
    std::filesystem::rename(directory_ + "/another", shared_);
    const auto before = shared_files();
    ASSERT_TRUE(ok(tailrace_save(session, 2)));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_wait(session, 2, -1), "moved or replaced it"));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_close(session), "epoch 2"));
    for (const auto& name : before)
        EXPECT_THAT(shared_files(), testing::Contains(name)) << "another session's, for all that is known";
    session = open();
    ASSERT_TRUE(ok(tailrace_register(session, "a", memory, sizeof memory)));
    uint64_t restored = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, &restored)));
    EXPECT_EQ(restored, 2u) << "captured";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, WhatWasSavedComesBack) {
    std::vector<int> a = pattern(100000, 1), b = pattern(1, 7);
    tailrace_session* session = open();
    EXPECT_EQ(tailrace_rank(session), 0);
    EXPECT_EQ(tailrace_rank_count(session), 1);
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(add(session, "b ü", b)));
    ASSERT_TRUE(ok(tailrace_register(session, "nothing", nullptr, 0)));
    ASSERT_TRUE(ok(tailrace_save(session, 5)));
    ASSERT_TRUE(ok(tailrace_close(session)));

    const auto saved_a = std::exchange(a, std::vector<int>(a.size())), saved_b = std::exchange(b, {0});
    session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(add(session, "b ü", b)));
    ASSERT_TRUE(ok(tailrace_register(session, "nothing", nullptr, 0)));
    uint64_t epoch = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, &epoch)));
    EXPECT_EQ(epoch, 5u);
    EXPECT_EQ(a, saved_a);
    EXPECT_EQ(b, saved_b);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, ASaveInTwoStepsKeepsOrDropsWhatWasCaptured) {
    std::vector<int> a = pattern(100000, 1);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_capture(session, 1)));
    const auto captured = std::exchange(a, pattern(a.size(), 5));
    ASSERT_TRUE(ok(tailrace_update(session, "a", a.data(), a.size() * sizeof(int))));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    ASSERT_TRUE(ok(tailrace_capture(session, 2)));
    ASSERT_TRUE(ok(tailrace_give_up(session, 2, "not needed")));
    EXPECT_TRUE(fails(TAILRACE_ABORTED, tailrace_wait(session, 2, -1), "not needed"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_give_up(session, 3, nullptr), "why"));
    EXPECT_TRUE(fails(TAILRACE_ABORTED, tailrace_wait(session, 3, -1), "no reason was given"));
    EXPECT_TRUE(fails(TAILRACE_ALREADY_EXISTS, tailrace_give_up(session, 2, "again"), "epoch 2"));
    EXPECT_TRUE(fails(TAILRACE_ALREADY_EXISTS, tailrace_capture(session, 2), "epoch 2"));
    uint64_t epoch = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, &epoch)));
    EXPECT_EQ(epoch, 1u);
    EXPECT_EQ(a, captured);
    EXPECT_TRUE(fails(TAILRACE_ABORTED, tailrace_close(session), "not needed"));
}

// In a process of its own: a file size limit cannot be taken back.
TEST_F(SessionTest, AFileSizeLimitFailsTheSaveAndLeavesTheProgramAlive) {
    const auto save_beyond_the_limit = [&] {
        std::vector<int> a = pattern(4 << 20, 1);
        tailrace_session* session = open();
        if (add(session, "a", a) != TAILRACE_OK) std::exit(3);
        const rlimit limit{1 << 20, 1 << 20};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::exit(4);
        const bool refused = fails(TAILRACE_NO_SPACE, tailrace_save(session, 1));
        std::_Exit(refused ? 0 : 1);
    };
    EXPECT_EXIT(save_beyond_the_limit(), testing::ExitedWithCode(0), "");
}

TEST_F(SessionTest, ACommittedEpochIsKFilesAndNothingElse) {
    std::vector<int> a = pattern(300000, 1);
    tailrace_session* session = open({{"files", "3"}, {"name", "job"}});
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_save(session, 12)));
    ASSERT_TRUE(ok(tailrace_wait(session, 12, -1)));
    EXPECT_THAT(shared_files(), UnorderedElementsAre("job.e000000012.r0001.1of3.tailrace",
                                                     "job.e000000012.r0001.2of3.tailrace",
                                                     "job.e000000012.r0001.3of3.tailrace"));
    ASSERT_TRUE(ok(tailrace_close(session)));
    EXPECT_EQ(shared_files().size(), 3u);
}

TEST_F(SessionTest, StateTellsHowAnEpochEnds) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    tailrace_epoch_info info;
    ASSERT_TRUE(ok(tailrace_epoch_state(session, 1, &info)));
    EXPECT_GE(info.state, TAILRACE_STATE_CAPTURED);
    EXPECT_LE(info.state, TAILRACE_STATE_COMMITTED);
    ASSERT_TRUE(ok(tailrace_wait_all(session, 60)));
    ASSERT_TRUE(ok(tailrace_epoch_state(session, 1, &info)));
    EXPECT_EQ(info.state, TAILRACE_STATE_COMMITTED);
    EXPECT_EQ(info.epoch, 1u);
    EXPECT_EQ(info.run, 1u);
    EXPECT_EQ(info.why_code, TAILRACE_OK);
    EXPECT_STREQ(info.why, "");
    EXPECT_GE(info.captured_bytes, 4000u);
    EXPECT_GT(info.blocked_seconds, 0);
    EXPECT_GT(info.flush_seconds, 0);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, SizesMayChangeBetweenSaves) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    a = pattern(5000, 3);
    ASSERT_TRUE(ok(tailrace_update(session, "a", a.data(), a.size() * sizeof(int))));
    ASSERT_TRUE(ok(tailrace_save(session, 2)));
    ASSERT_TRUE(ok(tailrace_unregister(session, "a")));
    std::vector<int> b = pattern(10, 9);
    ASSERT_TRUE(ok(add(session, "b", b)));
    ASSERT_TRUE(ok(tailrace_save(session, 3)));
    ASSERT_TRUE(ok(tailrace_unregister(session, "b")));

    std::vector<int> back(5000);
    ASSERT_TRUE(ok(add(session, "a", back)));
    ASSERT_TRUE(ok(tailrace_restore(session, 2, nullptr)));
    EXPECT_EQ(back, a);
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore(session, 1, nullptr), "a"))
        << "epoch 1 has another size";
    EXPECT_FALSE(ok(tailrace_restore(session, 3, nullptr))) << "epoch 3 has no such region";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, AReplicatedValueIsAnArrayThatEachRankHasWhole) {
    tailrace_session* session = open();
    int64_t step = 7;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register_replicated(session, nullptr, &step, 8)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register_replicated(session, "step", nullptr, 8)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register_replicated(session, "step", &step, 0),
                      "replicated value \"step\": it has no bytes"));
    ASSERT_TRUE(ok(tailrace_register_replicated(session, "step", &step, sizeof step)));
    EXPECT_TRUE(fails(TAILRACE_ALREADY_EXISTS, tailrace_register_replicated(session, "step", &step, 8)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    ASSERT_TRUE(ok(tailrace_wait(session, 1, -1)));
    step = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, 1, nullptr)));
    EXPECT_EQ(step, 7);
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session, 1, TAILRACE_NEWEST, 0, &reader)));
    tailrace_region_info info;
    ASSERT_TRUE(ok(tailrace_reader_array(reader, "step", &info)));
    EXPECT_EQ(info.type, TAILRACE_BYTES);
    EXPECT_EQ(info.flags, TAILRACE_ARRAY_OVERLAP);
    EXPECT_EQ(info.global_shape[0], sizeof step);
    tailrace_reader_close(reader);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, ResizableMemoryThatIsNotThereIsRefused) {
    struct Memory {
        char letters[8] = "abcdefg";
        void* begin = nullptr;
        uint64_t bytes = 8, room = 8;
    } memory;
    const auto find = [](void* user, uint64_t* bytes) {
        *bytes = static_cast<Memory*>(user)->bytes;
        return static_cast<Memory*>(user)->begin;
    };
    const auto resize = [](void* user, uint64_t bytes) {
        return bytes > static_cast<Memory*>(user)->room ? 1 : 0;
    };
    tailrace_session* session = open();
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_register_resizable(session, "a", nullptr, resize, &memory), "find"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_register_resizable(session, "a", find, nullptr, &memory), "resize"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_register_list(session, "a", TAILRACE_INT32, 0, find, resize, &memory),
                      "list \"a\": an item of 0 elements"));
    EXPECT_TRUE(fails(
        TAILRACE_INVALID_ARGUMENT,
        tailrace_register_list(session, "a", std::bit_cast<tailrace_type>(99), 1, find, resize, &memory),
        "99 is not a tailrace_type"));
    ASSERT_TRUE(ok(tailrace_register_resizable(session, "a", find, resize, &memory)));
    EXPECT_TRUE(
        fails(TAILRACE_ALREADY_EXISTS, tailrace_register_resizable(session, "a", find, resize, &memory)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_set_list_owner(session, "a", nullptr, nullptr),
                      "is not a list"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_set_list_owner(session, "b", nullptr, nullptr)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_set_list_owner(session, nullptr, nullptr, nullptr)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_save(session, 1), "8 bytes at a null pointer"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_update(session, "a", memory.letters, 8),
                      "follows the program's memory by itself"));
    memory.begin = memory.letters;
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    memory.bytes = 5;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore(session, 1, nullptr),
                      "was asked for room for 8 bytes and has 5"));
    memory.room = 7;
    EXPECT_TRUE(fails(TAILRACE_OUT_OF_MEMORY, tailrace_restore(session, 1, nullptr), "its 8 bytes"));
    memory.room = memory.bytes = 8;
    memory.letters[0] = 'z';
    ASSERT_TRUE(ok(tailrace_restore(session, 1, nullptr)));
    EXPECT_EQ(std::string_view(memory.letters), "abcdefg");
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, RestoreSomeFillsOnlyTheNamed) {
    std::vector<int> a = pattern(100, 1), b = pattern(100, 2);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(add(session, "b", b)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    a.assign(100, 0);
    b.assign(100, 0);
    const char* names[] = {"b", "c"};
    uint64_t epoch = 0;
    ASSERT_TRUE(ok(tailrace_restore_some(session, TAILRACE_NEWEST, names, 1, &epoch)));
    EXPECT_EQ(epoch, 1u);
    EXPECT_EQ(a, std::vector<int>(100, 0));
    EXPECT_EQ(b, pattern(100, 2));
    EXPECT_FALSE(ok(tailrace_restore_some(session, TAILRACE_NEWEST, names, 2, &epoch)))
        << "c is not registered";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, ArraysComeBackInAnyBox) {
    // A plate of 6 x 8, of which this rank saves all; then only the lower right 3 x 4 is wanted.
    std::vector<double> whole(48);
    std::iota(whole.begin(), whole.end(), 0.5);
    const uint64_t shape[] = {6, 8}, zero[] = {0, 0}, corner[] = {3, 4}, part_shape[] = {3, 4};
    tailrace_array array = array_of(TAILRACE_FLOAT64, 2, shape, zero, shape);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_register_array(session, "plate", whole.data(), &array)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    std::vector<double> part(12);
    array.offset = corner;
    array.local_shape = part_shape;
    ASSERT_TRUE(ok(tailrace_update_array(session, "plate", part.data(), &array)));
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, nullptr)));
    for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 4; ++j)
            EXPECT_EQ(part[i * 4 + j], whole[(i + 3) * 8 + j + 4]) << i << ", " << j;
    }
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, AnArrayOfAnotherKindIsRefusedByBothKinds) {
    std::vector<double> memory(6);
    const uint64_t shape[2] = {2, 3}, turned[2] = {3, 2}, zero[2] = {0, 0};
    tailrace_array array = array_of(TAILRACE_FLOAT64, 2, shape, zero, shape);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_register_array(session, "u", memory.data(), &array)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    array = array_of(TAILRACE_INT64, 2, turned, zero, turned);
    ASSERT_TRUE(ok(tailrace_update_array(session, "u", memory.data(), &array)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore(session, 1, nullptr),
                      "was saved as float64 of 2 x 3, but is registered as int64 of 3 x 2"));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, OfMemoryWithGhostCellsOnlyTheOwnAreSavedAndRestored) {
    // 4 x 3 cells with one ghost cell around, and every other element of a line, row-major backwards.
    const uint64_t own[] = {4, 3}, zero[] = {0, 0}, with_ghosts[] = {6, 5}, one[] = {1, 1};
    const uint64_t backwards[] = {2 * sizeof(double), 8 * sizeof(double)};
    std::vector<double> grid(30), line(24);
    std::iota(grid.begin(), grid.end(), 0.0);
    std::iota(line.begin(), line.end(), 100.0);
    tailrace_array inside = array_of(TAILRACE_FLOAT64, 2, own, zero, own);
    inside.memory_shape = with_ghosts;
    inside.memory_offset = one;
    inside.memory_bytes = grid.size() * sizeof(double);
    tailrace_array strided = array_of(TAILRACE_FLOAT64, 2, own, zero, own);
    strided.memory_stride_bytes = backwards;
    tailrace_session* session = open();
    ASSERT_TRUE(ok(tailrace_register_array(session, "inside", grid.data(), &inside)));
    ASSERT_TRUE(ok(tailrace_register(session, "strided", nullptr, 0)));
    ASSERT_TRUE(ok(tailrace_update_array(session, "strided", line.data(), &strided)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));

    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session, 1, TAILRACE_NEWEST, 0, &reader)));
    std::vector<double> saved(12);
    ASSERT_TRUE(ok(tailrace_reader_read(reader, 0, "inside", saved.data(), 96)));
    EXPECT_THAT(saved, ElementsAre(6, 7, 8, 11, 12, 13, 16, 17, 18, 21, 22, 23));
    ASSERT_TRUE(ok(tailrace_reader_read(reader, 0, "strided", saved.data(), 96)));
    EXPECT_THAT(saved, ElementsAre(100, 108, 116, 102, 110, 118, 104, 112, 120, 106, 114, 122));
    tailrace_reader_close(reader);

    const auto grid_before = grid, line_before = line;
    for (size_t i = 0; i < 4; ++i)
        for (size_t j = 0; j < 3; ++j) grid[(i + 1) * 5 + j + 1] = line[2 * i + 8 * j] = -1;
    ASSERT_TRUE(ok(tailrace_restore(session, 1, nullptr)));
    EXPECT_EQ(grid, grid_before);
    EXPECT_EQ(line, line_before);
    grid.assign(30, -1);
    const char* names[] = {"inside"};
    ASSERT_TRUE(ok(tailrace_restore_some(session, 1, names, 1, nullptr)));
    EXPECT_EQ(std::count(grid.begin(), grid.end(), -1), 30 - 12) << "ghost cells are left as they are";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, WhatIsDeclaredOfAnArrayIsSavedWithIt) {
    std::vector<double> memory(10);
    const uint64_t ten[] = {10}, zero[] = {0};
    tailrace_session* session = open();
    for (const uint64_t flags :
         {0u, TAILRACE_ARRAY_GAPS, TAILRACE_ARRAY_OVERLAP, TAILRACE_ARRAY_GAPS | TAILRACE_ARRAY_OVERLAP}) {
        tailrace_array array = array_of(TAILRACE_FLOAT64, 1, ten, zero, ten);
        array.flags = flags;
        ASSERT_TRUE(ok(
            tailrace_register_array(session, ("a" + std::to_string(flags)).c_str(), memory.data(), &array)));
    }
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session, 1, TAILRACE_NEWEST, 0, &reader)));
    for (uint64_t flags = 0; flags < 4; ++flags) {
        tailrace_region_info info;
        std::memset(&info, 0xff, sizeof info);
        ASSERT_TRUE(ok(tailrace_reader_region(reader, 0, ("a" + std::to_string(flags)).c_str(), &info)));
        EXPECT_EQ(info.flags, flags);
        EXPECT_THAT(info.reserved, Each(0u));
    }
    tailrace_reader_close(reader);
    tailrace_epoch_info state;
    std::memset(&state, 0xff, sizeof state);
    ASSERT_TRUE(ok(tailrace_epoch_state(session, 1, &state)));
    EXPECT_THAT(state.reserved, Each(0u));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

// An older epoch would have the elements, but the newest one has not lost them: nobody saved them.
TEST_F(SessionTest, ElementsInADeclaredGapAreNoDamage) {
    std::vector<int> memory = {1, 2, 3, 4};
    const uint64_t shape[] = {4}, zero[] = {0}, half[] = {2};
    const tailrace_array all = array_of(TAILRACE_INT32, 1, shape, zero, shape);
    tailrace_array array = all;
    for (const bool local : {true, false}) {
        tailrace_session* session = open();
        const uint64_t first = local ? 1 : 3;
        array = all;
        ASSERT_TRUE(ok(tailrace_register_array(session, "field", memory.data(), &array)));
        ASSERT_TRUE(ok(tailrace_save(session, first)));
        array.local_shape = half;
        array.flags = TAILRACE_ARRAY_GAPS;
        ASSERT_TRUE(ok(tailrace_update_array(session, "field", memory.data(), &array)));
        ASSERT_TRUE(ok(tailrace_save(session, first + 1)));
        ASSERT_TRUE(ok(tailrace_wait_all(session, -1)));
        ASSERT_TRUE(ok(tailrace_update_array(session, "field", memory.data(), &all)));
        if (!local) {
            ASSERT_TRUE(ok(tailrace_close(session)));
            std::filesystem::remove_all(directory_ + "/local dir");
            session = open();
            ASSERT_TRUE(ok(tailrace_register_array(session, "field", memory.data(), &all)));
        }
        for (const uint64_t which : {TAILRACE_NEWEST, uint64_t{first + 1}})
            EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore(session, which, nullptr),
                              "elements [2:4] of array 'field' of epoch"));
        EXPECT_THAT(tailrace_last_error(), HasSubstr("ask for a piece that leaves them out"));
        ASSERT_TRUE(ok(tailrace_close(session)));
    }
}

// With keep_shared = 1 a bad epoch that was committed would push the good one out.
TEST_F(SessionTest, AnEpochThatCannotBeRestoredIsRefusedAndTheOneBeforeItStays) {
    std::vector<int> memory = {1, 2, 3, 4};
    const uint64_t shape[] = {4}, zero[] = {0}, half[] = {2};
    const tailrace_array all = array_of(TAILRACE_INT32, 1, shape, zero, shape);
    tailrace_array array = all;
    tailrace_session* session = open({{"keep_shared", "1"}, {"keep_local", "1"}});
    ASSERT_TRUE(ok(tailrace_register_array(session, "field", memory.data(), &array)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    ASSERT_TRUE(ok(tailrace_wait(session, 1, -1)));
    array.local_shape = half;
    ASSERT_TRUE(ok(tailrace_update_array(session, "field", memory.data(), &array)));
    ASSERT_TRUE(ok(tailrace_save(session, 2)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_wait(session, 2, -1),
              "elements [2:4] of array 'field' (int32 [4]) are in no rank's piece: the nearest is [0:2] of "
              "rank 0"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_close(session), "array 'field'"));

    session = open({{"keep_shared", "1"}});
    memory.assign(4, 0);
    ASSERT_TRUE(ok(tailrace_register_array(session, "field", memory.data(), &all)));
    uint64_t epoch = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, &epoch)));
    EXPECT_EQ(epoch, 1u);
    EXPECT_EQ(memory, (std::vector<int>{1, 2, 3, 4}));
    ASSERT_TRUE(ok(tailrace_save(session, 3)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, ListNamesWhatCanBeRestoredNewestFirst) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* session = open({{"keep_local", "1"}});
    tailrace_epoch_info* epochs = nullptr;
    size_t count = 99;
    ASSERT_TRUE(ok(tailrace_list(session, &epochs, &count)));
    EXPECT_EQ(count, 0u);
    tailrace_list_free(epochs);
    ASSERT_TRUE(ok(add(session, "a", a)));
    for (uint64_t epoch : {3, 6, 9}) ASSERT_TRUE(ok(tailrace_save(session, epoch)));
    ASSERT_TRUE(ok(tailrace_wait_all(session, -1)));
    ASSERT_TRUE(ok(tailrace_list(session, &epochs, &count)));
    ASSERT_EQ(count, 3u);
    EXPECT_EQ(epochs[0].epoch, 9u);
    EXPECT_EQ(epochs[1].epoch, 6u);
    EXPECT_EQ(epochs[2].epoch, 3u);
    EXPECT_EQ(epochs[0].in_local, 1);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(epochs[i].in_shared, 1) << i;
    tailrace_list_free(epochs);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, AFirstRunFindsNothing) {
    std::vector<int> a(10);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_restore(session, TAILRACE_NEWEST, nullptr)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_restore(session, 7, nullptr)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, EpochsMustGrow) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_save(session, 5)));
    EXPECT_FALSE(ok(tailrace_save(session, 5)));
    EXPECT_THAT(tailrace_last_error(), HasSubstr("5"));
    EXPECT_FALSE(ok(tailrace_save(session, 4)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_save(session, TAILRACE_NEWEST)));
    ASSERT_TRUE(ok(tailrace_wait(session, 5, -1))) << "what was there stays";
    ASSERT_TRUE(ok(tailrace_save(session, 6)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, WaitingEndsWhenTheTimeIsOver) {
    std::vector<int> a = pattern(1 << 20, 1);  // 4 MiB at 4 MiB/s
    tailrace_session* session = open({{"bandwidth_cap", "4MiB"}});
    ASSERT_TRUE(ok(add(session, "a", a)));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    EXPECT_TRUE(fails(TAILRACE_TIMEOUT, tailrace_wait(session, 1, 0)));
    EXPECT_TRUE(fails(TAILRACE_TIMEOUT, tailrace_wait_all(session, 1e-9)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_wait(session, 1, std::nan(""))));
    EXPECT_TRUE(ok(tailrace_wait(session, 1, INFINITY)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_wait(session, 77, -1)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, AnEpochThatStaysLocalSaysSo) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* session = open({{"shared_every", "2"}});
    ASSERT_TRUE(ok(add(session, "a", a)));
    for (uint64_t epoch : {1, 2, 3}) ASSERT_TRUE(ok(tailrace_save(session, epoch)));
    ASSERT_TRUE(ok(tailrace_wait_all(session, -1)));
    int committed = 0, kept = 0;
    for (uint64_t epoch : {1, 2, 3}) {
        tailrace_epoch_info info;
        ASSERT_TRUE(ok(tailrace_epoch_state(session, epoch, &info)));
        committed += info.state == TAILRACE_STATE_COMMITTED ? 1 : 0;
        kept += info.state == TAILRACE_STATE_KEPT_LOCAL ? 1 : 0;
    }
    EXPECT_GE(committed, 1);
    EXPECT_GE(kept, 1);
    EXPECT_EQ(committed + kept, 3);
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, MissingDirectoriesAreMade) {
    tailrace_session* session =
        open({{"shared_dir", directory_ + "/a/b c/d"}, {"local_dir", directory_ + "/e/f"}});
    EXPECT_TRUE(std::filesystem::is_directory(directory_ + "/a/b c/d"));
    EXPECT_EQ(tailrace_setting(session, "shared_dir"), directory_ + "/a/b c/d");
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(SessionTest, ADirectoryThatIsAFileIsNamed) {
    const std::string file = directory_ + "/file";
    std::ofstream(file) << "x";
    tailrace_session* session = nullptr;
    for (const std::string& path : {file, file + "/below"}) {
        for (const char* key : {"shared_dir", "local_dir"}) {
            EXPECT_NE(try_open({{key, path}}, &session), TAILRACE_OK) << key << " " << path;
            EXPECT_THAT(tailrace_last_error(), HasSubstr(file)) << key;
            EXPECT_EQ(session, nullptr);
        }
    }
    EXPECT_EQ(std::filesystem::file_size(file), 1u);
}

TEST_F(SessionTest, ADirectoryWithoutWritePermissionIsNamed) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere: permissions cannot be shown to count";
    const std::string closed = directory_ + "/closed";
    std::filesystem::create_directory(closed);
    std::filesystem::permissions(closed,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    tailrace_session* session = nullptr;
    EXPECT_NE(try_open({{"shared_dir", closed + "/below"}}, &session), TAILRACE_OK);
    EXPECT_THAT(tailrace_last_error(), HasSubstr(closed));
    std::filesystem::permissions(closed, std::filesystem::perms::owner_all);
}

TEST_F(SessionTest, ASecondSessionOnADirectoryIsRefused) {
    std::vector<int> a = pattern(1000, 1);
    tailrace_session* first = open();
    ASSERT_TRUE(ok(add(first, "a", a)));
    tailrace_session* second = nullptr;
    EXPECT_TRUE(fails(TAILRACE_BUSY, try_open({}, &second), shared_));
    EXPECT_EQ(second, nullptr);
    EXPECT_TRUE(ok(tailrace_save(first, 1))) << "the first goes on";
    ASSERT_TRUE(ok(tailrace_close(first)));
    ASSERT_TRUE(ok(tailrace_close(open()))) << "and then it is free";
}

TEST_F(SessionTest, AChangedByteInTheSharedTierDoesNotComeBack) {
    std::vector<int> a = pattern(100000, 1);
    tailrace_session* session = open();
    ASSERT_TRUE(ok(add(session, "a", a)));
    for (uint64_t epoch : {1, 2}) {
        a[0] = static_cast<int>(epoch);
        ASSERT_TRUE(ok(tailrace_save(session, epoch)));
    }
    ASSERT_TRUE(ok(tailrace_close(session)));
    std::filesystem::remove_all(directory_ + "/local dir");  // the node is lost
    {
        std::fstream file(shared_ + "/tailrace.e000000002.r0001.1of1.tailrace",
                          std::ios::in | std::ios::out | std::ios::binary);
        ASSERT_TRUE(file.is_open());
        file.seekp(static_cast<std::streamoff>(
            std::filesystem::file_size(shared_ + "/tailrace.e000000002.r0001.1of1.tailrace") / 2));
        file.put('!').put('?').put('!');
    }
    session = open();
    std::fill(a.begin(), a.end(), 0);
    ASSERT_TRUE(ok(add(session, "a", a)));
    uint64_t epoch = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, TAILRACE_NEWEST, &epoch)));
    EXPECT_EQ(epoch, 1u) << "the older one is whole";
    EXPECT_EQ(a, pattern(100000, 1));
    EXPECT_THAT(logged(), HasSubstr("e000000002"));
    EXPECT_TRUE(fails(TAILRACE_CORRUPT, tailrace_restore(session, 2, nullptr), "e000000002"));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

}  // namespace
