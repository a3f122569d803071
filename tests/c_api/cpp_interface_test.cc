// The C++ interface: what it adds to the C one (ownership, types, exceptions).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <tailrace.hpp>
#include <tuple>

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

template <class T>
concept CanBeAdded = requires(tailrace::Session& session, std::span<T> memory) {
    session.add("x", memory);
};
static_assert(CanBeAdded<double>);
static_assert(!CanBeAdded<const double>, "restore writes into it");
static_assert(!CanBeAdded<std::string>, "its bytes are not its value");
template <class T>
concept CanBeAddedAsItIs = requires(tailrace::Session& session, T value) {
    session.add("x", value);
};
template <class T>
concept IsAValue = requires(tailrace::Session& session, T& value) {
    session.add("x", value);
    session.add_replicated("y", value);
};
static_assert(IsAValue<int>);
static_assert(IsAValue<std::array<double, 3>>);
static_assert(IsAValue<double[3]>);
static_assert(!IsAValue<double*>, "its bytes are an address");
static_assert(!IsAValue<std::span<const double>>, "its bytes are an address");
static_assert(!IsAValue<std::string>);

// As std::mdspan, which the compilers of the tests do not have: a matrix whose elements lie at any strides.
template <class T, class Reference = T&>
struct Matrix {
    using element_type = T;
    struct accessor_type {
        using reference = Reference;
    };
    struct mapping_type {
        size_t bytes;
        size_t required_span_size() const { return bytes; }
    };
    T* first;
    std::array<size_t, 2> shape, strides;

    T* const& data_handle() const { return first; }
    static constexpr size_t rank() { return 2; }
    size_t extent(size_t d) const { return shape[d]; }
    size_t stride(size_t d) const { return strides[d]; }
    bool empty() const { return shape[0] * shape[1] == 0; }
    mapping_type mapping() const {
        return {empty() ? 0 : (shape[0] - 1) * strides[0] + (shape[1] - 1) * strides[1] + 1};
    }
    bool is_exhaustive() const { return mapping().required_span_size() == shape[0] * shape[1]; }
};
static_assert(CanBeAddedAsItIs<Matrix<double>>);
static_assert(!CanBeAddedAsItIs<Matrix<const double>>, "restore writes into it");
static_assert(!CanBeAddedAsItIs<Matrix<double, double>>, "its elements are not what lies in memory");
static_assert(!IsAValue<Matrix<double>>, "its bytes are an address");
static_assert(!IsAValue<const int>);
static_assert(std::is_nothrow_move_constructible_v<tailrace::Session>);
static_assert(!std::is_copy_constructible_v<tailrace::Session>);
static_assert(tailrace::detail::element_type<char>() == TAILRACE_INT8 ||
              tailrace::detail::element_type<char>() == TAILRACE_UINT8);
static_assert(tailrace::detail::element_type<uint16_t>() == TAILRACE_UINT16);
static_assert(tailrace::detail::element_type<int>() == TAILRACE_INT32);
static_assert(tailrace::detail::element_type<unsigned long long>() == TAILRACE_UINT64);
static_assert(tailrace::detail::element_type<std::complex<float>>() == TAILRACE_COMPLEX64);
static_assert(tailrace::detail::element_type<bool>() == TAILRACE_BOOL);
static_assert(tailrace::detail::element_type<std::byte>() == TAILRACE_BYTES);

class CppInterfaceTest : public testing::Test {
  protected:
    CppInterfaceTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace c++ XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
    }
    ~CppInterfaceTest() override { std::filesystem::remove_all(directory_); }

    tailrace::Options options() const {
        tailrace::Options made = {{"shared_dir", directory_ + "/shared"}, {"buffer_bytes", "1MiB"}};
        made.set("local_dir", directory_ + "/local").set("files", 2).set("checksum", true);
        return made;
    }

    struct State {
        double time = 0;
        std::array<int, 3> counts{};
        std::vector<uint64_t> particles;
        uint64_t step = 0;
        void add_to(tailrace::Session& session) {
            session.add("time", time);
            session.add("counts", counts);
            session.add("particles", particles);
            session.add_replicated("step", step);
        }
        bool operator==(const State&) const = default;
    };

    // The code of the tailrace::Error that `work` throws.
    template <class Work>
    static tailrace_code thrown(Work&& work, std::string* sentence = nullptr) {
        try {
            work();
        } catch (const tailrace::Error& error) {
            if (sentence != nullptr) *sentence = error.what();
            return error.code();
        }
        return TAILRACE_OK;
    }

    std::string directory_;
};

TEST_F(CppInterfaceTest, ValuesAndVectorsAreSavedAsTheyAreThen) {
    State state;
    std::vector<State> saved;
    {
        tailrace::Session session(options());
        state.add_to(session);
        for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
            state.time = 0.5 * static_cast<double>(epoch);
            state.counts = {1, static_cast<int>(epoch), 3};
            state.particles.assign(epoch == 2 ? 0 : 1000 * epoch, epoch);
            state.step = epoch;
            saved.push_back(state);
            session.save(epoch);
        }
        session.close();
    }
    State read;
    read.particles.assign(17, 17);
    tailrace::Session session(options());
    read.add_to(session);
    for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
        EXPECT_EQ(session.restore(epoch), epoch);
        EXPECT_EQ(read, saved[epoch - 1]);
    }
    // What a restore has resized is saved as it is.
    read.particles.resize(5);
    session.save(4);
    session.remove("particles");
    session.add("particles", read.particles);
    read.particles.clear();
    EXPECT_EQ(session.restore(4), 4u);
    EXPECT_EQ(read.particles, std::vector<uint64_t>(5, 3));
    session.close();
}

TEST_F(CppInterfaceTest, AListIsRestoredWithItsItemsAndReadAsAWhole) {
    struct Particle {
        double position = 0;
        int kind = 0, of_nothing = 0;
        bool operator==(const Particle&) const = default;
    };
    std::vector<std::array<double, 3>> forces{{1, 2, 3}, {4, 5, 6}};
    std::vector<int> kinds{7, 8, 9};
    std::vector<Particle> particles{{0.5, 1}, {1.5, 2}};
    const auto add_to = [&](tailrace::Session& session) {
        session.add_list("forces", forces);
        session.add_list("kinds", kinds);
        session.add_list("particles", particles);
    };
    const auto saved = std::tuple(forces, kinds, particles);
    {
        tailrace::Session session(options());
        add_to(session);
        session.save(1);
        session.close();
    }
    forces.clear();
    kinds.resize(100);
    particles.clear();
    tailrace::Session session(options());
    add_to(session);
    const auto owner = [](uint64_t index, uint64_t, int rank_count) { return index % rank_count; };
    session.set_list_owner("forces", owner);
    EXPECT_EQ(thrown([&] { session.set_list_owner("force", owner); }), TAILRACE_NOT_FOUND);
    EXPECT_EQ(session.restore(), 1u);
    EXPECT_EQ(std::tuple(forces, kinds, particles), saved);
    const auto reader = tailrace::Reader::open_directory(directory_ + "/shared");
    const auto whole = reader.array("forces");
    EXPECT_EQ(whole.name, "forces");
    EXPECT_EQ(whole.bytes, 48u);
    ASSERT_TRUE(whole.array);
    EXPECT_TRUE(whole.array->is_list);
    EXPECT_EQ(whole.array->type, TAILRACE_FLOAT64);
    EXPECT_EQ(whole.array->local_shape.size(), 2u);
    EXPECT_EQ(whole.array->global_shape.data()[0], 2u);
    EXPECT_EQ(reader.array("particles").array->type, TAILRACE_BYTES);
    EXPECT_EQ(reader.read_box<double>("forces", {1, 0}, {1, 3}), (std::vector<double>{4, 5, 6}));
    std::string sentence;
    EXPECT_EQ(thrown([&] { (void)reader.array("force"); }, &sentence), TAILRACE_NOT_FOUND);
    EXPECT_THAT(sentence, HasSubstr("the nearest of its 3 arrays is 'forces'"));
    session.close();
}

TEST_F(CppInterfaceTest, AVectorOfLargerElementsIsRefused) {
    std::vector<char> bytes(7, 'x');
    tailrace::Session session(options());
    session.add("list", bytes);
    session.save(1);
    session.wait(1);
    session.remove("list");
    std::vector<double> numbers;
    session.add("list", numbers);
    std::string sentence;
    EXPECT_EQ(thrown([&] { session.restore(); }, &sentence), TAILRACE_OUT_OF_MEMORY);
    EXPECT_THAT(sentence, HasSubstr("\"list\": the program could not make room for its 7 bytes"));
    session.close();
}

TEST_F(CppInterfaceTest, WhatWasSavedComesBack) {
    std::vector<double> u(1000);
    std::iota(u.begin(), u.end(), 0.25);
    uint64_t count = 17;
    {
        tailrace::Session session(options());
        EXPECT_EQ(session.rank(), 0);
        EXPECT_EQ(session.rank_count(), 1);
        EXPECT_EQ(session.setting("files"), "2");
        session.add("u", std::span(u));
        session.add("count", &count, sizeof count);
        EXPECT_FALSE(session.try_restore().has_value()) << "a first run";
        session.save(4);
        session.wait(4);
        EXPECT_EQ(session.state(4).state, tailrace::State::committed);
        EXPECT_TRUE(session.wait_all_for(std::chrono::seconds(60)));
    }  // the destructor closes
    const std::vector<double> saved = std::exchange(u, std::vector<double>(1000));
    count = 0;
    tailrace::Session session(options());
    session.add("u", std::span(u));
    session.add("count", &count, sizeof count);
    ASSERT_EQ(session.try_restore(), 4u);
    EXPECT_EQ(u, saved);
    EXPECT_EQ(count, 17u);
    count = 0;
    const std::vector<std::string> names = {"count"};
    EXPECT_EQ(session.restore_some(names), 4u);
    EXPECT_EQ(count, 17u);
    EXPECT_EQ(thrown([&] { session.restore_some({}); }), TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(session.list().size(), 1u);
    EXPECT_TRUE(session.list().front().in_shared);
    session.close();
    EXPECT_EQ(thrown([&] { session.save(5); }), TAILRACE_INVALID_ARGUMENT) << "there is no session any more";
}

TEST_F(CppInterfaceTest, ItIsTimeToSaveOrToStop) {
    tailrace::Options asked = options();
    asked.set("save_every", 2).set("job_minutes", 1);
    tailrace::Session session(asked);
    EXPECT_THAT(session.should_stop().value_or(""), HasSubstr("the job ends"));
    EXPECT_FALSE(session.should_save());
    EXPECT_TRUE(session.should_save());
    session.close();
    EXPECT_EQ(thrown([&] { (void)session.should_stop(); }), TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(thrown([&] { (void)session.should_save(); }), TAILRACE_INVALID_ARGUMENT);
}

TEST_F(CppInterfaceTest, ArraysAreTyped) {
    std::vector<float> plate(6 * 4);
    std::iota(plate.begin(), plate.end(), 0.0f);
    tailrace::Session session(options());
    session.add_array("plate", std::span(plate), {6, 4}, {0, 0}, {6, 4});
    session.save(1);

    tailrace::Reader reader = session.open_epoch();
    const tailrace::RegionInfo info = reader.region(0, "plate");
    ASSERT_TRUE(info.array.has_value());
    EXPECT_EQ(info.array->type, TAILRACE_FLOAT32);
    EXPECT_EQ(info.array->global_shape, (tailrace::Extents{6, 4}));
    EXPECT_EQ(info.bytes, 96u);
    EXPECT_FALSE(info.array->may_have_gaps || info.array->may_overlap);
    EXPECT_THAT(reader.read_box<float>("plate", {1, 1}, {2, 2}), ElementsAre(5, 6, 9, 10));
    EXPECT_EQ(reader.read<float>(0, "plate"), plate);
    EXPECT_EQ(reader.regions(0).size(), 1u);
    EXPECT_EQ(reader.epoch(), 1u);
    EXPECT_EQ(reader.rank_count(), 1u);
    struct Odd {
        char bytes[7];
    };
    EXPECT_EQ(thrown([&] { reader.read<Odd>(0, "plate"); }), TAILRACE_INVALID_ARGUMENT)
        << "96 is no multiple of 7";

    std::vector<float> part(4);
    session.update_array("plate", std::span(part), {6, 4}, {4, 2}, {2, 2});
    session.restore();
    EXPECT_THAT(part, ElementsAre(18, 19, 22, 23));

    std::string sentence;
    EXPECT_EQ(thrown(
                  [&] {
                      session.update_array("plate", std::span(part), {6, 4}, {4, 2}, {2, 1});
                  },
                  &sentence),
              TAILRACE_INVALID_ARGUMENT);
    EXPECT_THAT(sentence, HasSubstr("4 elements, its local shape 2"));
    EXPECT_EQ(thrown([&] {
                  session.update_array("plate", std::span(part), {6, 4}, {4}, {4});
              }),
              TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(thrown([&] { reader.read_box<float>("plate", {1}, {2, 2}); }), TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(thrown([] { tailrace::Extents too_many(std::vector<uint64_t>(17, 1)); }),
              TAILRACE_INVALID_ARGUMENT);
}

TEST_F(CppInterfaceTest, MemoryWithGhostCellsIsDescribedInALine) {
    std::vector<float> grid(4 * 5);
    std::iota(grid.begin(), grid.end(), 0.0f);
    tailrace::Session session(options());
    session.add_array("u", std::span(grid), {2, 3}, {0, 0}, {2, 3},
                      {.memory_shape = {4, 5}, .memory_offset = {1, 1}});
    session.save(1);
    EXPECT_THAT(session.open_epoch().read<float>(0, "u"), ElementsAre(6, 7, 8, 11, 12, 13));
    std::vector<float> other(4 * 5, -1);
    session.update_array("u", std::span(other), {2, 3}, {0, 0}, {2, 3}, {.memory_stride_bytes = {4, 12}});
    session.restore();
    EXPECT_THAT(std::vector(other.begin(), other.begin() + 9), ElementsAre(6, 11, -1, 7, 12, -1, 8, 13, -1));
    const auto refused = [&](const tailrace::ArrayOptions& how) {
        return thrown([&] { session.update_array("u", std::span(other), {2, 3}, {0, 0}, {2, 3}, how); });
    };
    EXPECT_EQ(refused({.memory_shape = {4, 6}, .memory_offset = {1, 1}}), TAILRACE_INVALID_ARGUMENT)
        << "more than there is";
    EXPECT_EQ(refused({.memory_shape = {4}}), TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(refused({.memory_offset = {1, 1}}), TAILRACE_INVALID_ARGUMENT) << "of what memory?";
}

TEST_F(CppInterfaceTest, AViewOfSeveralDimensionsDescribesItsElements) {
    std::vector<float> values(6), plain(6), padded(8, -1);
    std::iota(values.begin(), values.end(), 0.0f);
    plain = values;
    const Matrix<float> by_columns{values.data(), {2, 3}, {1, 2}}, whole{plain.data(), {2, 3}, {3, 1}};
    const Matrix<float> by_rows{padded.data(), {2, 3}, {4, 1}}, empty{nullptr, {0, 3}, {0, 0}};
    tailrace::Session session(options());
    session.add_array("u", by_columns, {2, 3}, {0, 0});
    session.add("plain", whole);
    session.add("empty", empty);
    session.add_array("none", empty, {0, 3}, {0, 0});
    session.save(1);
    EXPECT_THAT(session.open_epoch().read<float>(0, "u"), ElementsAre(0, 2, 4, 1, 3, 5));
    session.update_array("u", by_rows, {2, 3}, {0, 0});
    std::fill(plain.begin(), plain.end(), -1.0f);
    session.restore();
    EXPECT_THAT(padded, ElementsAre(0, 2, 4, -1, 1, 3, 5, -1));
    EXPECT_THAT(plain, ElementsAre(0, 1, 2, 3, 4, 5));
    std::string sentence;
    EXPECT_EQ(thrown([&] { session.add("gaps", by_rows); }, &sentence), TAILRACE_INVALID_ARGUMENT);
    EXPECT_THAT(sentence, HasSubstr("'gaps' has gaps between its elements"));
    EXPECT_EQ(thrown([&] {
                  session.update_array("u", by_rows, {2, 3}, {0, 0}, {.memory_shape = {2, 3}});
              }),
              TAILRACE_INVALID_ARGUMENT);
}

TEST_F(CppInterfaceTest, WhatIsDeclaredOfAnArrayIsSavedWithIt) {
    std::vector<int> memory(4);
    tailrace::Session session(options());
    session.add_array("gaps", std::span(memory), {9}, {2}, {4}, {.may_have_gaps = true});
    session.add_array("overlap", std::span(memory), {4}, {0}, {4});
    session.update_array("overlap", std::span(memory), {4}, {0}, {4}, {.may_overlap = true});
    session.save(1);
    tailrace::Reader reader = session.open_epoch();
    const auto gaps = *reader.region(0, "gaps").array, overlap = *reader.region(0, "overlap").array;
    EXPECT_TRUE(gaps.may_have_gaps && !gaps.may_overlap);
    EXPECT_TRUE(overlap.may_overlap && !overlap.may_have_gaps);
}

TEST_F(CppInterfaceTest, FailuresAreThrownWithTheirSentence) {
    std::string sentence;
    EXPECT_EQ(thrown([] { tailrace::Options({{"fiels", "2"}}); }, &sentence), TAILRACE_INVALID_ARGUMENT);
    EXPECT_THAT(sentence, HasSubstr("\"files\""));
    EXPECT_EQ(thrown([] { tailrace::Options().load("no such.toml"); }), TAILRACE_NOT_FOUND);
    EXPECT_EQ(thrown([] { tailrace::Options().set(std::string_view("name\0x", 6), "y"); }),
              TAILRACE_INVALID_ARGUMENT);
    EXPECT_EQ(thrown([] { tailrace::Session session(tailrace::Options{}); }, &sentence),
              TAILRACE_INVALID_ARGUMENT);
    EXPECT_THAT(sentence, HasSubstr("shared_dir"));
    tailrace::Session session(options());
    EXPECT_EQ(thrown([&] { tailrace::Session second(options()); }), TAILRACE_BUSY);
    EXPECT_EQ(thrown([&] { session.remove("nothing"); }), TAILRACE_NOT_FOUND);
    EXPECT_EQ(thrown([&] { session.setting("nothing"); }), TAILRACE_NOT_FOUND);
    EXPECT_EQ(thrown([&] { session.restore(); }), TAILRACE_NOT_FOUND);
    EXPECT_EQ(thrown([&] { tailrace::Reader::open_directory(directory_ + "/none"); }), TAILRACE_NOT_FOUND);
}

TEST_F(CppInterfaceTest, SessionsAndReadersMove) {
    std::vector<int> a = {1, 2, 3};
    tailrace::Session first(options());
    first.add("a", std::span(a));
    tailrace::Session second = std::move(first);
    EXPECT_EQ(first.get(), nullptr);
    second.save(1);
    second.wait_all();
    {
        tailrace::Reader reader = second.open_epoch(1, TAILRACE_NEWEST, true);
        tailrace::Reader moved = std::move(reader);
        EXPECT_EQ(moved.read<int>(0, "a"), a);
    }
    second.update("a", std::span(a).first(2));
    second.save(2);
    second.close();
    second = tailrace::Session(options());
    EXPECT_EQ(tailrace::Reader::open_directory(directory_ + "/shared", "tailrace").read<int>(0, "a").size(),
              2u);
    EXPECT_EQ(tailrace::Reader::open_directory(directory_ + "/shared", "", 1).read<int>(0, "a"), a);
}

TEST_F(CppInterfaceTest, WaitingForALimitedTimeTellsThatItIsOver) {
    std::vector<char> a(4 << 20, 'a');
    tailrace::Session session(options().set("bandwidth_cap", "4MiB"));
    session.add("a", std::span(a));
    session.save(1);
    EXPECT_FALSE(session.wait_for(1, std::chrono::seconds(0)));
    EXPECT_FALSE(session.wait_all_for(std::chrono::seconds(-3))) << "negative is no time, not for ever";
    EXPECT_TRUE(session.wait_for(1, std::chrono::minutes(1)));
}

TEST_F(CppInterfaceTest, FilesOfTheProgramComeBack) {
    namespace fs = std::filesystem;
    tailrace::Session session(options());
    EXPECT_FALSE(session.try_restore_files());
    EXPECT_THROW(session.route_file("x"), tailrace::Error);
    session.begin_files();
    std::ofstream(session.route_file("a/x")) << "text";
    session.save_files(1);
    session.begin_files();
    try {
        session.save_files(2, false);
        FAIL() << "they are not whole";
    } catch (const tailrace::Error& error) {
        EXPECT_EQ(error.code(), TAILRACE_ABORTED);
    }
    EXPECT_EQ(session.restore_files(TAILRACE_NEWEST, true), 1u);
    const auto files = session.files(0);
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(files[0].name, "a/x");
    EXPECT_EQ(files[0].bytes, 4u);
    const std::string path = session.find_file("a/x");
    EXPECT_EQ(fs::file_size(path), 4u);
    session.release_files();
    EXPECT_FALSE(fs::exists(path));
}

}  // namespace
