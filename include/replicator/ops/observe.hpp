// SPDX-License-Identifier: Apache-2.0
// Operations that look at values inside a step: print, check, host_callback. Each returns its argument, so that what uses the
// result runs after it. Each runs even if nothing uses the result, and gradients pass through. A value that is the same on all
// replicas is looked at once for all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>

namespace replicator {

// A value as it is seen on the host, row-major. It is valid during the call only.
struct Observation {
  TensorType type;
  const std::byte* data = nullptr;
  int replica = 0;
  bool all_replicas = false;  // all replicas have the same value; `replica` is the first one
  std::uint64_t step = 0;

  // The elements. Throws BuildError where the element type differs.
  template <Element T>
  std::span<const T> as() const {
    if (type.dtype != dtype_of<T>) throw BuildError{"a value of " + type.text() + " was read as " + std::string{name_of(dtype_of<T>)}};
    return {reinterpret_cast<const T*>(data), static_cast<std::size_t>(type.shape.elements())};
  }
  // For example "replica 3, step 7".
  std::string text() const {
    return (all_replicas ? std::string{"all replicas"} : "replica " + std::to_string(replica)) + ", step " +
           std::to_string(step);
  }
};

// A function that looks at values. Threads of devices call it, possibly several at the same time. An exception from it ends the
// step. Replicas with equal graphs share the first one's function. So take the replica from the observation, not from what a
// lambda captures.
using Observer = std::function<void(const Observation&)>;

// The identity. It shows its input to an observer.
struct Observe {
  static constexpr std::string_view name = "observe";
  static constexpr bool effect = true;
  std::string what;           // for example: print "loss" at train.cpp:31
  std::uint32_t ordinal = 0;  // one line may observe several values
  std::shared_ptr<const Observer> observer;

  template <class V>
  void describe(V& v) const {
    v("what", what);
    v("ordinal", ordinal);
  }
  std::vector<TensorType> infer_shape(std::span<const TensorType> inputs) const { return {inputs[0]}; }
  std::vector<AnyTensor> gradient(const GradientContext& at) const { return {at.upstream[0]}; }
};

namespace detail {

template <class = void>
AnyTensor observe(AnyTensor x, std::string what, Observer observer, Location where) {
  const auto ordinal = static_cast<std::uint32_t>(x.graph().nodes().size());
  return compute(x.graph(), Observe{std::move(what), ordinal, std::make_shared<const Observer>(std::move(observer))}, {x}, where);
}

template <class = void>
std::string named(std::string_view what, const std::string& name, Location where) {
  return std::string{what} + (name.empty() ? "" : " \"" + name + "\"") + " at " + where.text();
}

// Integers with all their digits, other numbers with nine.
template <Element T>
std::string value_text(T value) {
  if constexpr (std::is_integral_v<T>) return std::to_string(value);
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}
// For example "float32[4, 2] = 0.5 1 2 ...".
template <Element T>
std::string values_text(const Observation& seen, std::int64_t most) {
  const auto values = seen.as<T>();
  std::string text = seen.type.text() + " =";
  for (std::int64_t i = 0; i < std::min<std::int64_t>(most, static_cast<std::int64_t>(values.size())); ++i)
    text += " " + value_text(values[static_cast<std::size_t>(i)]);
  return text + (static_cast<std::int64_t>(values.size()) > most ? " ..." : "");
}

}  // namespace detail

struct PrintOptions {
  std::uint64_t every = 1;                                 // prints in steps that are multiples of it
  std::int64_t values = 8;                                 // at most this many values, from the first on
  std::function<void(const std::string& line)> sink = {};  // takes whole lines, from several threads; without one they go to stderr
};

// Prints lines like 'replica 3, step 7: "loss" at train.cpp:31: float32[4, 2] = 0.5 1 2 ...'. Throws BuildError where `every` is 0.
template <Element T>
Tensor<T> print(Tensor<T> x, std::string name, PrintOptions options = {}, std::source_location where = std::source_location::current()) {
  const auto what = detail::named("print", name, where);
  if (options.every == 0) throw BuildError{what + ": every is 0: it must be at least 1, which prints in each step"};
  return Tensor<T>{detail::observe(
      x, what + " every " + std::to_string(options.every),
      [options, title = "\"" + name + "\" at " + Location{where}.text()](const Observation& seen) {
        if (seen.step % options.every != 0) return;
        const auto line = seen.text() + ": " + title + ": " + detail::values_text<T>(seen, options.values);
        if (options.sink) options.sink(line);
        else std::fputs((line + "\n").c_str(), stderr);
      },
      where)};
}

// Ends the step where an element is false, with a CheckError that names replica, step, line and sentence. No variable has changed then.
template <class = void>
Tensor<bool> check(Tensor<bool> condition, std::string sentence, std::source_location where = std::source_location::current()) {
  const auto what = detail::named("check", "", where);
  return Tensor<bool>{detail::observe(
      condition, what + ": " + sentence,
      [what, sentence](const Observation& seen) {
        const auto values = seen.as<bool>();
        const auto failed = std::count(values.begin(), values.end(), false);
        if (failed == 0) return;
        const auto first = std::find(values.begin(), values.end(), false) - values.begin();
        throw CheckError{
            seen.text() + ": " + what + ": " + sentence + " (" +
            std::to_string(failed) + " of " + std::to_string(values.size()) +
            " elements are false, the first at " + std::to_string(first) + ")"};
      },
      where)};
}

// Calls the function with the value in each step. Replicas that differ only in the functions of one line share the first one's
// function. Observation::replica says which replica the value is from.
template <Element T>
Tensor<T> host_callback(Tensor<T> x, Observer function, std::source_location where = std::source_location::current()) {
  return Tensor<T>{detail::observe(x, detail::named("host_callback", "", where), std::move(function), where)};
}

}  // namespace replicator
