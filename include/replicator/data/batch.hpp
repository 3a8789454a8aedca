// SPDX-License-Identifier: Apache-2.0
// Several elements as one, along a new first dimension.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <replicator/core/array.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::data {

struct BatchOptions {
  bool keep_last = false;  // give the last, smaller batch of a finite input too (evaluation) instead of dropping it
};

namespace detail {

struct BatchStage {
  std::int64_t size;
  BatchOptions options;
};

// A source that makes whole batches better than one by one (decode_jpeg): up to `size` elements, nothing at the end.
template <class S>
concept BatchReader = requires(S& source, std::int64_t size) {
  { source.read_batch(size) } -> std::same_as<std::optional<typename S::value_type>>;
  { source.limit() } -> std::same_as<std::int64_t>;
};

// `get(element)` picks the array of each element.
template <class T, class V, class Get>
Array<T> stack(const std::vector<V>& elements, const Get& get) {
  const Shape& shape = get(elements[0]).shape();
  Shape stacked{static_cast<std::int64_t>(elements.size())};
  for (const std::int64_t extent : shape) stacked.push_back(extent);
  Array<T> result{stacked};
  const std::int64_t count = shape.elements();
  T* to = result.data();
  for (std::size_t i = 0; i < elements.size(); ++i, to += count) {
    const Array<T>& from = get(elements[i]);
    if (from.shape() != shape)
      throw DataError{"batch: element 0 of the batch has shape " + shape.text() + ", element " + std::to_string(i) +
                      " has " + from.shape().text() + "; only equal shapes can be batched"};
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

template <class S>
class Batched : public Stream<Batched<S>, typename S::value_type> {
 public:
  using Value = typename S::value_type;

  Batched(S source, const BatchStage& stage) : source_{std::move(source)}, stage_{stage} {
    if constexpr (BatchReader<S>)
      if (source_.limit() >= 0 && source_.limit() < stage.size && !stage.options.keep_last)
        throw BuildError{"batch(" + std::to_string(stage.size) + ") would never give anything: this replica reads " +
                         std::to_string(source_.limit()) + " elements; take a smaller batch or {.keep_last = true}"};
  }

  // An exception takes the place of its batch: the input goes on behind it.
  std::optional<Value> next() {
    const std::int64_t before = source_.position();
    std::optional<Value> value;
    try {
      value = read();
    } catch (...) {
      if constexpr (Seekable<S>) seek(position_ + 1);
      throw;
    }
    const std::int64_t got = source_.position() - before;
    if (got == 0 || (got < stage_.size && !stage_.options.keep_last)) return std::nullopt;
    ++position_;
    return value;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    source_.seek(position * stage_.size);
    position_ = position;
  }

 private:
  std::optional<Value> read() {
    if constexpr (BatchReader<S>) {
      return source_.read_batch(stage_.size);
    } else {
      std::vector<Value> elements;
      while (static_cast<std::int64_t>(elements.size()) < stage_.size) {
        std::optional<Value> element = source_.next();
        if (!element) break;
        elements.push_back(std::move(*element));
      }
      if (elements.empty()) return std::nullopt;
      return stack_elements(elements);
    }
  }

  S source_;
  BatchStage stage_;
  std::int64_t position_ = 0;
};

template <class S>
auto operator|(S&& source, const BatchStage& stage) {
  auto stream = as_stream(std::forward<S>(source));
  return Batched<decltype(stream)>{std::move(stream), stage};
}

}  // namespace detail

// Stacks `size` elements: arrays of shape [...] become arrays of shape [size, ...]. The last elements of a finite
// input that do not fill a batch are dropped, since a training step has one shape; {.keep_last = true} keeps them.
// Throws BuildError when size < 1, DataError (while reading) when the shapes of the elements differ.
inline detail::BatchStage batch(std::int64_t size, BatchOptions options = {}) {
  if (size < 1) throw BuildError{"batch(" + std::to_string(size) + "): a batch has at least one element"};
  return {size, options};
}

}  // namespace replicator::data
