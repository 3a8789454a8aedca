// SPDX-License-Identifier: Apache-2.0
// A replay buffer of transitions, uniform or prioritized. A checkpoint does not hold it: after --resume it is empty.
// Sources: Lin, "Self-improving reactive agents based on reinforcement learning, planning and teaching", 1992; Schaul,
// Quan, Antonoglou, Silver, "Prioritized experience replay", 2016.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/core/error.hpp>
#include <replicator/core/number_text.hpp>
#include <replicator/core/philox.hpp>
#include <replicator/rl/n_step.hpp>
#include <replicator/rl/sum_tree.hpp>

namespace replicator::rl {

struct ReplayOptions {
  std::int64_t capacity = 1'000'000;  // in transitions; new ones replace the oldest
  double priority_exponent = 0;       // draws a transition in proportion to (|error| + epsilon)^exponent; 0: uniformly
  double importance_exponent = 0.4;   // how far `weight` corrects for that: 1 fully, 0 not at all
  double epsilon = 1e-3;
};

// A batch of n transitions, with the observations as the learner takes them.
template <Element O>
struct Batch {
  Array<O> observation;             // [n, ...]
  Array<float> action;              // [n, actions]
  Array<float> reward;              // [n]
  Array<float> discount;            // [n]
  Array<O> next;                    // [n, ...]
  Array<float> weight;              // [n]: weights of the losses; the largest is 1
  std::vector<std::int64_t> items;  // the numbers of the transitions: see Replay::set_errors
};

// For one thread at a time: otherwise the draws would depend on the threads' timing.
template <Element O>
class Replay {
 public:
  // Throws BuildError unless capacity, observation and actions have at least one element, for exponents or an epsilon
  // out of range, and for a capacity that does not fit into memory.
  Replay(Shape observation, std::int64_t actions, const ReplayOptions& options = {})
      : options_{checked(options)}, observation_{observation}, actions_{actions} {
    if (observation.elements() < 1 || actions < 1)
      throw BuildError{"a replay of observations " + observation.text() + " and " + std::to_string(actions) +
                       " actions was asked for: both have at least one element"};
    reserve();
  }

  std::int64_t size() const { return std::min(added_, options_.capacity); }
  std::int64_t added() const { return added_; }

  // Adds a transition with the largest priority so far, so that it is soon drawn.
  // Throws BuildError if the extents differ.
  void add(const Transition<O>& transition) {
    const auto extent = static_cast<std::size_t>(observation_.elements());
    if (transition.observation.size() != extent || transition.next.size() != extent || transition.action.size() != static_cast<std::size_t>(actions_))
      throw BuildError{"a transition of " + std::to_string(transition.observation.size()) + " and " + std::to_string(transition.next.size()) +
                       " observed values and " + std::to_string(transition.action.size()) + " actions was added to a replay of observations " +
                       observation_.text() + " and " + std::to_string(actions_) + " actions"};
    const auto slot = added_ % options_.capacity;
    if (slot == size()) grow();
    put(observations_, slot, transition.observation);
    put(actions_done_, slot, transition.action);
    put(nexts_, slot, transition.next);
    rewards_[static_cast<std::size_t>(slot)] = transition.reward;
    discounts_[static_cast<std::size_t>(slot)] = transition.discount;
    tree_.set(slot, largest_);
    ++added_;
  }

  // Draws n transitions with replacement, one from each of n equal parts of the total priority.
  // Throws BuildError if the replay is empty, or n < 1.
  Batch<O> sample(std::int64_t n, PhiloxStream& random) const {
    if (n < 1 || added_ == 0)
      throw BuildError{"a batch of " + std::to_string(n) + " was asked for of a replay of " + std::to_string(size()) + " transitions"};
    std::vector<std::int64_t> slots;
    for (std::int64_t i = 0; i < n; ++i) {
      const double share = (static_cast<double>(i) + static_cast<double>(random.uniform())) / static_cast<double>(n);
      slots.push_back(tree_.find(share * tree_.total()));
    }
    return batch_of(slots);
  }

  // Sets the errors, of any sign, of the transitions of a batch. Skips transitions that were replaced meanwhile.
  // Throws BuildError if the numbers differ, and for a transition that was never added.
  // Throws DataError for an error that is not finite, and for one whose priority, times the capacity, is not.
  void set_errors(std::span<const std::int64_t> items, std::span<const float> errors) {
    if (items.size() != errors.size())
      throw BuildError{std::to_string(errors.size()) + " errors were given for " + std::to_string(items.size()) + " transitions"};
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!std::isfinite(errors[i])) throw DataError{"the error of transition " + std::to_string(items[i]) + " is not finite"};
      if (items[i] < 0 || items[i] >= added_)
        throw BuildError{"an error was given for transition " + std::to_string(items[i]) + ", but only those below " +
                         std::to_string(added_) + " were added"};
      if (items[i] < added_ - size()) continue;
      const double priority = std::pow(std::abs(static_cast<double>(errors[i])) + options_.epsilon, options_.priority_exponent);
      if (!std::isfinite(priority * static_cast<double>(options_.capacity)))  // the sum of all must be finite
        throw DataError{"the error " + replicator::detail::number_text(errors[i]) + " of transition " + std::to_string(items[i]) + " gives it a priority so large that the sum over " + std::to_string(options_.capacity) + " transitions would not be finite: take a smaller power than " +
                        replicator::detail::number_text(options_.priority_exponent)};
      tree_.set(items[i] % options_.capacity, priority);
      largest_ = std::max(largest_, priority);
    }
  }

 private:
  static const ReplayOptions& checked(const ReplayOptions& o) {
    if (o.capacity < 1 || !(o.priority_exponent >= 0) || !(o.importance_exponent >= 0) || !(o.epsilon > 0))
      throw BuildError{"a replay takes a capacity from 1 on, exponents from 0 on and an epsilon above 0; found " + std::to_string(o.capacity) + ", " +
                       replicator::detail::number_text(o.priority_exponent) + ", " + replicator::detail::number_text(o.importance_exponent) + " and " + replicator::detail::number_text(o.epsilon)};
    return o;
  }

  // Reserves addresses for all rows at once. Growing would copy the rows, and need room for more than twice as much.
  void reserve() {
    const auto rows = static_cast<std::size_t>(options_.capacity), extent = static_cast<std::size_t>(observation_.elements());
    try {
      observations_.reserve(rows * extent);
      nexts_.reserve(rows * extent);
      actions_done_.reserve(rows * static_cast<std::size_t>(actions_));
      rewards_.reserve(rows);
      discounts_.reserve(rows);
      tree_ = detail::SumTree{options_.capacity};
    } catch (const std::exception&) {
      throw BuildError{"a replay of " + std::to_string(options_.capacity) + " transitions was asked for, with two observations " + observation_.text() +
                       " of " + std::to_string(extent * sizeof(O)) + " bytes in each: there is no room for it; take a smaller capacity"};
    }
  }
  void grow() {
    observations_.resize(observations_.size() + static_cast<std::size_t>(observation_.elements()));
    nexts_.resize(observations_.size());
    actions_done_.resize(actions_done_.size() + static_cast<std::size_t>(actions_));
    rewards_.push_back(0);
    discounts_.push_back(0);
  }
  template <class T>
  static void put(std::vector<T>& rows, std::int64_t slot, std::span<const T> row) {
    std::copy(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(row.size()) * slot);
  }
  template <class T>
  static void take(const std::vector<T>& rows, std::int64_t slot, Array<T>& out, std::int64_t i) {
    const auto row = out.size() / out.shape()[0];
    std::copy_n(rows.data() + row * slot, row, out.data() + row * i);
  }

  Shape batched(std::int64_t n) const {
    Shape shape{n};
    for (const auto extent : observation_) shape.push_back(extent);
    return shape;
  }
  Batch<O> batch_of(std::span<const std::int64_t> slots) const {
    const auto n = static_cast<std::int64_t>(slots.size());
    Batch<O> batch{Array<O>{batched(n)}, Array<float>{{n, actions_}}, Array<float>{Shape{n}}, Array<float>{Shape{n}}, Array<O>{batched(n)}, Array<float>{Shape{n}}, {}};
    double smallest = tree_.weight(slots[0]);
    for (const auto slot : slots) smallest = std::min(smallest, tree_.weight(slot));
    for (std::int64_t i = 0; i < n; ++i) {
      const auto slot = slots[static_cast<std::size_t>(i)];
      take(observations_, slot, batch.observation, i);
      take(actions_done_, slot, batch.action, i);
      take(rewards_, slot, batch.reward, i);
      take(discounts_, slot, batch.discount, i);
      take(nexts_, slot, batch.next, i);
      batch.weight[i] = static_cast<float>(std::pow(smallest / tree_.weight(slot), options_.importance_exponent));
      batch.items.push_back(item_at(slot));
    }
    return batch;
  }
  // The number of the latest transition in this slot.
  std::int64_t item_at(std::int64_t slot) const {
    const auto newest = added_ - 1;
    const auto ago = (newest % options_.capacity - slot + options_.capacity) % options_.capacity;
    return newest - ago;
  }

  ReplayOptions options_;
  Shape observation_;
  std::int64_t actions_;
  detail::SumTree tree_{1};
  double largest_ = 1;
  std::int64_t added_ = 0;
  std::vector<O> observations_, nexts_;  // a row for each slot; memory is used as slots fill
  std::vector<float> actions_done_, rewards_, discounts_;
};

}  // namespace replicator::rl
