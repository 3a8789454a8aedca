// SPDX-License-Identifier: Apache-2.0
// The order in which a replica reads the items of a finite set: shuffle, sample, shard, epochs, take.
// <replicator/replicator.hpp>, or index_stages.hpp, brings the code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

  // Throws BuildError for a negative position, and where there is no item.
  template <class = void>
  Place operator()(std::int64_t position) const;

  // The number of items each replica reads, the same for all replicas; -1 if endless. At most R - 1 items of a finite
  // run are left over.
  template <class = void>
  std::int64_t limit() const;

  // The share of this replica if nothing is left over: the first replicas then read one item more.
  template <class = void>
  Share share() const;

  // Throws BuildError after shard(), because shuffling a part does not give a part of the shuffled whole. Also throws
  // after take(), because it would include items that are not taken.
  template <class = void>
  void shuffle(std::optional<std::uint64_t> seed);
  // Throws BuildError as shuffle() does, where both are asked for, and for another number of weights than of items.
  template <class = void>
  void sample(std::shared_ptr<const AliasTable> weights, std::optional<std::uint64_t> seed);
  // Throws BuildError for a replica outside of [0, replicas), for a second shard(), and after take(), which counts this
  // replica's items.
  template <class = void>
  void shard(const Shard& shard);
  // Throws BuildError for a negative count, and for so many epochs that the number of items overflows.
  template <class = void>
  void epochs(std::int64_t count);
  template <class = void>
  void take(std::int64_t count);

 private:
  template <class = void>
  void require_first(const std::string& stage) const;
  // Leaves room above the number of items to add a few replicas without overflow.
  template <class = void>
  void epochs_are(std::int64_t count);
  template <class = void>
  static std::int64_t checked(const char* what, std::int64_t count);

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
template <class = void>
detail::SampleStage sample(const std::vector<double>& weights);
template <class = void>
detail::SampleStage sample(const std::vector<double>& weights, std::uint64_t seed);
// This replica's part. The argument may be anything that converts to Shard, such as an InputContext.
inline detail::ShardStage shard(const Shard& shard) { return {shard}; }
// The number of passes over the data; without this stage the passes never end.
inline detail::EpochsStage epochs(std::int64_t count) { return {count}; }

}  // namespace replicator::data
