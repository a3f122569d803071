// tailrace.hpp - the C++17 interface: saves a parallel program's state in one memory copy, and
// writes it to a few files in the background.
//
//     #include <tailrace.hpp>
//
//     std::vector<double> u = initial_state();
//     uint64_t step = 0;
//     tailrace::Session session({{"shared_dir", "checkpoints"}, {"files", "2"}});
//     session.add("u", u);
//     if (auto epoch = session.try_restore()) step = *epoch;   // nothing on a first run
//     while (step < last) {
//         advance(u);
//         if (++step % 100 == 0) session.save(step);         // or: if (session.should_save())
//     }
//     session.close();   // waits until everything is written, and throws if a flush has failed
//
// With MPI: #include <tailrace_mpi.hpp>, and tailrace::open_mpi(communicator, options).
//
// The interface is header-only. It calls the C interface of tailrace.h, whose symbols are the stable
// ABI. What tailrace.h says about threads, collective calls and memory holds here too. Link with
// libtailrace.
//
// A call that fails throws tailrace::Error, which carries the code and the sentence. Sessions,
// options and readers own the objects of the C interface behind them. They can be moved but not
// copied, and must not be used after a move.
#ifndef TAILRACE_HPP
#define TAILRACE_HPP

#if __cplusplus < 201703L
#error "tailrace.hpp needs C++17 (-std=c++17); tailrace.h, the C interface, can be used from any C++"
#else

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tailrace_types.hpp"

namespace tailrace {
inline namespace v0 {

// Reads an epoch: the sizes, any rank's regions, and any box of a global array.
class Reader {
  public:
    // Opens an epoch of a shared directory, without a session. `job` may be empty if the directory
    // holds only one job's files.
    static Reader open_directory(std::string_view shared_dir, std::string_view job = {},
                                 uint64_t epoch = TAILRACE_NEWEST) {
        tailrace_reader* reader = nullptr;
        detail::check(tailrace_reader_open_directory(detail::c_text(shared_dir).c_str(),
                                                     job.empty() ? nullptr : detail::c_text(job).c_str(),
                                                     epoch, &reader));
        return Reader(reader);
    }
    // Opens the epoch that a shared file belongs to. A file that is a whole epoch may have any
    // name.
    static Reader open_file(std::string_view path) {
        tailrace_reader* reader = nullptr;
        detail::check(tailrace_reader_open_file(detail::c_text(path).c_str(), &reader));
        return Reader(reader);
    }
    // Takes over a reader of the C interface.
    explicit Reader(tailrace_reader* reader) noexcept : reader_(reader) {}

    uint64_t epoch() const noexcept { return tailrace_reader_epoch(get()); }
    uint32_t rank_count() const noexcept { return tailrace_reader_rank_count(get()); }
    // Names the damaged epochs that were passed over in favour of this one, and says why. Empty if there
    // are none.
    std::string passed_over() const { return tailrace_reader_passed_over(get()); }

    RegionInfo region(uint32_t rank, std::string_view name) const {
        tailrace_region_info info;
        detail::check(tailrace_reader_region(get(), rank, detail::c_text(name).c_str(), &info));
        return convert(info);
    }
    // Describes the whole of a global array or list, as all ranks together saved it: offset is 0, and
    // local_shape is global_shape.
    RegionInfo array(std::string_view name) const {
        tailrace_region_info info;
        detail::check(tailrace_reader_array(get(), detail::c_text(name).c_str(), &info));
        return convert(info);
    }
    std::vector<RegionInfo> regions(uint32_t rank) const {
        size_t count = 0;
        detail::check(tailrace_reader_region_count(get(), rank, &count));
        std::vector<RegionInfo> all;
        for (size_t i = 0; i < count; ++i) {
            tailrace_region_info info;
            detail::check(tailrace_reader_region_at(get(), rank, i, &info));
            all.push_back(convert(info));
        }
        return all;
    }

    // Fills `target`, which must have the region's size.
    template <class T, detail::only_if<detail::writable_bytes<T>> = 0>
    void read(uint32_t rank, std::string_view name, span<T> target) const {
        detail::check(tailrace_reader_read(get(), rank, detail::c_text(name).c_str(), target.data(),
                                           target.size_bytes()));
    }
    template <class T, detail::only_if<std::is_trivially_copyable_v<T>> = 0>
    std::vector<T> read(uint32_t rank, std::string_view name) const {
        const uint64_t bytes = region(rank, name).bytes;
        if (bytes % sizeof(T) != 0)
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "region \"" + std::string(name) + "\" has " + std::to_string(bytes) +
                            " bytes, which is no whole number of elements of " + std::to_string(sizeof(T)) +
                            " bytes; nothing was read");
        std::vector<T> values(bytes / sizeof(T));
        read(rank, name, span<T>(values));
        return values;
    }

    // Fills `target`, row-major, with the box [offset, offset + shape) of a global array.
    template <class T, detail::only_if<detail::writable_bytes<T>> = 0>
    void read_box(std::string_view name, const Extents& offset, const Extents& shape, span<T> target) const {
        if (offset.size() != shape.size())
            throw Error(TAILRACE_INVALID_ARGUMENT, "a box whose offset and shape differ in dimensions");
        detail::check(tailrace_reader_read_box(get(), detail::c_text(name).c_str(),
                                               static_cast<int>(shape.size()), offset.data(), shape.data(),
                                               target.data(), target.size_bytes()));
    }
    template <class T, detail::only_if<std::is_trivially_copyable_v<T>> = 0>
    std::vector<T> read_box(std::string_view name, const Extents& offset, const Extents& shape) const {
        std::vector<T> values(shape.elements());
        read_box(name, offset, shape, span<T>(values));
        return values;
    }

    tailrace_reader* get() const noexcept { return reader_.get(); }

  private:
    static RegionInfo convert(const tailrace_region_info& info) {
        RegionInfo region{info.name, info.bytes, std::nullopt};
        if (info.is_array != 0) {
            const auto dimensions = static_cast<size_t>(info.dimensions);
            region.array = RegionInfo::Array{info.type,
                                             Extents(span<const uint64_t>(info.global_shape, dimensions)),
                                             Extents(span<const uint64_t>(info.offset, dimensions)),
                                             Extents(span<const uint64_t>(info.local_shape, dimensions)),
                                             (info.flags & TAILRACE_ARRAY_GAPS) != 0,
                                             (info.flags & TAILRACE_ARRAY_OVERLAP) != 0,
                                             (info.flags & TAILRACE_ARRAY_LIST) != 0};
        }
        return region;
    }

    struct Close {
        void operator()(tailrace_reader* reader) const noexcept { tailrace_reader_close(reader); }
    };
    std::unique_ptr<tailrace_reader, Close> reader_;
};

class Session {
  public:
    // Opens a session without ranks. Without options the settings come from the defaults, the
    // environment, and the file that TAILRACE_CONFIG names.
    Session() : Session(open(nullptr)) {}
    explicit Session(const Options& options) : Session(open(options.get())) {}
    // Takes over a session of the C interface.
    explicit Session(tailrace_session* session) noexcept : session_(session) {}

    // The destructor waits for all flushes like close(), but cannot report failures. If an exception
    // destroys the session on one of several ranks, the destructor does not wait. The other ranks might
    // never come, and then the program's handler would not be reached. The session stays open until
    // MPI_Finalize or MPI_Abort.
    ~Session() = default;
    Session(Session&&) noexcept = default;
    Session& operator=(Session&&) noexcept = default;

    // Waits for all flushes and throws the first failure among them. If the newest epoch was kept in
    // the node-local tier, this call flushes it too, unless flush_at_close is no. The session is closed
    // even after a failure. Collective.
    void close() { detail::check(tailrace_close(session_.release())); }

    int rank() const noexcept { return tailrace_rank(get()); }
    int rank_count() const noexcept { return tailrace_rank_count(get()); }
    // Returns the value of a setting as this session uses it.
    std::string setting(std::string_view key) const {
        const char* value = tailrace_setting(get(), detail::c_text(key).c_str());
        if (value == nullptr)
            throw Error(TAILRACE_NOT_FOUND, "there is no setting \"" + std::string(key) + "\"");
        return value;
    }

    // ---- when to save and to stop: the same answer on all ranks at the same call (see tailrace.h) ---

    bool should_save() {
        int yes = 0;
        detail::check(tailrace_should_save(get(), &yes));
        return yes != 0;
    }
    // Returns the reason to stop, or nothing if there is none. A reason, once there is one, stays.
    std::optional<std::string> should_stop() {
        const char* why = nullptr;
        detail::check(tailrace_should_stop(get(), &why));
        return why == nullptr ? std::nullopt : std::optional<std::string>(why);
    }

    // ---- what to save. The memory stays the program's; save reads it and restore writes it. -----

    void add(std::string_view name, void* memory, uint64_t bytes) {
        detail::check(tailrace_register(get(), detail::c_text(name).c_str(), memory, bytes));
    }
    template <class T, detail::only_if<detail::writable_bytes<T>> = 0>
    void add(std::string_view name, span<T> memory) {
        add(name, memory.data(), memory.size_bytes());
    }
    // Adds a scalar, or any other value that its bytes describe completely (not a pointer).
    template <class T, detail::only_if<detail::plain_value<T>> = 0>
    void add(std::string_view name, T& value) {
        add(name, static_cast<void*>(&value), sizeof value);
    }
    // Adds a vector of any size. Each save takes the vector as it is at that time, and a restore gives it the
    // size that it had. The vector must live, and stay in its place, until its name is removed or the session
    // is closed. Its elements may move.
    template <class T, class Allocator,
              detail::only_if<detail::plain_value<T> && !std::is_same_v<T, bool>> = 0>
    void add(std::string_view name, std::vector<T, Allocator>& values) {
        using Vector = std::vector<T, Allocator>;
        detail::check(tailrace_register_resizable(get(), detail::c_text(name).c_str(), find_vector<Vector>,
                                                  resize_vector<Vector>, &values));
    }
    // Adds the elements of a std::mdspan, for this rank alone. They must fill its memory without gaps.
    template <class View, detail::only_if<detail::multidimensional_view<View>> = 0,
              detail::only_if<detail::writable_bytes<typename View::element_type>> = 0>
    void add(std::string_view name, const View& view) {
        if (!view.is_exhaustive())
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "'" + std::string(name) + "' has gaps between its elements; add_array knows them");
        add(name, elements_of(view));
    }
    // Adds this rank's items of a list that all ranks form together. Each rank may have any number of items,
    // and the vector may change as above. On the same number of ranks as at the save, a restore gives each
    // rank its own items back. On another number, each rank gets an even share, in the order of ranks. T is a
    // number, a std::array of numbers, or a struct.
    template <class T, class Allocator,
              detail::only_if<detail::plain_value<T> && !std::is_same_v<T, bool>> = 0>
    void add_list(std::string_view name, std::vector<T, Allocator>& items) {
        using Vector = std::vector<T, Allocator>;
        constexpr detail::Item item = detail::item_of<T>::value();
        detail::check(tailrace_register_list(get(), detail::c_text(name).c_str(), item.type, item.width,
                                             find_vector<Vector>, resize_vector<Vector>, &items));
    }
    // Says which rank gets which item of a list when another number of ranks restores it, in place of an even
    // share: owner(index, items, rank_count) returns a rank. `owner` must live, and stay in its place, as
    // long as the list. tailrace_set_list_owner says more.
    template <class Owner, detail::only_if<std::is_invocable_r_v<int, Owner&, uint64_t, uint64_t, int>> = 0>
    void set_list_owner(std::string_view name, Owner& owner) {
        const tailrace_owner_function ask = [](void* user, uint64_t index, uint64_t items, int rank_count) {
            return static_cast<int>((*static_cast<Owner*>(user))(index, items, rank_count));
        };
        detail::check(tailrace_set_list_owner(get(), detail::c_text(name).c_str(), ask,
                                              const_cast<std::remove_const_t<Owner>*>(&owner)));
    }
    // Adds a value that is the same on all ranks, such as the time step. Any number of ranks may restore it.
    // If the ranks' values differ, a rank that saved one gets its own back, and a new rank gets rank 0's.
    template <class T, detail::only_if<detail::plain_value<T>> = 0>
    void add_replicated(std::string_view name, T& value) {
        const span<std::byte> bytes(reinterpret_cast<std::byte*>(&value), sizeof value);
        ArrayOptions options;
        options.may_overlap = true;
        add_array(name, bytes, {bytes.size()}, {0}, {bytes.size()}, options);
    }
    // Gives an added name a new place and size. May be called at any time between saves.
    void update(std::string_view name, void* memory, uint64_t bytes) {
        detail::check(tailrace_update(get(), detail::c_text(name).c_str(), memory, bytes));
    }
    template <class T, detail::only_if<detail::writable_bytes<T>> = 0>
    void update(std::string_view name, span<T> memory) {
        update(name, memory.data(), memory.size_bytes());
    }

    // Adds this rank's piece of a global array, row-major: element i of a dimension is element
    // offset + i of the whole array. `memory` holds exactly local_shape's elements, unless the
    // options describe it.
    template <class T, detail::only_if<!std::is_const_v<T>> = 0>
    void add_array(std::string_view name, span<T> memory, const Extents& global_shape, const Extents& offset,
                   const Extents& local_shape, const ArrayOptions& options = {}) {
        const tailrace_array array = piece<T>(memory, global_shape, offset, local_shape, options);
        detail::check(tailrace_register_array(get(), detail::c_text(name).c_str(), memory.data(), &array));
    }
    // The same for a std::mdspan, which has the local shape, and elements at any strides.
    template <class View, detail::only_if<detail::multidimensional_view<View>> = 0,
              detail::only_if<!std::is_const_v<typename View::element_type>> = 0>
    void add_array(std::string_view name, const View& view, const Extents& global_shape,
                   const Extents& offset, ArrayOptions options = {}) {
        add_array(name, elements_of(view), global_shape, offset, described(view, options), options);
    }
    template <class T, detail::only_if<!std::is_const_v<T>> = 0>
    void update_array(std::string_view name, span<T> memory, const Extents& global_shape,
                      const Extents& offset, const Extents& local_shape, const ArrayOptions& options = {}) {
        const tailrace_array array = piece<T>(memory, global_shape, offset, local_shape, options);
        detail::check(tailrace_update_array(get(), detail::c_text(name).c_str(), memory.data(), &array));
    }

    template <class View, detail::only_if<detail::multidimensional_view<View>> = 0,
              detail::only_if<!std::is_const_v<typename View::element_type>> = 0>
    void update_array(std::string_view name, const View& view, const Extents& global_shape,
                      const Extents& offset, ArrayOptions options = {}) {
        update_array(name, elements_of(view), global_shape, offset, described(view, options), options);
    }

    void remove(std::string_view name) {
        detail::check(tailrace_unregister(get(), detail::c_text(name).c_str()));
    }

    // ---- saving ---------------------------------------------------------------------------------

    // Returns when the node-local copy is complete. The program may then change its memory. `epoch`
    // must grow from save to save and be the same on all ranks.
    void save(uint64_t epoch) { detail::check(tailrace_save(get(), epoch)); }
    // Saves in two steps: this call copies what was added, but tells no other rank. save() of the same
    // epoch then takes the copy, or give_up() drops it (see tailrace.h).
    void capture(uint64_t epoch) { detail::check(tailrace_capture(get(), epoch)); }
    // Takes the place of save() on a rank that does not save the epoch. The epoch fails on all ranks with the
    // sentence `why`.
    void give_up(uint64_t epoch, std::string_view why) {
        detail::check(tailrace_give_up(get(), epoch, detail::c_text(why).c_str()));
    }

    // Returns what this rank knows of an epoch. Never blocks.
    Epoch state(uint64_t epoch) const {
        tailrace_epoch_info info;
        detail::check(tailrace_epoch_state(get(), epoch, &info));
        return convert(info);
    }

    // Waits until the epoch is committed or kept local. Throws its failure.
    void wait(uint64_t epoch) { detail::check(tailrace_wait(get(), epoch, -1)); }
    void wait_all() { detail::check(tailrace_wait_all(get(), -1)); }
    // Waits for a limited time. Returns false if the time ran out first. The work then goes on.
    [[nodiscard]] bool wait_for(uint64_t epoch, std::chrono::duration<double> longest) {
        return in_time(tailrace_wait(get(), epoch, not_negative(longest)));
    }
    [[nodiscard]] bool wait_all_for(std::chrono::duration<double> longest) {
        return in_time(tailrace_wait_all(get(), not_negative(longest)));
    }

    // ---- restoring (collective) -----------------------------------------------------------------

    // Returns the epochs that can be restored, newest first.
    std::vector<Epoch> list() {
        tailrace_epoch_info* infos = nullptr;
        size_t count = 0;
        detail::check(tailrace_list(get(), &infos, &count));
        const std::unique_ptr<tailrace_epoch_info, void (*)(tailrace_epoch_info*)> owner(infos,
                                                                                         &tailrace_list_free);
        std::vector<Epoch> epochs;
        for (size_t i = 0; i < count; ++i) epochs.push_back(convert(infos[i]));
        return epochs;
    }

    // Fills everything that was added, and returns the epoch's number. Takes the newest epoch that
    // can be read completely, or a given one.
    uint64_t restore(uint64_t epoch = TAILRACE_NEWEST) {
        uint64_t restored = 0;
        detail::check(tailrace_restore(get(), epoch, &restored));
        return restored;
    }
    // As restore(), but returns nothing, instead of throwing, if there is nothing to restore (on a
    // first run).
    [[nodiscard]] std::optional<uint64_t> try_restore(uint64_t epoch = TAILRACE_NEWEST) {
        uint64_t restored = 0;
        const tailrace_code code = tailrace_restore(get(), epoch, &restored);
        if (code == TAILRACE_NOT_FOUND) return std::nullopt;
        detail::check(code);
        return restored;
    }
    // Restores only the regions with these names.
    uint64_t restore_some(span<const std::string> names, uint64_t epoch = TAILRACE_NEWEST) {
        std::vector<const char*> pointers;
        for (const std::string& name : names) pointers.push_back(name.c_str());
        const char* none = nullptr;
        uint64_t restored = 0;
        detail::check(tailrace_restore_some(get(), epoch, pointers.empty() ? &none : pointers.data(),
                                            pointers.size(), &restored));
        return restored;
    }

    // ---- files that the program writes by itself (see tailrace.h) -------------------------------

    // Begins this rank's files for one save.
    void begin_files() { detail::check(tailrace_files_begin(get())); }
    // Returns the path to write the file to. `name` is relative, such as "fields/u.h5".
    std::string route_file(std::string_view name) {
        std::string path(TAILRACE_MAX_PATH_BYTES, '\0');
        detail::check(tailrace_files_route(get(), detail::c_text(name).c_str(), path.data(), path.size()));
        return path.c_str();
    }
    // As save(), and also saves the files that were routed. They are gone afterwards. If the program could
    // not write them, set `whole` to false. Then nothing of the epoch is kept, on any rank, and the call
    // throws an Error.
    void save_files(uint64_t epoch, bool whole = true) {
        detail::check(tailrace_files_save(get(), epoch, whole ? 1 : 0));
    }
    // As restore(), and also brings this rank's files back. With `of_all_ranks` each rank may ask for the
    // files of any rank. Collective.
    uint64_t restore_files(uint64_t epoch = TAILRACE_NEWEST, bool of_all_ranks = false) {
        uint64_t restored = 0;
        detail::check(tailrace_files_restore(get(), epoch, files_flags(of_all_ranks), &restored));
        return restored;
    }
    // As restore_files(), but returns nothing, instead of throwing, on a first run.
    [[nodiscard]] std::optional<uint64_t> try_restore_files(uint64_t epoch = TAILRACE_NEWEST,
                                                            bool of_all_ranks = false) {
        uint64_t restored = 0;
        const tailrace_code code = tailrace_files_restore(get(), epoch, files_flags(of_all_ranks), &restored);
        if (code == TAILRACE_NOT_FOUND) return std::nullopt;
        detail::check(code);
        return restored;
    }
    // Returns the path of a restored file of `rank`. Without a rank it finds this rank's file, or the file of
    // the only rank that has one.
    std::string find_file(std::string_view name, uint32_t rank = TAILRACE_ANY_RANK) {
        std::string path(TAILRACE_MAX_PATH_BYTES, '\0');
        detail::check(
            tailrace_files_find(get(), rank, detail::c_text(name).c_str(), path.data(), path.size()));
        return path.c_str();
    }
    // Lists the files that a rank saved in the epoch whose files are restored.
    std::vector<FileInfo> files(uint32_t rank) {
        size_t count = 0;
        detail::check(tailrace_files_count(get(), rank, &count));
        std::vector<FileInfo> all;
        for (size_t i = 0; i < count; ++i) {
            tailrace_files_info info;
            detail::check(tailrace_files_at(get(), rank, i, &info));
            all.push_back({info.name, info.bytes, info.rank, info.rights});
        }
        return all;
    }
    // Removes the restored files from the node-local tier.
    void release_files() { detail::check(tailrace_files_release(get())); }

    // Opens an epoch for reading: `epoch`, or the newest, or the newest below `before`. With `verify`
    // all ranks together first read and check every byte. Destroy the reader before the session.
    Reader open_epoch(uint64_t epoch = TAILRACE_NEWEST, uint64_t before = TAILRACE_NEWEST,
                      bool verify = false) {
        tailrace_reader* reader = nullptr;
        detail::check(tailrace_reader_open(get(), epoch, before, verify ? TAILRACE_VERIFY : 0u, &reader));
        return Reader(reader);
    }

    // For calls of the C interface. This object keeps ownership.
    tailrace_session* get() const noexcept { return session_.get(); }

  private:
    static tailrace_session* open(const tailrace_options* options) {
        tailrace_session* session = nullptr;
        detail::check(tailrace_open(options, &session));
        return session;
    }

    template <class View>
    static auto elements_of(const View& view) {
        return span<typename View::element_type>(view.data_handle(),
                                                 static_cast<size_t>(view.mapping().required_span_size()));
    }
    // Returns the view's shape, and says in the options where its elements lie.
    template <class View>
    static Extents described(const View& view, ArrayOptions& options) {
        static_assert(View::rank() > 0 && View::rank() <= TAILRACE_MAX_DIMENSIONS);
        if (options.memory_shape.size() + options.memory_offset.size() + options.memory_stride_bytes.size() >
            0)
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "a std::mdspan says itself where its elements lie; leave the memory options out");
        std::array<uint64_t, View::rank()> shape, strides;
        for (size_t d = 0; d < View::rank(); ++d) {
            shape[d] = static_cast<uint64_t>(view.extent(d));
            strides[d] = static_cast<uint64_t>(view.stride(d)) * sizeof(typename View::element_type);
        }
        if (!view.empty()) options.memory_stride_bytes = Extents(span<const uint64_t>(strides));
        return Extents(span<const uint64_t>(shape));
    }

    template <class Vector>
    static void* find_vector(void* user, uint64_t* bytes) noexcept {
        auto& vector = *static_cast<Vector*>(user);
        *bytes = vector.size() * sizeof(typename Vector::value_type);
        return vector.data();
    }
    template <class Vector>
    static int resize_vector(void* user, uint64_t bytes) noexcept {
        constexpr size_t each = sizeof(typename Vector::value_type);
        if (bytes % each != 0) return 1;
        try {
            static_cast<Vector*>(user)->resize(bytes / each);
        } catch (...) {
            return 1;
        }
        return 0;
    }
    static unsigned files_flags(bool of_all_ranks) { return of_all_ranks ? TAILRACE_FILES_OF_ALL_RANKS : 0u; }

    template <class T>
    static tailrace_array piece(span<T> memory, const Extents& global_shape, const Extents& offset,
                                const Extents& local_shape, const ArrayOptions& options) {
        if (offset.size() != global_shape.size() || local_shape.size() != global_shape.size())
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "an array whose global shape, offset and local shape differ in dimensions");
        const bool is_described = options.memory_shape.size() + options.memory_stride_bytes.size() > 0;
        if (is_described ? memory.empty() && local_shape.elements() > 0
                         : memory.size() != local_shape.elements())
            throw Error(TAILRACE_INVALID_ARGUMENT, "an array's memory has " + std::to_string(memory.size()) +
                                                       " elements, its local shape " +
                                                       std::to_string(local_shape.elements()));
        tailrace_array array{};
        array.type = detail::element_type<T>();
        array.dimensions = static_cast<int>(global_shape.size());
        array.global_shape = global_shape.data();
        array.offset = offset.data();
        array.local_shape = local_shape.data();
        array.flags = (options.may_have_gaps ? TAILRACE_ARRAY_GAPS : 0u) |
                      (options.may_overlap ? TAILRACE_ARRAY_OVERLAP : 0u);
        for (const auto& [given, field] : {std::pair{&options.memory_shape, &array.memory_shape},
                                           {&options.memory_offset, &array.memory_offset},
                                           {&options.memory_stride_bytes, &array.memory_stride_bytes}}) {
            if (given->size() == 0) continue;
            if (given->size() != global_shape.size())
                throw Error(TAILRACE_INVALID_ARGUMENT,
                            "an array's memory is described in other dimensions than the array has");
            *field = given->data();
        }
        if (is_described) array.memory_bytes = memory.size_bytes();
        return array;
    }

    static Epoch convert(const tailrace_epoch_info& info) {
        Epoch epoch{info.epoch,           info.run,           static_cast<State>(info.state),
                    info.why_code,        info.why,           info.captured_bytes,
                    info.blocked_seconds, info.flush_seconds, info.in_local != 0,
                    info.in_shared != 0};
        epoch.losses_survived = info.losses_survived;
        return epoch;
    }

    // A negative time would mean no time limit.
    static double not_negative(std::chrono::duration<double> time) {
        return time.count() < 0 ? 0 : time.count();
    }
    static bool in_time(tailrace_code code) {
        if (code == TAILRACE_TIMEOUT) return false;
        detail::check(code);
        return true;
    }

    struct Close {
        Close() noexcept : exceptions(std::uncaught_exceptions()) {}
        void operator()(tailrace_session* session) const noexcept {
            if (std::uncaught_exceptions() > exceptions && tailrace_rank_count(session) > 1) return;
            tailrace_close(session);
        }
        int exceptions;  // how many were in flight when the session was opened
    };
    std::unique_ptr<tailrace_session, Close> session_;
};

}  // namespace v0
}  // namespace tailrace

#endif  // C++17

#endif
