// SPDX-License-Identifier: Apache-2.0
// Joins tensors along an axis that exists (concat) or a new one (stack). Any dtype.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/graph/tensor.hpp>
#include <replicator/ops/movement/parts.hpp>
#include <replicator/ops/movement/reshape.hpp>

namespace replicator {

// Joins the tensors along an axis (-1: the last), one after the other.
template <Element T>
Tensor<T> concat(std::span<const Tensor<T>> parts, std::int64_t axis,
                 std::source_location where = std::source_location::current()) {
  const Concat op = detail::at_line("concat", where, [&] {
    if (parts.empty()) throw BuildError{"found nothing to put together: give at least one tensor"};
    return Concat{detail::require_axis(axis, parts[0].shape().rank())};
  });
  const std::vector<AnyTensor> inputs(parts.begin(), parts.end());
  return Tensor<T>{parts[0].graph().tensor(add_compute(parts[0].graph(), op, inputs, where))};
}
template <Element T>
Tensor<T> concat(std::initializer_list<Tensor<T>> parts, std::int64_t axis,
                 std::source_location where = std::source_location::current()) {
  return concat(std::span<const Tensor<T>>{parts.begin(), parts.size()}, axis, where);
}

template <Element T>
Tensor<T> concat(const std::vector<Tensor<T>>& parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return concat(std::span<const Tensor<T>>{parts}, axis, where);
}

namespace detail {
template <class T>
constexpr void refuse_separate_parts() {
  static_assert(!Element<T>, "replicator: rp::concat and rp::stack take their tensors in braces, and an axis: rp::concat({a, b}, 0)");
}
template <class T>
constexpr void refuse_joined_types() {
  static_assert(!std::same_as<T, T>, "replicator: rp::concat and rp::stack take tensors of one element type: rp::cast<float>(x), for example");
}
}  // namespace detail

// Joins tensors of one shape along a new axis, which comes before their axis `axis` (-1: after the last).
template <Element T>
Tensor<T> stack(std::span<const Tensor<T>> parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  if (parts.empty()) throw BuildError{"stack at " + Location{where}.text() + ": found nothing to put together"};
  std::vector<Tensor<T>> rows;
  for (const auto& part : parts) {
    if (!(part.shape() == parts[0].shape()))
      throw BuildError{"stack at " + Location{where}.text() + ": found " + parts[0].any().type().text() + " and " + part.any().type().text() +
                       ": all must have one shape; rp::concat puts together what differs along an axis"};
    rows.push_back(expand_dims(part, axis, where));
  }
  return concat(rows, axis, where);
}
template <Element T>
Tensor<T> stack(std::initializer_list<Tensor<T>> parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return stack(std::span<const Tensor<T>>{parts.begin(), parts.size()}, axis, where);
}
template <Element T>
Tensor<T> stack(const std::vector<Tensor<T>>& parts, std::int64_t axis, std::source_location where = std::source_location::current()) {
  return stack(std::span<const Tensor<T>>{parts}, axis, where);
}

// Refuses tensors that are not in braces, and tensors of several element types.
#define REPLICATOR_REFUSE(function)                                                                            \
  template <Element T, class... More>                                                                          \
  Tensor<T> function(Tensor<T> a, Tensor<T>, const More&...) { return detail::refuse_separate_parts<T>(), a; } \
  template <class T = AnyTensor>                                                                               \
  T function(std::initializer_list<AnyTensor> parts, std::int64_t) { return detail::refuse_joined_types<T>(), *parts.begin(); }
REPLICATOR_REFUSE(concat)
REPLICATOR_REFUSE(stack)
#undef REPLICATOR_REFUSE

}  // namespace replicator
