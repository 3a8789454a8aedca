// SPDX-License-Identifier: Apache-2.0
// InputSource: the type-erased input of one replica. Also the checks that a step function accepts the input's elements.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <replicator/core/error.hpp>
#include <replicator/core/location.hpp>
#include <replicator/core/parameters_fit.hpp>
#include <replicator/core/program_exception.hpp>
#include <replicator/data/input.hpp>
#include <replicator/graph/tensor.hpp>

namespace replicator::detail {

class InputSource {
 public:
  virtual ~InputSource() = default;
  // The components of the next element; nothing at the end of the input.
  virtual std::optional<std::vector<AnyArray>> next() = 0;
  // Makes element `position` the next one. Returns false where the input cannot seek.
  virtual bool seek(std::int64_t position) = 0;
  // The line of the call of replicate() that was given the input; empty for a recorded input.
  virtual Location where() const { return {}; }
  // For a recorded input, which may be empty: the step for which its first element was read.
  virtual std::optional<std::uint64_t> recorded_from() const { return std::nullopt; }
};

// Returns one source for each replica that this host has at the time of the call.
using MakeInputs = std::function<std::vector<std::unique_ptr<InputSource>>()>;

// Moves `count` arrays into a vector.
template <class = void>
std::vector<AnyArray> to_vector(AnyArray* arrays, std::size_t count) {
  return {std::move_iterator{arrays}, std::move_iterator{arrays + count}};
}
template <class T>
std::vector<AnyArray> components(Array<T> array) {
  AnyArray one = std::move(array).any();
  return to_vector(&one, 1);
}
template <class... T>
std::vector<AnyArray> components(std::tuple<T...> element) {
  std::array<AnyArray, sizeof...(T)> each = std::apply([](auto&... array) { return std::array{std::move(array).any()...}; }, element);
  return to_vector(each.data(), each.size());
}

// Which input of the program an element is read from.
struct ElementPlace {
  int replica = 0;
  Location where;            // of replicate()
  std::uint64_t number = 0;  // of the element
  template <class = void>
  std::string text() const;
};
template <class>
std::string ElementPlace::text() const {
  return "element " + std::to_string(number) + " of the input of replica " + std::to_string(replica) + ", given to replicate at " + where.text();
}

// Throws the exception at work again. A DataError or BuildError has the place, such as ElementPlace::text(), in its message then. Other
// types may be the program's own: they are thrown as they are, and a line on stderr says the place.
template <class = void>
[[noreturn]] void rethrow_with(const std::string& place) {
  try {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what() + (" (" + place + ")");
    if (typeid(error) == typeid(DataError)) throw DataError{text};
    if (typeid(error) == typeid(BuildError)) throw BuildError{text};
    report_program_exception(place, error);
    throw;
  }
}

template <data::Input Range>
class RangeSource final : public InputSource {
 public:
  RangeSource(Range range, ElementPlace place) : range_{std::move(range)}, place_{place} {}

  std::optional<std::vector<AnyArray>> next() override {
    try {
      auto element = read();
      ++place_.number;
      return element;
    } catch (...) {
      rethrow_with(place_.text());
    }
  }
  bool seek(std::int64_t position) override {
    if constexpr (data::Seekable<Range>) {
      at_.reset();
      range_.seek(position);
      place_.number = static_cast<std::uint64_t>(position);
      return true;
    }
    return position == 0 && !at_;
  }
  Location where() const override { return place_.where; }

 private:
  using Iterator = decltype(data::detail::first_of(std::declval<Range&>()));

  std::optional<std::vector<AnyArray>> read() {
    using std::begin, std::end;
    if (!at_) at_.emplace(begin(range_));
    else ++*at_;
    if (*at_ == end(range_)) return std::nullopt;
    auto element = components(data::detail::element_at(*at_));
    for (const auto& component : element) data::detail::require_memory(component);
    return element;
  }

  Range range_;
  ElementPlace place_;
  std::optional<Iterator> at_;
};

// The compiler's first line of the error shows Step and Arguments. Where the body of the step function has an error, it is
// the only one.
template <class Step, class... Arguments>
constexpr bool require_callable_with() {
  constexpr bool fits = std::is_invocable_v<Step&, Arguments...>;
  static_assert(fits || parameters_fit<Step, Arguments...>(),
                "replicator: step_fn does not fit the input: it must be callable with (rp::ReplicaContext&, rp::Tensor<T>...), one tensor for "
                "each component of the input's element, in order and with the same element types; these are the Arguments above");
  return fits;
}

template <class Value>
struct InputTypes;
template <class T>
struct InputTypes<Array<T>> {
  static std::vector<DType> dtypes() { return {dtype_of<T>}; }
  template <class Step, class Context>
  static constexpr bool require_step() {
    return require_callable_with<Step, Context&, Tensor<T>>();
  }
  template <class Step, class Context>
  static decltype(auto) call(Step& step, Context& context, const std::vector<AnyTensor>& x) { return step(context, Tensor<T>{x[0]}); }
};
template <class... T>
struct InputTypes<std::tuple<Array<T>...>> {
  static std::vector<DType> dtypes() { return {dtype_of<T>...}; }
  template <class Step, class Context>
  static constexpr bool require_step() {
    return require_callable_with<Step, Context&, Tensor<T>...>();
  }
  template <class Step, class Context>
  static decltype(auto) call(Step& step, Context& context, const std::vector<AnyTensor>& x) {
    return call(step, context, x, std::index_sequence_for<T...>{});
  }
  template <class Step, class Context, std::size_t... I>
  static decltype(auto) call(Step& step, Context& context, const std::vector<AnyTensor>& x, std::index_sequence<I...>) {
    return step(context, Tensor<T>{x[I]}...);
  }
};
}  // namespace replicator::detail
