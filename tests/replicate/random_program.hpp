// SPDX-License-Identifier: Apache-2.0
// Random step functions: programs over tensors of four shapes with every collective, variables of both kinds, random
// numbers, gradients, and graphs that differ between replicas. All values stay small.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <replicator/graph/gradients.hpp>
#include <replicator/ops/elementwise.hpp>
#include <replicator/ops/matmul.hpp>
#include <replicator/ops/movement/reshape.hpp>
#include <replicator/ops/random.hpp>
#include <replicator/ops/recompute.hpp>
#include <replicator/ops/reduce.hpp>
#include <replicator/resolve/all_to_all.hpp>
#include <replicator/resolve/collective_calls.hpp>
#include <replicator/resolve/map_over_replicas.hpp>
#include <replicator/resolve/replica_context.hpp>

namespace replicator::test {

using namespace replicator::detail;

// Operands are indices into the pool of tensors made so far, modulo its size; the device is logical, modulo their number.
struct RandomInstruction {
  unsigned op = 0, shape = 0, a = 0, b = 0, c = 0, device = 0;
};
using RandomProgram = std::vector<RandomInstruction>;

inline constexpr const char* random_instruction_names[] = {
    "combine", "with_vector", "total", "mean", "maximum", "normal",
    "dropout", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "own_constant",
    "gradient", "matmul", "assign_local", "assign_mirrored", "all_to_all", "group_reduce", "group_broadcast",
    "group_gather", "group_scatter", "group_exchange", "recompute", "copy_to_local", "map_reduce", "map_gather"};
inline constexpr unsigned random_instructions = std::size(random_instruction_names);

inline std::string text_of(const RandomProgram& program) {
  std::string text;
  for (const auto& i : program)
    text += std::string{random_instruction_names[i.op]} + "(" + std::to_string(i.shape) + ", " + std::to_string(i.a) +
            ", " + std::to_string(i.b) + ", " + std::to_string(i.c) + ")@" + std::to_string(i.device) + " ";
  return text;
}

// Traces a program for one replica.
class RandomTrace {
 public:
  using T = Tensor<float>;
  using Results = std::tuple<T, T, T, T>;

  RandomTrace(ReplicaContext& replica, T x, T y) : replica_{replica} {
    const Shape shapes[] = {x.shape(), y.shape(), Shape{width}, Shape{}};
    const char* const names[] = {"big", "small", "vector", "scalar"};
    for (std::size_t s = 0; s < 4; ++s) {
      const auto here = place(static_cast<unsigned>(s));
      mirrored_.push_back(
          replica.variable<float>(std::string{"mirrored."} + names[s], shapes[s], Initializer::normal(0, 0.5)));
      local_.push_back(replica.variable<float>(std::string{"local."} + names[s], shapes[s], Initializer::uniform(-1, 1),
                                               {VariableKind::replica_local}));
      pool_[s].push_back({mirrored_[s].read(), true});
      pool_[s].push_back({local_[s].read(), false});
    }
    pool_[0].push_back({x, false});
    pool_[1].push_back({y, false});
  }

  static constexpr std::int64_t width = 3;

  Results run(const RandomProgram& program) {
    for (const auto& instruction : program) execute(instruction);
    const auto w = mirrored_[2];
    const T loss = mean(tame(pool_[0].back().value * w.read()));
    w.assign(w.read() - all_reduce(gradient(loss, pool_[2].front().value), Reduction::mean) * 0.1f);
    return {loss, pool_[0].back().value, pool_[1].back().value, pool_[2].back().value};
  }

 private:
  struct Entry {
    T value;
    bool uniform;
  };

  LogicalDeviceScope place(unsigned device) {
    return replica_.logical_device(static_cast<int>(device % static_cast<unsigned>(replica_.logical_devices())));
  }
  static T tame(T x) {
    return map([](auto a) { return tanh(a); }, x);
  }
  Entry pick(std::size_t shape, unsigned index) const { return pool_[shape][index % pool_[shape].size()]; }
  void push(std::size_t shape, T value, bool uniform) { pool_[shape].push_back({value, uniform}); }

  void execute(const RandomInstruction& i) {
    const auto here = place(i.device);
    const std::size_t s = i.shape % 4, rows = i.shape % 2;
    const Entry a = pick(s, i.a), b = pick(s, i.b), r = pick(rows, i.a), v = pick(2, i.b);
    const auto reduction = static_cast<Reduction>(i.c % 4);
    switch (i.op) {
      case 0:
        return push(s, map([](auto p, auto q) { return tanh(p * q + 0.25 * p - 0.125); }, a.value, b.value),
                    a.uniform && b.uniform);
      case 1:
        return push(rows, tame(r.value * v.value + pick(3, i.c).value), r.uniform && v.uniform && pick(3, i.c).uniform);
      case 2:
        return push(2, tame(sum(r.value, {0})), r.uniform);
      case 3:
        return push(3, mean(a.value), a.uniform);
      case 4:
        return push(2, max(r.value, {0}), r.uniform);
      case 5:
        return push(s, tame(normal<float>(replica_, a.value.shape())), false);
      case 6:
        return push(s, dropout(a.value, 0.25), false);
      case 7:
        return push(s, tame(all_reduce(a.value, reduction)), true);
      case 8:
        return push(0, all_gather(pick(1, i.a).value), true);
      case 9:
        return push(1, tame(reduce_scatter(pick(0, i.a).value, reduction)), false);
      case 10:
        return push(s, broadcast(a.value, static_cast<int>(i.c) % replica_.count()), true);
      case 11:
        return push(s, a.value + static_cast<float>(replica_.id()) * 0.0625f, false);
      case 12:
        return push(2, tame(gradient(mean(map([](auto p) { return p * p; }, r.value)), mirrored_start(2))), false);
      case 13:
        return push(rows, tame(matmul(r.value, outer(v.value))), r.uniform && v.uniform);
      case 14:
        return local_[s].assign(tame(local_[s].read() + a.value));
      case 15:
        return assign_mirrored(s, i.a);
      case 16:
        return push(0, all_to_all(pick(0, i.a).value), false);
      case 17:
        return reduce_in_groups(s, a.value, dealt(i.b), reduction);
      case 18:
        return push(s, broadcast(a.value, 0, {.group = dealt(i.b)}), false);
      case 19:
        return push(2, tame(sum(all_gather(pick(1, i.a).value, {.group = grid(i.b)}), {0})), false);
      case 20:
        return push(2, tame(sum(reduce_scatter(pick(0, i.a).value, Reduction::mean, {.group = grid(i.b)}), {0})), false);
      case 21:
        return push(0, all_to_all(pick(0, i.a).value, 0, 0, {.group = grid(i.b)}), false);
      case 22:
        return push(s, recomputed(a.value, b.value), false);
      case 23:
        return local_[s].assign(a.value);
      case 24:
        return push(s, tame(map_reduce(replica_, thunks(a.value, 1 + i.b % 7), reduction)), true);
      default:
        return push(rows, map_gather(replica_, thunks(v.value, rows ? 2 : 2 * static_cast<unsigned>(replica_.count()))), true);
    }
  }
  // Replica r in group r % count: groups of several sizes, none of them in one block.
  Groups dealt(unsigned index) const {
    std::vector<std::vector<int>> members(1 + index % static_cast<unsigned>(replica_.count()));
    for (int r = 0; r < replica_.count(); ++r) members[static_cast<std::size_t>(r) % members.size()].push_back(r);
    return members;
  }
  // Rows or columns of one of the possible grids.
  Groups grid(unsigned index) const {
    std::vector<int> columns;
    for (int c = 1; c <= replica_.count(); ++c)
      if (replica_.count() % c == 0) columns.push_back(c);
    const int c = columns[index / 2 % columns.size()];
    return index % 2 ? group_rows(replica_.count(), c) : group_columns(replica_.count(), c);
  }
  void reduce_in_groups(std::size_t shape, T x, const Groups& groups, Reduction reduction) {
    if (!groups.equal_sizes() && reduction == Reduction::mean) reduction = Reduction::sum;
    push(shape, tame(all_reduce(x, reduction, {.group = groups})), false);
  }
  // All of them use x, and random numbers.
  std::vector<std::function<T()>> thunks(T x, unsigned count) {
    std::vector<std::function<T()>> all;
    for (unsigned i = 0; i < count; ++i)
      all.push_back([this, x, i] { return tame(x * (0.25f * static_cast<float>(i) - 1) + normal<float>(replica_, x.shape())); });
    return all;
  }
  // With random numbers, a collective and a variable inside.
  T recomputed(T a, T b) {
    return recompute([&](T p, T q) {
      const T noise = normal<float>(replica_, p.shape());
      return tame(tame(p * noise) + all_reduce(tame(p + q), Reduction::mean) * local_[3].read());
    })(a, b);
  }
  T mirrored_start(std::size_t shape) const { return pool_[shape].front().value; }
  T outer(T v) const {
    return map([](auto p, auto q) { return 0.5 * p * q; }, reshape(v, {width, 1}), reshape(v, {1, width}));
  }
  // What was made last among the uniform values, or an older one.
  void assign_mirrored(std::size_t shape, unsigned index) {
    std::vector<T> uniform;
    for (const auto& entry : pool_[shape])
      if (entry.uniform) uniform.push_back(entry.value);
    mirrored_[shape].assign(tame(mirrored_[shape].read() + uniform[uniform.size() - 1 - index % uniform.size()]));
  }

  ReplicaContext& replica_;
  std::vector<Variable<float>> mirrored_, local_;
  std::vector<Entry> pool_[4];
};

}  // namespace replicator::test
