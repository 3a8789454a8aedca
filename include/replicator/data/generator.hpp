// SPDX-License-Identifier: Apache-2.0
// Makes an input from a function.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <replicator/data/stream.hpp>
#include <type_traits>
#include <utility>

namespace replicator::data {

namespace detail {

template <class T>
struct ElementOf {
  using type = T;
};
template <class T>
struct ElementOf<std::optional<T>> {
  using type = T;
};

template <class F>
inline constexpr bool by_position = std::invocable<F&, std::int64_t>;

template <class F, bool = by_position<F>>
struct ResultOf {
  using type = typename ElementOf<std::invoke_result_t<F&, std::int64_t>>::type;
};
template <class F>
struct ResultOf<F, false> {
  using type = typename ElementOf<std::invoke_result_t<F&>>::type;
};

template <class F>
class Generator : public Stream<Generator<F>, typename ResultOf<F>::type> {
 public:
  using Value = typename ResultOf<F>::type;
  explicit Generator(F f) : f_{std::move(f)} {}

  std::optional<Value> next() {
    std::optional<Value> value;
    try {
      value = call();
    } catch (...) {
      ++position_;
      throw;
    }
    if (value) ++position_;
    return value;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires by_position<F> { position_ = position; }

 private:
  std::optional<Value> call() {
    if constexpr (by_position<F>)
      return f_(position_);
    else
      return f_();
  }

  F f_;
  std::int64_t position_ = 0;
};

}  // namespace detail

// Elements f(0), f(1), ... (this input can seek) or f(), f(), ... Each is an Array<T>, a std::tuple of them, or a
// std::optional of one of these. std::nullopt ends the input. A step's element is asked for while the step before it
// still computes.
template <class F>
auto from_generator(F f) {
  constexpr bool callable = std::invocable<F&, std::int64_t> || std::invocable<F&>;
  static_assert(callable, "replicator: from_generator takes a function of nothing or of the position (std::int64_t)");
  if constexpr (callable) {
    constexpr bool element = InputElement<typename detail::ResultOf<F>::type>;
    static_assert(element,
                  "replicator: the function of from_generator must return replicator::Array<T>, a std::tuple of them, "
                  "or a std::optional of one of these");
    if constexpr (element) return detail::Generator<F>{std::move(f)};
  }
}

}  // namespace replicator::data
