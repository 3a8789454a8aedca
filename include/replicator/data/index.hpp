// SPDX-License-Identifier: Apache-2.0
// The order in which a replica reads the items of a finite set: shuffle, sample, shard, epochs, take.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/alias_table.hpp>
#include <replicator/data/permutation.hpp>
#include <replicator/data/shard.hpp>
#include <replicator/data/stream.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace replicator::data {

// A pure function position -> item, so that seeking costs nothing. Position p of replica r is position p * R + r of the
// whole job. So R replicas that take n items each read the same global batch as one replica that takes n * R. Every
// item comes exactly once per epoch, unless sample() draws them. Batches continue across the end of an epoch, so nothing
// is dropped there.
class Index {
 public:
  struct Place {
    std::int64_t item = 0;  // in [0, size)
    std::int64_t epoch = 0;
    std::int64_t number = 0;  // the position in the whole job
  };

  explicit Index(std::int64_t size) : size_{size} {}

  std::int64_t size() const { return size_; }
  std::uint64_t seed() const { return shard_.seed; }
  const std::shared_ptr<WorkerPool>& pool() const { return shard_.pool; }

  Place operator()(std::int64_t position) const {
    const std::int64_t number = position * shard_.replicas + shard_.replica;
    const std::int64_t epoch = number / size_, place = number % size_;
    const std::uint64_t seed = order_seed_.value_or(shard_.seed);
    if (weights_) return {(*weights_)(seed, number), epoch, number};
    if (!shuffled_) return {place, epoch, number};
    return {Permutation{size_, seed, epoch}(place), epoch, number};
  }

  // The number of items each replica reads, the same for all replicas; -1 if endless. At most R - 1 items of a finite
  // run are left over.
  std::int64_t limit() const {
    const std::int64_t epochs = shard_.epoch_limit;
    const std::int64_t by_epochs = epochs < 0 ? -1 : epochs * size_ / shard_.replicas;
    if (by_epochs < 0 || take_ < 0) return std::max(by_epochs, take_);
    return std::min(by_epochs, take_);
  }

  // The share of this replica if nothing is left over: the first replicas then read one item more.
  Share share() const {
    const auto taken = [&](std::int64_t count) { return take_ < 0 ? count : std::min(count, take_); };
    if (shard_.epoch_limit < 0) return {take_, take_};
    const std::int64_t total = shard_.epoch_limit * size_, replicas = shard_.replicas;
    return {taken((total + replicas - 1 - shard_.replica) / replicas), taken((total + replicas - 1) / replicas)};
  }

  // Throws BuildError after shard(), because shuffling a part does not give a part of the shuffled whole. Also throws
  // after take(), because it would include items that are not taken.
  void shuffle(std::optional<std::uint64_t> seed) {
    require_first("shuffle()");
    shuffled_ = true;
    order_seed_ = seed;
  }
  // Throws BuildError as shuffle() does, where both are asked for, and for another number of weights than of items.
  void sample(std::shared_ptr<const AliasTable> weights, std::optional<std::uint64_t> seed) {
    require_first("sample()");
    if (weights->size() != size_)
      throw BuildError{"sample() has " + std::to_string(weights->size()) + " weights for " + std::to_string(size_) + " items: each item needs one"};
    weights_ = std::move(weights);
    order_seed_ = seed;
  }
  // Throws BuildError for a replica outside of [0, replicas), for a second shard(), and after take(), which counts this
  // replica's items.
  void shard(const Shard& shard) {
    if (sharded_) throw BuildError{"shard() was asked for twice in one pipeline"};
    if (take_ >= 0)
      throw BuildError{"shard() stands behind take(), which counts the items of one replica: put shard() before it"};
    if (shard.replica < 0 || shard.replica >= shard.replicas)
      throw BuildError{"shard() was asked for replica " + std::to_string(shard.replica) + " of " +
                       std::to_string(shard.replicas)};
    sharded_ = true;
    const std::int64_t epochs = shard_.epoch_limit;
    shard_ = shard;
    epochs_are(epochs >= 0 ? epochs : shard.epoch_limit);
  }
  // Throws BuildError for a negative count, and for so many epochs that the number of items overflows.
  void epochs(std::int64_t count) { epochs_are(checked("epochs", count)); }
  void take(std::int64_t count) {
    take_ = take_ < 0 ? checked("take", count) : std::min(take_, checked("take", count));
  }

 private:
  void require_first(const std::string& stage) const {
    if (sharded_) throw BuildError{stage + " stands behind shard(): put it before, so that all replicas cut the same order"};
    if (take_ >= 0) throw BuildError{stage + " stands behind take(), which takes the first items of the order: put " + stage + " before it"};
    if (weights_ || (shuffled_ && stage == "sample()"))
      throw BuildError{stage + " stands behind another stage that chooses the order: leave one of them out; sample() draws at random by itself"};
  }
  // Leaves room above the number of items to add a few replicas without overflow.
  void epochs_are(std::int64_t count) {
    std::int64_t items = 0;
    if (__builtin_mul_overflow(count, size_, &items) || items > std::int64_t{1} << 62)
      throw BuildError{"epochs(" + std::to_string(count) + ") of " + std::to_string(size_) +
                       " items are more than 2^62 items: without epochs() an input goes on for ever"};
    shard_.epoch_limit = count;
  }
  static std::int64_t checked(const char* what, std::int64_t count) {
    if (count >= 0) return count;
    throw BuildError{std::string{what} + "(" + std::to_string(count) + "): the count cannot be negative"};
  }

  std::int64_t size_;
  Shard shard_;
  std::int64_t take_ = -1;
  std::shared_ptr<const AliasTable> weights_;  // of sample()
  std::optional<std::uint64_t> order_seed_;    // of shuffle() or sample()
  bool shuffled_ = false;
  bool sharded_ = false;
};

namespace detail {
struct ShuffleStage {
  std::optional<std::uint64_t> seed;
};
struct SampleStage {
  std::shared_ptr<const AliasTable> weights;
  std::optional<std::uint64_t> seed;
};
struct ShardStage {
  Shard shard;
};
struct EpochsStage {
  std::int64_t count;
};

template <class S>
constexpr void require_indexed() {
  static_assert(Indexed<std::remove_cvref_t<S>>,
                "replicator: shuffle(), sample(), shard() and epochs() choose items by number: put them right behind "
                "the source (image_folder(), npy(), ...), before decode_images(), transform() and batch()");
}

template <class S>
auto operator|(S&& source, const ShuffleStage& stage) {
  require_indexed<S>();
  std::remove_cvref_t<S> result(std::forward<S>(source));
  if constexpr (Indexed<decltype(result)>) result.index().shuffle(stage.seed);
  return result;
}
template <class S>
auto operator|(S&& source, const SampleStage& stage) {
  require_indexed<S>();
  std::remove_cvref_t<S> result(std::forward<S>(source));
  if constexpr (Indexed<decltype(result)>) result.index().sample(stage.weights, stage.seed);
  return result;
}
template <class S>
auto operator|(S&& source, const ShardStage& stage) {
  require_indexed<S>();
  std::remove_cvref_t<S> result(std::forward<S>(source));
  if constexpr (Indexed<decltype(result)>) result.index().shard(stage.shard);
  return result;
}
template <class S>
auto operator|(S&& source, const EpochsStage& stage) {
  require_indexed<S>();
  std::remove_cvref_t<S> result(std::forward<S>(source));
  if constexpr (Indexed<decltype(result)>) result.index().epochs(stage.count);
  return result;
}
}  // namespace detail

// A new random order in every epoch, the same for all replicas. The key is shard()'s seed, or the given one.
inline detail::ShuffleStage shuffle() { return {}; }
inline detail::ShuffleStage shuffle(std::uint64_t seed) { return {seed}; }
// In place of shuffle(): draws items at random with replacement. Each draw is item i with the probability weights[i] / sum
// of weights, independently of all others, and an item of weight 0 never comes. An epoch is as many draws as there are
// items. The draws are the same for all replicas and on any placement; the key is shard()'s seed, or the given one. Takes
// 16 bytes for each item: add the stage outside of the input function, so that all replicas share them.
// Throws BuildError for a weight that is negative or not finite, if none is above 0, and if the source has another number
// of items.
inline detail::SampleStage sample(const std::vector<double>& weights) { return {std::make_shared<const AliasTable>(weights), {}}; }
inline detail::SampleStage sample(const std::vector<double>& weights, std::uint64_t seed) { return {std::make_shared<const AliasTable>(weights), seed}; }
// This replica's part. The argument may be anything that converts to Shard, such as an InputContext.
inline detail::ShardStage shard(const Shard& shard) { return {shard}; }
// The number of passes over the data; without this stage the passes never end.
inline detail::EpochsStage epochs(std::int64_t count) { return {count}; }

}  // namespace replicator::data
