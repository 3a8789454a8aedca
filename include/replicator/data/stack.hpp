// SPDX-License-Identifier: Apache-2.0
// Stacks elements into one array with a new first dimension.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <replicator/core/array.hpp>
#include <replicator/data/input.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace replicator::data::detail {

// A source with a faster path for whole batches (decode_images): reads up to `size` elements; nothing at the end.
template <class S>
concept BatchReader = requires(S& source, std::int64_t size) {
  { source.read_batch(size) } -> std::same_as<std::optional<typename S::value_type>>;
};

inline Shape with_rows(std::int64_t rows, const std::int64_t* begin, const std::int64_t* end) {
  Shape shape{rows};
  while (begin != end) shape.push_back(*begin++);
  return shape;
}

// `get(element)` returns the array of an element that is to be stacked.
template <class T, class V, class Get>
Array<T> stack(const std::vector<V>& elements, const Get& get) {
  const Shape& shape = get(elements[0]).shape();
  Array<T> result{with_rows(static_cast<std::int64_t>(elements.size()), shape.begin(), shape.end())};
  const std::int64_t count = shape.elements();
  T* to = result.data();
  for (std::size_t i = 0; i < elements.size(); ++i, to += count) {
    const Array<T>& from = get(elements[i]);
    if (from.shape() != shape)
      throw DataError{"batch: element 0 of the batch has shape " + shape.text() + ", element " + std::to_string(i) +
                      " has " + from.shape().text() + "; only equal shapes can be batched"};
    require_memory(from.any());
    if (count > 0) std::memcpy(to, from.data(), static_cast<std::size_t>(count) * sizeof(T));
  }
  return result;
}

template <class T>
Array<T> stack_elements(const std::vector<Array<T>>& elements) {
  return stack<T>(elements, [](const Array<T>& array) -> const Array<T>& { return array; });
}
template <class... T>
std::tuple<Array<T>...> stack_elements(const std::vector<std::tuple<Array<T>...>>& elements) {
  using V = std::tuple<Array<T>...>;
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return V{stack<T>(elements, [](const V& element) -> const Array<T>& { return std::get<i>(element); })...};
  }
  (std::index_sequence_for<T...>{});
}

// Reads and stacks up to `size` elements; nothing at the end.
template <class S>
std::optional<typename S::value_type> read_stacked(S& source, std::int64_t size) {
  if constexpr (BatchReader<S>) {
    return source.read_batch(size);
  } else {
    std::vector<typename S::value_type> elements;
    while (static_cast<std::int64_t>(elements.size()) < size) {
      auto element = source.next();
      if (!element) break;
      elements.push_back(std::move(*element));
    }
    if (elements.empty()) return std::nullopt;
    return stack_elements(elements);
  }
}

// Repeats the last row until there are `rows`.
template <class T>
Array<T> repeat_last(Array<T> batch, std::int64_t rows) {
  const std::int64_t have = batch.shape()[0];
  if (have == rows) return batch;
  Array<T> result{with_rows(rows, batch.shape().begin() + 1, batch.shape().end())};
  const auto row = static_cast<std::size_t>(batch.size() / have);
  for (std::int64_t i = 0; i < rows && row > 0; ++i)
    std::memcpy(result.data() + static_cast<std::size_t>(i) * row,
                batch.data() + static_cast<std::size_t>(i < have ? i : have - 1) * row, row * sizeof(T));
  return result;
}

}  // namespace replicator::data::detail
