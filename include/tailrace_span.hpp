// tailrace_span.hpp - what the C++ interface needs of later standards than C++17: tailrace::span, and how
// templates say what they take. tailrace.hpp includes it.
//
// tailrace::span is std::span where the standard library has one. In C++17 it is a class of the same
// behaviour, as far as programs need it to hand memory to tailrace: tailrace::span(vector),
// tailrace::span(array), tailrace::span(pointer, count).
#ifndef TAILRACE_SPAN_HPP
#define TAILRACE_SPAN_HPP

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#ifdef __cpp_lib_span
#include <span>
#endif
#ifdef __cpp_lib_ranges
#include <ranges>
#endif

namespace tailrace {
inline namespace v0 {

namespace detail {

// `template <class T, only_if<condition<T>> = 0>`: the template is there only if the condition holds.
template <bool condition>
using only_if = std::enable_if_t<condition, int>;

// An object that names somebody else's memory. C++17 has no word for it. There a class is taken for one if it
// has data() and names its elements (element_type, as spans do) or characters (traits_type, as string_view).
#ifdef __cpp_lib_ranges
template <class T>
inline constexpr bool is_view = std::ranges::view<T>;
#else
template <class T, class = void>
inline constexpr bool names_elements = false;
template <class T>
inline constexpr bool names_elements<T, std::void_t<typename T::element_type>> = true;
template <class T, class = void>
inline constexpr bool names_characters = false;
template <class T>
inline constexpr bool names_characters<T, std::void_t<typename T::traits_type>> = true;
template <class T, class = void>
inline constexpr bool is_view = false;
template <class T>
inline constexpr bool is_view<T, std::void_t<decltype(std::declval<const T&>().data())>> =
    names_elements<T> || names_characters<T>;
#endif

}  // namespace detail

#ifdef __cpp_lib_span
using std::span;
#else
namespace detail {

// The type of the elements that std::data leads to.
template <class Container>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>;

// May Container be seen as a span of T? Elements may become const, nothing else. A temporary may only be
// read, as in a call.
template <class Container, class T, class = void>
inline constexpr bool viewable = false;
template <class Container, class T>
inline constexpr bool viewable<Container, T,
                               std::void_t<element_of<std::remove_reference_t<Container>>,
                                           decltype(std::size(std::declval<Container&>()))>> =
    std::is_convertible_v<element_of<std::remove_reference_t<Container>> (*)[], T (*)[]> &&
    (std::is_lvalue_reference_v<Container> || std::is_const_v<T>);

}  // namespace detail

// Elements that lie one after another. It owns nothing: the memory must outlive it.
template <class T>
class span {
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using size_type = size_t;
    using pointer = T*;
    using reference = T&;
    using iterator = T*;

    constexpr span() noexcept = default;
    constexpr span(T* data, size_t size) noexcept : data_(data), size_(size) {}
    template <class Container, detail::only_if<detail::viewable<Container, T>> = 0>
    constexpr span(Container&& container) : data_(std::data(container)), size_(std::size(container)) {}

    constexpr T* data() const noexcept { return data_; }
    constexpr size_t size() const noexcept { return size_; }
    constexpr size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T* begin() const noexcept { return data_; }
    constexpr T* end() const noexcept { return data_ + size_; }
    constexpr T& operator[](size_t index) const { return data_[index]; }
    constexpr T& front() const { return data_[0]; }
    constexpr T& back() const { return data_[size_ - 1]; }
    constexpr span first(size_t count) const { return {data_, count}; }
    constexpr span last(size_t count) const { return {data_ + (size_ - count), count}; }
    constexpr span subspan(size_t offset) const { return {data_ + offset, size_ - offset}; }
    constexpr span subspan(size_t offset, size_t count) const { return {data_ + offset, count}; }

  private:
    T* data_ = nullptr;
    size_t size_ = 0;
};
template <class Container>
span(Container&&) -> span<detail::element_of<std::remove_reference_t<Container>>>;
#endif

}  // namespace v0
}  // namespace tailrace

#endif
