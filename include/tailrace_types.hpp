// tailrace_types.hpp - the types that the C++ interface passes and returns: failures, settings, extents,
// and descriptions of epochs and regions. tailrace.hpp includes it.
#ifndef TAILRACE_TYPES_HPP
#define TAILRACE_TYPES_HPP

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tailrace.h"
#include "tailrace_span.hpp"

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

// std::mdspan of C++23, and classes with its members, such as Kokkos's. The elements lie in memory as they
// are (default_accessor).
template <class T, class = void>
struct is_multidimensional_view : std::false_type {};
template <class T>
struct is_multidimensional_view<
    T, std::void_t<typename T::element_type, typename T::accessor_type::reference, decltype(T::rank()),
                   decltype(std::declval<const T&>().data_handle()),
                   decltype(std::declval<const T&>().extent(0)), decltype(std::declval<const T&>().stride(0)),
                   decltype(std::declval<const T&>().mapping().required_span_size())>>
    : std::bool_constant<std::is_convertible_v<decltype(std::declval<const T&>().data_handle()),
                                               typename T::element_type*> &&
                         std::is_convertible_v<decltype(T::rank()), size_t> &&
                         std::is_convertible_v<decltype(std::declval<const T&>().extent(0)), uint64_t> &&
                         std::is_convertible_v<decltype(std::declval<const T&>().stride(0)), uint64_t> &&
                         std::is_same_v<decltype(std::declval<const T&>().is_exhaustive()), bool> &&
                         std::is_same_v<decltype(std::declval<const T&>().empty()), bool> &&
                         std::is_convertible_v<
                             decltype(std::declval<const T&>().mapping().required_span_size()), uint64_t> &&
                         std::is_same_v<typename T::accessor_type::reference, typename T::element_type&>> {};
template <class T>
inline constexpr bool multidimensional_view = is_multidimensional_view<T>::value;

template <class T, class = void>
inline constexpr bool has_data_handle = false;
template <class T>
inline constexpr bool has_data_handle<T, std::void_t<decltype(std::declval<const T&>().data_handle())>> =
    true;

// A type whose values can be copied as bytes. A view or pointer is none, because only its address would be
// saved.
template <class T>
inline constexpr bool plain_value =
    std::is_trivially_copyable_v<T> && !std::is_const_v<T> && !std::is_pointer_v<T> &&
    !std::is_same_v<T, std::nullptr_t> && !is_view<T> && !has_data_handle<T>;

// Bytes that can be written, and so filled by a restore.
template <class T>
inline constexpr bool writable_bytes = std::is_trivially_copyable_v<T> && !std::is_const_v<T>;

inline void check(tailrace_code code) {
    if (code != TAILRACE_OK) throw Error(code, tailrace_last_error());
}

// The C interface takes NUL-terminated text. A NUL inside would cut the text silently.
inline std::string c_text(std::string_view text) {
    if (text.find('\0') != std::string_view::npos)
        throw Error(TAILRACE_INVALID_ARGUMENT, "a name or value with a NUL byte; nothing was done");
    return std::string(text);
}

template <class T>
constexpr tailrace_type element_type() {
    using Value = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<Value, std::byte>) {
        return TAILRACE_BYTES;
    } else if constexpr (std::is_same_v<Value, bool>) {
        static_assert(sizeof(bool) == 1);
        return TAILRACE_BOOL;
    } else if constexpr (std::is_same_v<Value, float>) {
        return TAILRACE_FLOAT32;
    } else if constexpr (std::is_same_v<Value, double>) {
        return TAILRACE_FLOAT64;
    } else if constexpr (std::is_same_v<Value, std::complex<float>>) {
        return TAILRACE_COMPLEX64;
    } else if constexpr (std::is_same_v<Value, std::complex<double>>) {
        return TAILRACE_COMPLEX128;
    } else {
        static_assert(std::is_integral_v<Value>, "no tailrace_type stands for this element type");
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

// The elements of a list's item. A number is one element, an array of numbers is as many as it has, and any
// other item is its bytes.
struct Item {
    tailrace_type type;
    uint64_t width;
};
template <class T>
inline constexpr bool number =
    std::is_integral_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <class T>
struct item_of {
    static constexpr Item value() {
        if constexpr (number<T>)
            return {element_type<T>(), 1};
        else
            return {TAILRACE_BYTES, sizeof(T)};
    }
};
template <class T, size_t count>
struct item_of<std::array<T, count>> {
    static constexpr Item value() {
        if constexpr (number<T>)
            return {element_type<T>(), count};
        else
            return {TAILRACE_BYTES, sizeof(std::array<T, count>)};
    }
};

}  // namespace detail

// A session's settings. docs/settings.md lists the keys. Later sources win, in this order:
// defaults, files loaded, environment variables TAILRACE_<KEY>, keys set in code. An unknown key or
// a bad value throws at once, and the message names the nearest right one.
class Options {
  public:
    Options() : options_(tailrace_options_new()) {
        if (!options_) throw Error(TAILRACE_OUT_OF_MEMORY, "memory for the options could not be allocated");
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
    template <class Value, detail::only_if<std::is_integral_v<Value>> = 0>
    Options& set(std::string_view key, Value value) {
        if constexpr (std::is_same_v<Value, bool>) {
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
    Extents(std::initializer_list<uint64_t> values)
        : Extents(span<const uint64_t>(values.begin(), values.size())) {}
    Extents(span<const uint64_t> values) {
        if (values.size() > TAILRACE_MAX_DIMENSIONS)
            throw Error(TAILRACE_INVALID_ARGUMENT,
                        "an array of more dimensions than TAILRACE_MAX_DIMENSIONS");
        for (uint64_t value : values) values_[count_++] = value;
    }
    Extents(const std::vector<uint64_t>& values) : Extents(span<const uint64_t>(values)) {}

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
    protected_ = TAILRACE_STATE_PROTECTED,   // captured, and also safe from the loss of nodes
};

struct Epoch {
    uint64_t epoch = 0;
    uint32_t run = 0;  // which session saved it, counted from 1 in its directory
    State state = State::unknown;
    tailrace_code why_code = TAILRACE_OK;
    std::string why;                           // the sentence of a failure, or what kept it local
    uint64_t captured_bytes = 0;               // of this rank
    double blocked_seconds = 0;                // how long save blocked this rank
    double flush_seconds = 0;                  // from the flush's start to the commit
    bool in_local = false, in_shared = false;  // where a restore could take it from (list only)
    // How many nodes of each set may be lost before the captured epoch can no longer be restored; 0: none.
    uint64_t losses_survived = 0;
};

struct RegionInfo {
    std::string name;
    uint64_t bytes = 0;
    // For arrays and lists: the piece that the rank saved (Reader::array: the whole), and the declarations
    // about the whole array (ArrayOptions).
    struct Array {
        tailrace_type type;
        Extents global_shape, offset, local_shape;
        bool may_have_gaps = false, may_overlap = false;
        bool is_list = false;  // then the shapes and the offset count the rank's own items from 0
    };
    std::optional<Array> array;
};

// A file of the program that a rank has saved.
struct FileInfo {
    std::string name;
    uint64_t bytes = 0;
    uint32_t rank = 0;
    uint32_t rights = 0;  // only the bits 0777
};

// Declarations about a global array, and a description of this rank's memory.
//
// All ranks must make the same declarations. Without a declaration the ranks' pieces must cover every
// element exactly once. If they do not, the epoch is not committed.
//
// Without a description the memory is exactly the piece. A description says that the memory is a
// block of memory_shape elements in which the piece begins at memory_offset, for example because
// ghost cells surround it. Or it says that the elements lie memory_stride_bytes from their
// neighbours in each dimension (tailrace_array in tailrace.h). Only the piece is read and written:
//
//     session.add_array("u", tailrace::span(u), {rows, columns}, {first, 0}, {own, columns},
//                       {.memory_shape = {own + 2, columns}, .memory_offset = {1, 0}});
//
// (Before C++20 an ArrayOptions is a variable whose members are set one by one.)
struct ArrayOptions {
    bool may_have_gaps = false;  // some elements may be in no rank's piece; they cannot be read
    // Several ranks' pieces may contain the same element. The value of the lowest rank counts. A
    // rank that restores exactly the piece it saved gets its own values back.
    bool may_overlap = false;
    Extents memory_shape = {}, memory_offset = {}, memory_stride_bytes = {};
};

}  // namespace v0
}  // namespace tailrace

#endif
