// SPDX-License-Identifier: Apache-2.0
// Concepts for the input of a step: any C++20 input range of arrays or of tuples of arrays.
#pragma once

#include <cstdint>
#include <iterator>
#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

namespace replicator::data {

namespace detail {

template <class T>
inline constexpr bool is_array = false;
template <class T>
inline constexpr bool is_array<Array<T>> = true;

template <class T>
inline constexpr bool is_array_tuple = false;
template <class... T>
inline constexpr bool is_array_tuple<std::tuple<T...>> = sizeof...(T) > 0 && (is_array<T> && ...);

// Equivalent to std::ranges; including <ranges> would cost every user 0.3 s of compile time.
using std::begin;
using std::end;
template <class R>
auto first_of(R& range) -> decltype(begin(range));
template <class R>
auto last_of(R& range) -> decltype(end(range));

template <class R>
concept InputRange = requires(R& range) {
  { first_of(range) } -> std::input_iterator;
  { last_of(range) } -> std::sentinel_for<decltype(first_of(range))>;
};

template <InputRange R>
using element_of = std::iter_value_t<decltype(first_of(std::declval<R&>()))>;

template <class R>
inline constexpr bool gives_elements = false;

// Throws DataError for an array that was made without a shape, or moved from.
template <class = void>
void require_memory(const AnyArray& array) {
  if (array.empty() && array.shape().elements() > 0)
    throw DataError{"the input gave an array without memory: it was made without a shape (`rp::Array<float>{}`) or moved from"};
}

// The element at the iterator. Moves it if the range can be read only once, else copies it.
template <std::input_iterator I>
std::iter_value_t<I> element_at(I& at) {
  if constexpr (std::forward_iterator<I>) return std::iter_value_t<I>(*at);
  else return std::iter_value_t<I>(std::ranges::iter_move(at));
}

}  // namespace detail

// An Array<T>, or a std::tuple of at least one of them.
template <class T>
concept InputElement = detail::is_array<T> || detail::is_array_tuple<T>;

namespace detail {
template <InputRange R>
inline constexpr bool gives_elements<R> = InputElement<element_of<R>>;
}  // namespace detail

// An input range whose elements are InputElements.
template <class R>
concept Input = detail::InputRange<R> && detail::gives_elements<R>;

// An input that may continue at any element: seek(position) makes element number `position` (from 0) the next one.
template <class R>
concept Seekable = requires(R& input, std::int64_t position) {
  input.seek(position);
};

// The type of an input's elements.
template <Input R>
using InputValue = detail::element_of<R>;

// Explains, by a static_assert, why R is no Input.
template <class R>
constexpr void require_input() {
  if constexpr (!detail::InputRange<R>) {
    static_assert(detail::InputRange<R>,
                  "replicator: an input must be a C++20 input range: begin() and end(), with an iterator that can be "
                  "read and incremented");
  } else {
    static_assert(Input<R>,
                  "replicator: the elements of an input must be replicator::Array<T> or std::tuple of them, with T one "
                  "of float, double, std::int32_t, std::int64_t, std::uint8_t, bool");
  }
}

}  // namespace replicator::data
