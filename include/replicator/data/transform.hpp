// SPDX-License-Identifier: Apache-2.0
// Applies a function to every element of an input.
#pragma once

#include <cstdint>
#include <optional>
#include <replicator/data/stream.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

namespace replicator::data {

namespace detail {

template <class F>
struct TransformStage {
  F f;
};

// f(element), or f(array...) with the components of the element.
template <class F, class V>
decltype(auto) transformed(F& f, V&& element) {
  if constexpr (std::is_invocable_v<F&, V&&>) return f(std::forward<V>(element));
  else return std::apply(f, std::forward<V>(element));
}
template <class F, class V>
struct TransformResult {
  static constexpr bool valid = std::is_invocable_v<F&, V&&>;
};
template <class F, class... T>
struct TransformResult<F, std::tuple<T...>> {
  static constexpr bool valid = std::is_invocable_v<F&, std::tuple<T...>&&> || std::is_invocable_v<F&, T&&...>;
};

template <class S, class F>
class Transformed
    : public Stream<Transformed<S, F>, std::remove_cvref_t<decltype(transformed(std::declval<F&>(), std::declval<typename S::value_type>()))>> {
 public:
  using Value = std::remove_cvref_t<decltype(transformed(std::declval<F&>(), std::declval<typename S::value_type>()))>;
  Transformed(S source, F f) : source_{std::move(source)}, f_{std::move(f)} {}

  std::optional<Value> next() {
    auto element = source_.next();
    if (!element) return std::nullopt;
    return transformed(f_, std::move(*element));
  }
  std::int64_t position() const { return source_.position(); }
  void seek(std::int64_t position) requires Seekable<S> { source_.seek(position); }
  std::int64_t limit() const requires HasLimit<S> { return source_.limit(); }
  Share share() const requires HasShare<S> { return source_.share(); }
  void read_on() requires HasShare<S> { source_.read_on(); }

 private:
  S source_;
  F f_;
};

template <class S, class F>
auto operator|(S&& source, TransformStage<F> stage) {
  auto stream = as_stream(std::forward<S>(source));
  using Source = decltype(stream);
  constexpr bool fits = TransformResult<F, typename Source::value_type>::valid;
  static_assert(fits, "replicator: the function of transform() cannot take the components of the elements before it, nor the element");
  if constexpr (fits) return Transformed<Source, F>{std::move(stream), std::move(stage.f)};
}

}  // namespace detail

// Replaces each element by f(element), or f(array...) with its components. The result must be an element again: an
// Array<T> or a std::tuple of them. f is called in order, by one thread at a time. It should depend on nothing but its
// arguments.
template <class F>
detail::TransformStage<F> transform(F f) {
  return {std::move(f)};
}

}  // namespace replicator::data
