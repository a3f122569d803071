// tailrace.hpp - the C++20 interface: saves a parallel program's state in one memory copy, and
// writes it to a few files in the background.
//
//     #include <tailrace.hpp>
//
//     std::vector<double> u = initial_state();
//     uint64_t step = 0;
//     tailrace::Session session({{"shared_dir", "checkpoints"}, {"files", "2"}});
//     session.add("u", std::span(u));
//     if (auto epoch = session.try_restore()) step = *epoch;   // nothing on a first run
//     while (step < last) {
//         advance(u);
//         if (++step % 100 == 0) session.save(step);         // or: if (session.should_save())
//     }
//     session.close();   // waits until everything is written, and throws if a flush has failed
//
// With MPI: #include <tailrace_mpi.hpp>, and tailrace::open_mpi(communicator, options).
//
// The interface is header-only, over the C interface of tailrace.h, whose symbols are the stable
// ABI. What tailrace.h says about threads, collective calls and memory holds here too. Link with
// libtailrace.
//
// A failure is thrown as tailrace::Error, which carries the code and the sentence. Sessions,
// options and readers own the objects of the C interface behind them. They are movable, not
// copyable, and must not be used after a move.
#ifndef TAILRACE_HPP
#define TAILRACE_HPP

#if __cplusplus < 201709L  // GCC 10's value for C++20
#error "tailrace.hpp needs C++20 (-std=c++20); tailrace.h, the C interface, can be used from any C++"
#else

#include <array>
#include <chrono>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tailrace.h"

namespace tailrace {
// The version keeps these names apart from those inside the library, which share the outer
// namespace.
inline namespace v0 {

class Error : public std::runtime_error {
  public:
    Error(tailrace_code code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
    // The kind of failure, such as TAILRACE_NO_SPACE. what() is the sentence.
    tailrace_code code() const noexcept { return code_; }

  private:
    tailrace_code code_;
};

namespace detail {

inline void check(tailrace_code code) {
    if (code != TAILRACE_OK) throw Error(code, tailrace_last_error());
}

// The C interface takes NUL-terminated text; a NUL inside would cut it silently.
inline std::string c_text(std::string_view text) {
    if (text.find('\0') != std::string_view::npos)
        throw Error(TAILRACE_INVALID_ARGUMENT, "a name or value with a NUL byte; nothing was done");
    return std::string(text);
}

template <class T>
constexpr tailrace_type element_type() {
    using Value = std::remove_cv_t<T>;
    if constexpr (std::same_as<Value, std::byte>) {
        return TAILRACE_BYTES;
    } else if constexpr (std::same_as<Value, bool>) {
        static_assert(sizeof(bool) == 1);
        return TAILRACE_BOOL;
    } else if constexpr (std::same_as<Value, float>) {
        return TAILRACE_FLOAT32;
    } else if constexpr (std::same_as<Value, double>) {
        return TAILRACE_FLOAT64;
    } else if constexpr (std::same_as<Value, std::complex<float>>) {
        return TAILRACE_COMPLEX64;
    } else if constexpr (std::same_as<Value, std::complex<double>>) {
        return TAILRACE_COMPLEX128;
    } else {
        static_assert(std::integral<Value>, "no tailrace_type stands for this element type");
        static_assert(sizeof(Value) <= 8);
        constexpr bool is_signed = std::is_signed_v<Value>;
        switch (sizeof(Value)) {
            case 1:
                return is_signed ? TAILRACE_INT8 : TAILRACE_UINT8;
            case 2:
                return is_signed ? TAILRACE_INT16 : TAILRACE_UINT16;
            case 4:
                return is_signed ? TAILRACE_INT32 : TAILRACE_UINT32;
            default:
                return is_signed ? TAILRACE_INT64 : TAILRACE_UINT64;
        }
    }
}

}  // namespace detail

// A session's settings. docs/settings.md lists the keys. Later sources win, in this order:
// defaults, files loaded, environment variables TAILRACE_<KEY>, keys set in code. An unknown key or
// a bad value throws at once, and the message names the nearest right one.
class Options {
  public:
    Options() : options_(tailrace_options_new()) {
        if (!options_) throw Error(TAILRACE_OUT_OF_MEMORY, "memory for the options could not be had");
    }
    Options(std::initializer_list<std::pair<std::string_view, std::string_view>> settings) : Options() {
        for (const auto& [key, value] : settings) set(key, value);
    }

    // Reads a TOML file.
    Options& load(std::string_view toml_path) {
        detail::check(tailrace_options_load(get(), detail::c_text(toml_path).c_str()));
        return *this;
    }
    Options& set(std::string_view key, std::string_view value) {
        detail::check(
            tailrace_options_set(get(), detail::c_text(key).c_str(), detail::c_text(value).c_str()));
        return *this;
    }
    template <std::integral Value>
    Options& set(std::string_view key, Value value) {
        if constexpr (std::same_as<Value, bool>) {
            return set(key, std::string_view(value ? "yes" : "no"));
        } else {
            return set(key, std::string_view(std::to_string(value)));
        }
    }

    // For calls of the C interface. This object keeps ownership.
    tailrace_options* get() const noexcept { return options_.get(); }

  private:
    struct Free {
        void operator()(tailrace_options* options) const noexcept { tailrace_options_free(options); }
    };
    std::unique_ptr<tailrace_options, Free> options_;
};

// The shape or offset of an array: {rows, columns}, or a span, or a vector. It has at most
// TAILRACE_MAX_DIMENSIONS numbers.
class Extents {
  public:
    Extents() = default;  // no dimensions
    Extents(std::initializer_list<uint64_t> values) : Extents(std::span(values.begin(), values.size())) {}
    Extents(std::span<const uint64_t> values) {
        if (values.size() > TAILRACE_MAX_DIMENSIONS)
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "an array of more dimensions than TAILRACE_MAX_DIMENSIONS");
        for (uint64_t value : values) values_[count_++] = value;
    }
    Extents(const std::vector<uint64_t>& values) : Extents(std::span<const uint64_t>(values)) {}

    const uint64_t* data() const noexcept { return values_.data(); }
    size_t size() const noexcept { return count_; }
    const uint64_t* begin() const noexcept { return data(); }
    const uint64_t* end() const noexcept { return data() + size(); }
    uint64_t operator[](size_t dimension) const noexcept { return values_[dimension]; }
    uint64_t elements() const noexcept {
        uint64_t product = 1;
        for (uint64_t value : *this) product *= value;
        return product;
    }
    friend bool operator==(const Extents& a, const Extents& b) noexcept {
        return a.count_ == b.count_ && a.values_ == b.values_;
    }

  private:
    std::array<uint64_t, TAILRACE_MAX_DIMENSIONS> values_{};
    size_t count_ = 0;
};

enum class State : int {
    unknown = TAILRACE_STATE_UNKNOWN,
    captured = TAILRACE_STATE_CAPTURED,      // in the node-local tier, waiting
    flushing = TAILRACE_STATE_FLUSHING,      // on its way to the shared directory
    committed = TAILRACE_STATE_COMMITTED,    // durable in the shared directory: K files
    kept_local = TAILRACE_STATE_KEPT_LOCAL,  // stays in the node-local tier
    failed = TAILRACE_STATE_FAILED,          // not in the shared directory; see `why`
    protected_ = TAILRACE_STATE_PROTECTED,   // as captured, and safe from the loss of nodes
};

struct Epoch {
    uint64_t epoch = 0;
    uint32_t run = 0;  // which session saved it, counted from 1 in its directory
    State state = State::unknown;
    tailrace_code why_code = TAILRACE_OK;
    std::string why;                           // the sentence of a failure, or what kept it local
    uint64_t captured_bytes = 0;               // of this rank
    double blocked_seconds = 0;                // how long save kept this rank
    double flush_seconds = 0;                  // from the flush's start to the commit
    bool in_local = false, in_shared = false;  // where a restore could take it from (list only)
    // How many nodes of each set may be lost and a restore still has the captured epoch; 0: none.
    uint64_t losses_survived = 0;
};

struct RegionInfo {
    std::string name;
    uint64_t bytes = 0;
    // For arrays: the piece that the rank saved, and the declarations about the whole array
    // (ArrayOptions).
    struct Array {
        tailrace_type type;
        Extents global_shape, offset, local_shape;
        bool may_have_gaps = false, may_overlap = false;
    };
    std::optional<Array> array;
};

// Declarations about a global array, and a description of this rank's memory.
//
// All ranks declare the same. Without a declaration the ranks' pieces must cover every element
// exactly once; otherwise the epoch is not committed.
//
// Without a description the memory is exactly the piece. A description says that the memory is a
// block of memory_shape elements in which the piece begins at memory_offset, for example because
// ghost cells surround it. Or it says that the elements lie memory_stride_bytes from their
// neighbours in each dimension (tailrace_array in tailrace.h). Only the piece is read and written:
//
//     session.add_array("u", std::span(u), {rows, columns}, {first, 0}, {own, columns},
//                       {.memory_shape = {own + 2, columns}, .memory_offset = {1, 0}});
struct ArrayOptions {
    bool may_have_gaps = false;  // some elements may be in no rank's piece; they cannot be read
    // Several ranks' pieces may contain the same element. The value of the lowest rank counts. A
    // rank that restores exactly the piece it saved gets its own values back.
    bool may_overlap = false;
    Extents memory_shape = {}, memory_offset = {}, memory_stride_bytes = {};
};

// An epoch that can be read: sizes first, then any rank's regions and any box of a global array.
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
    // The damaged epochs that this one was opened in place of, and why. Empty if there are none.
    std::string passed_over() const { return tailrace_reader_passed_over(get()); }

    RegionInfo region(uint32_t rank, std::string_view name) const {
        tailrace_region_info info;
        detail::check(tailrace_reader_region(get(), rank, detail::c_text(name).c_str(), &info));
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
    template <class T>
    requires(std::is_trivially_copyable_v<T> &&
             !std::is_const_v<T>) void read(uint32_t rank, std::string_view name, std::span<T> target) const {
        detail::check(tailrace_reader_read(get(), rank, detail::c_text(name).c_str(), target.data(),
                                           target.size_bytes()));
    }
    template <class T>
    requires std::is_trivially_copyable_v<T> std::vector<T> read(uint32_t rank, std::string_view name)
    const {
        const uint64_t bytes = region(rank, name).bytes;
        if (bytes % sizeof(T) != 0)
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "region \"" + std::string(name) + "\" has " + std::to_string(bytes) +
                            " bytes, which is no whole number of elements of " + std::to_string(sizeof(T)) +
                            " bytes; nothing was read");
        std::vector<T> values(bytes / sizeof(T));
        read(rank, name, std::span(values));
        return values;
    }

    // Fills `target`, row-major, with the box [offset, offset + shape) of a global array.
    template <class T>
    requires(std::is_trivially_copyable_v<T> &&
             !std::is_const_v<T>) void read_box(std::string_view name, const Extents& offset,
                                                const Extents& shape, std::span<T> target) const {
        if (offset.size() != shape.size())
            throw Error(TAILRACE_INVALID_ARGUMENT, "a box whose offset and shape differ in dimensions");
        detail::check(tailrace_reader_read_box(get(), detail::c_text(name).c_str(),
                                               static_cast<int>(shape.size()), offset.data(), shape.data(),
                                               target.data(), target.size_bytes()));
    }
    template <class T>
    requires std::is_trivially_copyable_v<T> std::vector<T> read_box(std::string_view name,
                                                                     const Extents& offset,
                                                                     const Extents& shape)
    const {
        std::vector<T> values(shape.elements());
        read_box(name, offset, shape, std::span(values));
        return values;
    }

    tailrace_reader* get() const noexcept { return reader_.get(); }

  private:
    static RegionInfo convert(const tailrace_region_info& info) {
        RegionInfo region{info.name, info.bytes, std::nullopt};
        if (info.is_array != 0) {
            const auto dimensions = static_cast<size_t>(info.dimensions);
            region.array = RegionInfo::Array{info.type,
                                             std::span(info.global_shape, dimensions),
                                             std::span(info.offset, dimensions),
                                             std::span(info.local_shape, dimensions),
                                             (info.flags & TAILRACE_ARRAY_GAPS) != 0,
                                             (info.flags & TAILRACE_ARRAY_OVERLAP) != 0};
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
    // Opens a session without ranks. Without options the settings are the defaults, the
    // environment, and the file that TAILRACE_CONFIG names.
    Session() : Session(open(nullptr)) {}
    explicit Session(const Options& options) : Session(open(options.get())) {}
    // Takes over a session of the C interface.
    explicit Session(tailrace_session* session) noexcept : session_(session) {}

    // The destructor waits for all flushes like close(), but cannot report what failed. If an
    // exception destroys the session on one of several ranks, it does not wait: the other ranks may
    // never come, and the program's handler would not be reached. The session then stays open until
    // MPI_Finalize or MPI_Abort.
    ~Session() = default;
    Session(Session&&) noexcept = default;
    Session& operator=(Session&&) noexcept = default;

    // Waits for all flushes and throws the first failure among them. The session is gone in any
    // case. Collective.
    void close() { detail::check(tailrace_close(session_.release())); }

    int rank() const noexcept { return tailrace_rank(get()); }
    int rank_count() const noexcept { return tailrace_rank_count(get()); }
    // The value of a setting as this session uses it.
    std::string setting(std::string_view key) const {
        const char* value = tailrace_setting(get(), detail::c_text(key).c_str());
        if (value == nullptr)
            throw Error(TAILRACE_NOT_FOUND, "there is no setting \"" + std::string(key) + "\"");
        return value;
    }

    // ---- when to save, when to stop: on all ranks at the same call (see tailrace.h) -------------

    bool should_save() {
        int yes = 0;
        detail::check(tailrace_should_save(get(), &yes));
        return yes != 0;
    }
    // The reason to stop; nothing if there is none. Once there is one, it stays.
    std::optional<std::string> should_stop() {
        const char* why = nullptr;
        detail::check(tailrace_should_stop(get(), &why));
        return why == nullptr ? std::nullopt : std::optional<std::string>(why);
    }

    // ---- what to save. The memory stays the program's; save reads it and restore writes it. -----

    void add(std::string_view name, void* memory, uint64_t bytes) {
        detail::check(tailrace_register(get(), detail::c_text(name).c_str(), memory, bytes));
    }
    template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) void add(std::string_view name,
                                                                              std::span<T> memory) {
        add(name, memory.data(), memory.size_bytes());
    }
    // Gives a name added before a new place and size, at any time between saves.
    void update(std::string_view name, void* memory, uint64_t bytes) {
        detail::check(tailrace_update(get(), detail::c_text(name).c_str(), memory, bytes));
    }
    template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) void update(std::string_view name,
                                                                                 std::span<T> memory) {
        update(name, memory.data(), memory.size_bytes());
    }

    // Adds this rank's piece of a global array, row-major: element i of a dimension is element
    // offset + i of the whole array. `memory` holds exactly local_shape's elements, unless the
    // options describe it.
    template <class T>
    requires(!std::is_const_v<T>) void add_array(std::string_view name, std::span<T> memory,
                                                 const Extents& global_shape, const Extents& offset,
                                                 const Extents& local_shape,
                                                 const ArrayOptions& options = {}) {
        const tailrace_array array = piece<T>(memory, global_shape, offset, local_shape, options);
        detail::check(tailrace_register_array(get(), detail::c_text(name).c_str(), memory.data(), &array));
    }
    template <class T>
    requires(!std::is_const_v<T>) void update_array(std::string_view name, std::span<T> memory,
                                                    const Extents& global_shape, const Extents& offset,
                                                    const Extents& local_shape,
                                                    const ArrayOptions& options = {}) {
        const tailrace_array array = piece<T>(memory, global_shape, offset, local_shape, options);
        detail::check(tailrace_update_array(get(), detail::c_text(name).c_str(), memory.data(), &array));
    }

    void remove(std::string_view name) {
        detail::check(tailrace_unregister(get(), detail::c_text(name).c_str()));
    }

    // ---- saving ---------------------------------------------------------------------------------

    // Returns when the node-local copy is complete. The program may then change its memory. `epoch`
    // must grow from save to save and be the same on all ranks.
    void save(uint64_t epoch) { detail::check(tailrace_save(get(), epoch)); }

    // Never blocks.
    Epoch state(uint64_t epoch) const {
        tailrace_epoch_info info;
        detail::check(tailrace_epoch_state(get(), epoch, &info));
        return convert(info);
    }

    // Waits until the epoch is committed or kept local. Throws its failure.
    void wait(uint64_t epoch) { detail::check(tailrace_wait(get(), epoch, -1)); }
    void wait_all() { detail::check(tailrace_wait_all(get(), -1)); }
    // Waits for a limited time. False if the time ran out first; the work goes on.
    [[nodiscard]] bool wait_for(uint64_t epoch, std::chrono::duration<double> longest) {
        return in_time(tailrace_wait(get(), epoch, not_negative(longest)));
    }
    [[nodiscard]] bool wait_all_for(std::chrono::duration<double> longest) {
        return in_time(tailrace_wait_all(get(), not_negative(longest)));
    }

    // ---- restoring (collective) -----------------------------------------------------------------

    // Epochs that can be restored, newest first.
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
    // As restore(), but returns nothing, instead of throwing, if there is nothing to restore: a
    // first run.
    [[nodiscard]] std::optional<uint64_t> try_restore(uint64_t epoch = TAILRACE_NEWEST) {
        uint64_t restored = 0;
        const tailrace_code code = tailrace_restore(get(), epoch, &restored);
        if (code == TAILRACE_NOT_FOUND) return std::nullopt;
        detail::check(code);
        return restored;
    }
    // Restores only the regions with these names.
    uint64_t restore_some(std::span<const std::string> names, uint64_t epoch = TAILRACE_NEWEST) {
        std::vector<const char*> pointers;
        for (const std::string& name : names) pointers.push_back(name.c_str());
        const char* none = nullptr;
        uint64_t restored = 0;
        detail::check(tailrace_restore_some(get(), epoch, pointers.empty() ? &none : pointers.data(),
                                            pointers.size(), &restored));
        return restored;
    }

    // Opens an epoch for reading: `epoch`, or the newest, or the newest below `before`. With
    // `verify` all ranks together first read and check every byte. Destroy the reader before the
    // session.
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

    template <class T>
    static tailrace_array piece(std::span<T> memory, const Extents& global_shape, const Extents& offset,
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

    // A negative time would mean to wait for ever.
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
        int exceptions;  // how many were under way when the session was opened
    };
    std::unique_ptr<tailrace_session, Close> session_;
};

}  // namespace v0
}  // namespace tailrace

#endif  // C++20

#endif
