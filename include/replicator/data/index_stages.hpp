// SPDX-License-Identifier: Apache-2.0
// The code of index.hpp: the stages that change the order of items.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <replicator/core/error.hpp>
#include <replicator/data/alias_table.hpp>
#include <replicator/data/fill_alias_table.hpp>
#include <replicator/data/index.hpp>
#include <replicator/data/permutation.hpp>
#include <replicator/data/shard.hpp>
#include <string>
#include <utility>
#include <vector>

namespace replicator::data {

template <class>
Index::Place Index::operator()(std::int64_t position) const {
  if (size_ < 1 || position < 0)
    throw BuildError{"item " + std::to_string(position) + " was asked for of an index over " + std::to_string(size_) + " items: items are counted from 0, and there must be one"};
  const std::int64_t number = position * shard_.replicas + shard_.replica;
  const std::int64_t epoch = number / size_, place = number % size_;
  const std::uint64_t seed = order_seed_.value_or(shard_.seed);
  if (weights_) return {(*weights_)(seed, number), epoch, number};
  if (!shuffled_) return {place, epoch, number};
  return {Permutation{size_, seed, epoch}(place), epoch, number};
}

template <class>
std::int64_t Index::limit() const {
  const std::int64_t epochs = shard_.epoch_limit;
  const std::int64_t by_epochs = epochs < 0 ? -1 : epochs * size_ / shard_.replicas;
  if (by_epochs < 0 || take_ < 0) return std::max(by_epochs, take_);
  return std::min(by_epochs, take_);
}

template <class>
Share Index::share() const {
  const auto taken = [&](std::int64_t count) { return take_ < 0 ? count : std::min(count, take_); };
  if (shard_.epoch_limit < 0) return {take_, take_};
  const std::int64_t total = shard_.epoch_limit * size_, replicas = shard_.replicas;
  return {taken((total + replicas - 1 - shard_.replica) / replicas), taken((total + replicas - 1) / replicas)};
}

template <class>
void Index::shuffle(std::optional<std::uint64_t> seed) {
  require_first("shuffle()");
  shuffled_ = true;
  order_seed_ = seed;
}

template <class>
void Index::sample(std::shared_ptr<const AliasTable> weights, std::optional<std::uint64_t> seed) {
  require_first("sample()");
  if (weights->size() != size_)
    throw BuildError{"sample() has " + std::to_string(weights->size()) + " weights for " + std::to_string(size_) + " items: each item needs one"};
  weights_ = std::move(weights);
  order_seed_ = seed;
}

template <class>
void Index::shard(const Shard& shard) {
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

template <class>
void Index::take(std::int64_t count) {
  take_ = take_ < 0 ? checked("take", count) : std::min(take_, checked("take", count));
}

template <class>
void Index::require_first(const std::string& stage) const {
  if (sharded_) throw BuildError{stage + " stands behind shard(): put it before, so that all replicas cut the same order"};
  if (take_ >= 0) throw BuildError{stage + " stands behind take(), which takes the first items of the order: put " + stage + " before it"};
  if (weights_ || (shuffled_ && stage == "sample()"))
    throw BuildError{stage + " stands behind another stage that chooses the order: leave one of them out; sample() draws at random by itself"};
}

template <class>
void Index::epochs_are(std::int64_t count) {
  std::int64_t items = 0;
  if (__builtin_mul_overflow(count, size_, &items) || items > std::int64_t{1} << 62)
    throw BuildError{"epochs(" + std::to_string(count) + ") of " + std::to_string(size_) +
                     " items are more than 2^62 items: without epochs() an input goes on for ever"};
  shard_.epoch_limit = count;
}

template <class>
std::int64_t Index::checked(const char* what, std::int64_t count) {
  if (count >= 0) return count;
  throw BuildError{std::string{what} + "(" + std::to_string(count) + "): the count cannot be negative"};
}

template <class>
void Index::epochs(std::int64_t count) { epochs_are(checked("epochs", count)); }

template <class>
detail::SampleStage sample(const std::vector<double>& weights) {
  return {std::make_shared<const AliasTable>(weights), {}};
}
template <class>
detail::SampleStage sample(const std::vector<double>& weights, std::uint64_t seed) {
  return {std::make_shared<const AliasTable>(weights), seed};
}

}  // namespace replicator::data
