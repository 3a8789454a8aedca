// SPDX-License-Identifier: Apache-2.0
// Takes the first elements of an input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace replicator::data {

namespace detail {

struct TakeStage {
  std::int64_t count;
};

template <class S>
class Taken : public Stream<Taken<S>, typename S::value_type> {
 public:
  Taken(S source, std::int64_t count) : source_{std::move(source)}, count_{count} {}

  std::optional<typename S::value_type> next() {
    if (source_.position() >= count_) return std::nullopt;
    return source_.next();
  }
  std::int64_t position() const { return source_.position(); }
  void seek(std::int64_t position) requires Seekable<S> { source_.seek(position); }
  std::int64_t limit() const {
    if constexpr (HasLimit<S>)
      if (const auto all = source_.limit(); all >= 0) return std::min(all, count_);
    return count_;
  }
  Share share() const requires HasShare<S> {
    const Share all = source_.share();
    return {all.own < 0 ? count_ : std::min(all.own, count_), all.most < 0 ? count_ : std::min(all.most, count_)};
  }
  void read_on() requires HasShare<S> {
    source_.read_on();
    count_ = std::numeric_limits<std::int64_t>::max();
  }

 private:
  S source_;
  std::int64_t count_;
};

template <class S>
auto operator|(S&& source, const TakeStage& stage) {
  using R = std::remove_cvref_t<S>;
  if constexpr (Indexed<R>) {
    R result(std::forward<S>(source));
    result.index().take(stage.count);
    return result;
  } else {
    auto stream = as_stream(std::forward<S>(source));
    return Taken<decltype(stream)>{std::move(stream), stage.count};
  }
}

}  // namespace detail

// Elements 0 .. count-1 of each replica: images after image_folder(), batches after batch(). Put shuffle() and shard()
// before it.
// Throws BuildError for a negative count.
inline detail::TakeStage take(std::int64_t count) {
  if (count < 0) throw BuildError{"take(" + std::to_string(count) + "): the count cannot be negative"};
  return {count};
}

}  // namespace replicator::data
