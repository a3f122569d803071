// A program that uses every kind of call of tailrace.hpp, and is C++17 and C++20 (cpp_standards_test.py
// compiles it as both). It saves in a fresh directory, restores, and reads; status 0 if all values came back.
#include <array>
#include <complex>
#include <cstdio>
#include <string>
#include <string_view>
#include <tailrace.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// ---- what may be added, decided when this is compiled
// --------------------------------------------------------------

template <class T, class = void>
constexpr bool is_value = false;
template <class T>
constexpr bool is_value<
    T, std::void_t<decltype(std::declval<tailrace::Session&>().add("x", std::declval<T&>())),
                   decltype(std::declval<tailrace::Session&>().add_replicated("y", std::declval<T&>()))>> =
    true;
static_assert(is_value<int>);
static_assert(is_value<std::array<double, 3>>);
static_assert(is_value<double[3]>);
static_assert(!is_value<double*>, "its bytes are an address");
static_assert(!is_value<std::string_view>, "its bytes are an address");
static_assert(!is_value<tailrace::span<const double>>, "its bytes are an address");
static_assert(!is_value<std::string>, "its bytes are not its value");
static_assert(!is_value<const int>, "restore writes into it");

template <class T, class = void>
constexpr bool is_memory = false;
template <class T>
constexpr bool
    is_memory<T, std::void_t<decltype(std::declval<tailrace::Session&>().add("x", std::declval<T>()))>> =
        true;
static_assert(is_memory<tailrace::span<double>>);
static_assert(!is_memory<tailrace::span<const double>>, "restore writes into it");
static_assert(!is_memory<tailrace::span<std::string>>, "its bytes are not its value");

// What a span is made of, in every standard.
static_assert(
    std::is_same_v<decltype(tailrace::span(std::declval<std::vector<int>&>())), tailrace::span<int>>);
static_assert(std::is_same_v<decltype(tailrace::span(std::declval<int*>(), size_t{3})), tailrace::span<int>>);
static_assert(std::is_convertible_v<std::vector<int>&, tailrace::span<int>>);
static_assert(std::is_convertible_v<const std::vector<int>&, tailrace::span<const int>>);
static_assert(std::is_convertible_v<tailrace::span<int>, tailrace::span<const int>>);
static_assert(!std::is_convertible_v<tailrace::span<const int>, tailrace::span<int>>);
static_assert(!std::is_convertible_v<const std::vector<int>&, tailrace::span<int>>);
static_assert(!std::is_convertible_v<std::vector<int>, tailrace::span<int>>,
              "a temporary would be written into");
static_assert(!std::is_convertible_v<std::vector<int>&, tailrace::span<long>>);

// A view of a matrix, with the members of std::mdspan.
struct Matrix {
    using element_type = float;
    struct accessor_type {
        using reference = float&;
    };
    struct mapping_type {
        size_t required_span_size() const { return 6; }
    };
    float* first;
    float* data_handle() const { return first; }
    static constexpr size_t rank() { return 2; }
    size_t extent(size_t d) const { return d == 0 ? 2 : 3; }
    size_t stride(size_t d) const { return d == 0 ? 3 : 1; }
    bool empty() const { return false; }
    bool is_exhaustive() const { return true; }
    mapping_type mapping() const { return {}; }
};
static_assert(is_memory<Matrix>);
static_assert(!is_value<Matrix>, "its bytes are an address");

struct Walker {
    uint32_t place;
    float weight;
};

// ---- saving and restoring
// ------------------------------------------------------------------------------------------

struct State {
    double time = 0;
    std::array<int, 3> counts{};
    std::vector<double> u, rows = std::vector<double>(6);
    std::vector<Walker> walkers;
    std::vector<std::array<float, 3>> positions;
    std::vector<std::complex<double>> waves = std::vector<std::complex<double>>(4);
    std::array<float, 6> matrix{}, grid{};
    uint64_t step = 0;

    template <class Owner>
    void add_to(tailrace::Session& session, Owner& owner) {
        session.add("time", time);
        session.add("counts", counts);
        session.add("u", u);
        session.add("waves", tailrace::span(waves));
        session.add("matrix", Matrix{matrix.data()});
        session.add_list("walkers", walkers);
        session.add_list("positions", positions);
        session.set_list_owner("walkers", owner);
        session.add_replicated("step", step);
        tailrace::ArrayOptions described;
        described.memory_shape = {6};
        described.memory_offset = {1};
        session.add_array("rows", tailrace::span(rows), {4}, {0}, {4}, described);
        session.add_array("grid", Matrix{grid.data()}, {2, 3}, {0, 0});
    }
};

bool expect(bool holds, const char* what) {
    if (!holds) std::printf("cpp_client: %s\n", what);
    return holds;
}

int run() {
    tailrace::Options options{{"shared_dir", "shared"}};
    options.set("local_dir", "local").set("files", 1).set("checksum", true);
    auto owner = [](uint64_t, uint64_t, int) { return 0; };
    {
        State state;
        tailrace::Session session(options);
        state.add_to(session, owner);
        if (!expect(!session.try_restore(), "a first run restored something")) return 1;
        state.time = 2.5;
        state.counts = {1, 2, 3};
        state.u = {4, 5};
        state.rows = {9, 0, 1, 2, 3, 9};
        state.walkers = {{7, 0.5f}, {8, 0.25f}};
        state.positions = {{1, 2, 3}};
        state.waves[3] = {6, -6};
        state.matrix[5] = 5;
        state.grid = {0, 1, 2, 3, 4, 5};
        state.step = 10;
        session.save(10);
        session.wait(10);
        session.close();
    }
    State state;
    tailrace::Session session(options);
    state.add_to(session, owner);
    const auto restored = session.try_restore();
    bool good = expect(restored && *restored == 10, "epoch 10 was to be restored");
    good &= expect(state.time == 2.5 && state.counts[2] == 3 && state.step == 10, "values differ");
    good &= expect(state.u == std::vector<double>({4, 5}), "the vector differs");
    good &= expect(state.rows == std::vector<double>({0, 0, 1, 2, 3, 0}), "the array's memory differs");
    good &= expect(state.walkers.size() == 2 && state.walkers[1].place == 8, "the list differs");
    good &= expect(state.positions.size() == 1 && state.positions[0][2] == 3, "the list of arrays differs");
    good &= expect(state.waves[3] == std::complex<double>(6, -6) && state.matrix[5] == 5, "views differ");
    good &= expect(state.grid[4] == 4, "the array of a view differs");
    const std::vector<std::string> names{"time"};
    good &= expect(session.restore_some(names) == 10, "one region was to be restored");
    session.close();

    const auto reader = tailrace::Reader::open_directory("shared");
    good &= expect(reader.read_box<double>("rows", {1}, {2}) == std::vector<double>({1, 2}), "a box differs");
    good &= expect(reader.read<int>(0, "counts") == std::vector<int>({1, 2, 3}), "a region differs");
    good &=
        expect(reader.array("grid").array->global_shape == tailrace::Extents({2, 3}), "the shape differs");
    good &= expect(reader.array("walkers").array->is_list, "a list was to be described as one");
    return good ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const tailrace::Error& error) {
        std::printf("cpp_client: %s\n", error.what());
        return 1;
    }
}
