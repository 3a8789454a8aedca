// SPDX-License-Identifier: Apache-2.0
// Batching: stacks several elements into one, along a new first dimension.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <replicator/core/array.hpp>
#include <replicator/data/stack.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace replicator::data {

// The policy for the last elements of a finite input that do not fill a batch. It consists of two types, because the
// elements of a padded input have one more component.
struct Last {
  enum Uneven {
    drop,  // skips them: for training; the next epoch brings them
    keep,  // a smaller batch; the step is planned anew for it
  };
  enum Even {
    pad,  // a batch of full size, with weights that mark the real elements
  };
};

struct BatchOptions {
  Last::Uneven last = Last::drop;  // for the elements that do not fill a batch
};
struct PaddedBatchOptions {
  Last::Even last;  // Last::pad
};

namespace detail {

struct BatchStage {
  std::int64_t size;
  BatchOptions options;
};
struct PaddedBatchStage {
  std::int64_t size;
};

template <class S>
class Batched : public Stream<Batched<S>, typename S::value_type> {
 public:
  using Value = typename S::value_type;

  Batched(S source, const BatchStage& stage) : source_{std::move(source)}, stage_{stage} {
    if constexpr (HasLimit<S>)
      if (source_.limit() >= 0 && source_.limit() < stage.size && stage.options.last == Last::drop)
        throw BuildError{"batch(" + std::to_string(stage.size) + ") would never give anything: this replica reads " + std::to_string(source_.limit()) +
                         (source_.limit() == 0 ? " elements: shard() leaves none where there are fewer elements than replicas; read more epochs, run fewer replicas, or take {.last = rp::data::Last::pad}"
                                               : " elements; take a smaller batch, {.last = rp::data::Last::keep} or {.last = rp::data::Last::pad}")};
  }

  // An exception of the source replaces its batch; the input continues with the next one.
  std::optional<Value> next() {
    const std::int64_t before = source_.position();
    std::optional<Value> value;
    try {
      value = read_stacked(source_, stage_.size);
    } catch (...) {
      if constexpr (Seekable<S>) seek(position_ + 1);
      else ++position_;
      throw;
    }
    const std::int64_t got = source_.position() - before;
    if (got == 0 || (got < stage_.size && stage_.options.last == Last::drop)) return std::nullopt;
    ++position_;
    return value;
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    source_.seek(position * stage_.size);
    position_ = position;
  }

 private:
  S source_;
  BatchStage stage_;
  std::int64_t position_ = 0;
};

template <class V>
struct Weighted;
template <class T>
struct Weighted<Array<T>> {
  using type = std::tuple<Array<T>, Array<float>>;
};
template <class... T>
struct Weighted<std::tuple<T...>> {
  using type = std::tuple<T..., Array<float>>;
};

template <class S>
class PaddedBatches : public Stream<PaddedBatches<S>, typename Weighted<typename S::value_type>::type> {
 public:
  using Value = typename Weighted<typename S::value_type>::type;

  PaddedBatches(S source, std::int64_t size) : source_{std::move(source)}, size_{size} {
    if constexpr (HasShare<S>) {
      share_ = source_.share();
      source_.read_on();
    }
  }

  std::optional<Value> next() {
    const std::int64_t begin = position_ * size_;
    if (share_.most >= 0 && begin >= share_.most) return std::nullopt;
    const std::int64_t own = share_.own < 0 ? size_ : std::clamp<std::int64_t>(share_.own - begin, 0, size_);
    const std::int64_t before = source_.position();
    std::optional<typename S::value_type> value;
    try {
      // A replica with a share that ends earlier than another's still reads an element, for the shapes.
      value = read_stacked(source_, std::max<std::int64_t>(own, 1));
    } catch (...) {
      if constexpr (Seekable<S>) seek(position_ + 1);
      else ++position_;
      throw;
    }
    if (!value) return std::nullopt;
    ++position_;
    return weighted(std::move(*value), std::min(own, source_.position() - before));
  }
  std::int64_t position() const { return position_; }
  void seek(std::int64_t position) requires Seekable<S> {
    source_.seek(position * size_);
    position_ = position;
  }

 private:
  Array<float> weights(std::int64_t real) const {
    Array<float> result{Shape{size_}};
    std::fill(result.begin(), result.begin() + real, 1.0f);
    return result;
  }
  template <class T>
  Value weighted(Array<T> batch, std::int64_t real) const {
    return {repeat_last(std::move(batch), size_), weights(real)};
  }
  template <class... T>
  Value weighted(std::tuple<Array<T>...> batch, std::int64_t real) const {
    return std::apply([&](auto&... each) { return Value{repeat_last(std::move(each), size_)..., weights(real)}; }, batch);
  }

  S source_;
  std::int64_t size_;
  Share share_{-1, -1};
  std::int64_t position_ = 0;
};

template <class S>
auto operator|(S&& source, const BatchStage& stage) {
  auto stream = as_stream(std::forward<S>(source));
  return Batched<decltype(stream)>{std::move(stream), stage};
}
template <class S>
auto operator|(S&& source, const PaddedBatchStage& stage) {
  auto stream = as_stream(std::forward<S>(source));
  return PaddedBatches<decltype(stream)>{std::move(stream), stage.size};
}

// Returns `size`. Throws BuildError if size < 1.
inline std::int64_t checked_batch(std::int64_t size) {
  if (size < 1) throw BuildError{"batch(" + std::to_string(size) + "): a batch has at least one element"};
  return size;
}

}  // namespace detail

// Stacks `size` elements: arrays of shape [...] become arrays of shape [size, ...]. By default, the last elements of a
// finite input that do not fill a batch are dropped, since a training step has one shape.
// {.last = rp::data::Last::keep} keeps them.
// Throws BuildError if size < 1. Reading throws DataError if the shapes of the elements differ.
inline detail::BatchStage batch(std::int64_t size, BatchOptions options = {}) {
  return {detail::checked_batch(size), options};
}

// With {.last = rp::data::Last::pad} every batch has `size` elements and one more component, the weights: float32
// [size], 1 for an element of the data and 0 for padding. A mean over a validation set is sum(weights * value) over
// sum(weights).
//
// Over shard(), transform() and take() of a finite source, every replica gives the same number of batches. Each element
// has weight 1 exactly once over all replicas, for any size and number of replicas. Other inputs do not know the other
// replicas: each pads its own last batch, and all replicas stop with the first that ends.
// Throws as above.
inline detail::PaddedBatchStage batch(std::int64_t size, PaddedBatchOptions) {
  return {detail::checked_batch(size)};
}

}  // namespace replicator::data
