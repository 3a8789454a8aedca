// SPDX-License-Identifier: Apache-2.0
// The kernel of Random on the CPU. It makes numbers in tiles of 16 Philox blocks, and cuts the last tile. ops/random.hpp defines the bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/core/processor.hpp>
#include <replicator/cpu/loops/philox_tile.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/loops/vector_math.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/random.hpp>

namespace replicator::detail::cpu {

namespace detail {

// Number of values of T that a block makes.
template <class T>
inline constexpr std::size_t values_per_block = 16 / sizeof(T);
template <class T>
inline constexpr std::size_t random_tile = philox_lanes* values_per_block<T>;

// random_integer: value k of block j as a whole number in [0, 2^24) or [0, 2^53). random_unit brings it to [0, 1).
template <class T>
inline constexpr T random_unit = sizeof(T) == 4 ? T(0x1p-24) : T(0x1p-53);
template <class T>
[[gnu::always_inline]] inline T random_integer(const PhiloxWords& words, std::size_t k, std::size_t j) {
  if constexpr (sizeof(T) == 4)
    return static_cast<T>(static_cast<std::int32_t>(words[k][j] >> 8));
  else
    return static_cast<T>(
        static_cast<std::int64_t>(((std::uint64_t{words[2 * k][j]} << 32) | words[2 * k + 1][j]) >> 11));
}

template <class T>
[[gnu::always_inline]] inline void uniform_tile(const PhiloxWords& words, T* out) {
  for (std::size_t k = 0; k < values_per_block<T>; ++k)
    for (std::size_t j = 0; j < philox_lanes; ++j)
      out[j * values_per_block<T> + k] = random_integer<T>(words, k, j) * random_unit<T>;
}

// Values 2p and 2p + 1 of a block come from its integers 2p and 2p + 1. The first is the radius, moved to (0, 1]. The second is
// the angle.
// Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
template <class T>
[[gnu::always_inline]] inline void normal_tile(const PhiloxWords& words, T* out) {
  constexpr std::size_t n = values_per_block<T>;
  for (std::size_t p = 0; p < n; p += 2) {
    T radius[philox_lanes], angle[philox_lanes];
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      radius[j] = T(-2) * vector_math::log((random_integer<T>(words, p, j) + T(1)) * random_unit<T>);
      angle[j] = random_integer<T>(words, p + 1, j) * (random_unit<T> * T(6.283185307179586476925));
    }
    for (std::size_t j = 0; j < philox_lanes; ++j) radius[j] = std::sqrt(radius[j]);
    for (std::size_t j = 0; j < philox_lanes; ++j) {
      out[j * n + p] = radius[j] * vector_math::cos(angle[j]);
      out[j * n + p + 1] = radius[j] * vector_math::sin(angle[j]);
    }
  }
}

template <Distribution distribution, class T>
[[gnu::always_inline]] inline void fill_random(PhiloxCounter counter, PhiloxKey key, T* out, std::int64_t count) {
  constexpr auto tile = static_cast<std::int64_t>(random_tile<T>);
  const PhiloxTile make_words = philox_tile();
  for (std::int64_t begin = 0; begin < count; begin += tile, counter[0] += philox_lanes) {
    PhiloxWords words;
    T values[random_tile<T>];
    make_words(counter, key, words);
    if constexpr (distribution == Distribution::uniform)
      uniform_tile(words, values);
    else
      normal_tile(words, values);
    std::copy_n(values, std::min(tile, count - begin), out + begin);
  }
}

template <class T>
using RandomLoop = void (*)(PhiloxCounter, PhiloxKey, T*, std::int64_t);

template <Distribution distribution, class T>
[[gnu::flatten]] void random_baseline(PhiloxCounter counter, PhiloxKey key, T* out, std::int64_t count) {
  fill_random<distribution>(counter, key, out, count);
}
template <Distribution distribution, class T>
[[gnu::flatten, REPLICATOR_AVX2]] void random_avx2(PhiloxCounter counter, PhiloxKey key, T* out,
                                                   std::int64_t count) {
  fill_random<distribution>(counter, key, out, count);
}

template <Distribution distribution, class T>
RandomLoop<T> random_loop() {
  return instruction_level() == InstructionLevel::baseline ? &random_baseline<distribution, T>
                                                           : &random_avx2<distribution, T>;
}

// The first block of a node's numbers in a step, for this replica.
inline PhiloxCounter first_block(const StepContext& step, std::uint32_t replica, std::uint32_t trace_index) {
  const auto high = static_cast<std::uint32_t>(step.step >> 32);
  return {0, static_cast<std::uint32_t>(step.step), replica, trace_index ^ (high * 0x9E3779B9u)};
}
inline PhiloxKey philox_key(const StepContext& step) { return {static_cast<std::uint32_t>(step.seed), static_cast<std::uint32_t>(step.seed >> 32)}; }

template <class T>
class RandomLoops final : public Executable {
 public:
  RandomLoops(const Random& op, RandomLoop<T> loop)
      : count_{op.type.shape.elements()}, trace_index_{op.trace_index}, of_replica_{op.of_replica}, loop_{loop} {
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const auto& step = launch.context;
    const auto replica = of_replica_ < 0 ? step.replica : static_cast<std::uint32_t>(of_replica_);
    loop_(first_block(step, replica, trace_index_), philox_key(step), reinterpret_cast<T*>(launch.outputs[0]), count_);
  }

 private:
  std::int64_t count_;
  std::uint32_t trace_index_;
  std::int32_t of_replica_;
  RandomLoop<T> loop_;
};

template <class T>
std::unique_ptr<Executable> make_random_loops(const Random& op) {
  return std::make_unique<RandomLoops<T>>(op, op.distribution == Distribution::uniform
                                                  ? random_loop<Distribution::uniform, T>()
                                                  : random_loop<Distribution::normal, T>());
}

inline std::unique_ptr<Executable> make_random(const KernelRequest& request) {
  const auto& op = *request.operation.get<Random>();
  if (op.type.dtype == DType::float32) return make_random_loops<float>(op);
  if (op.type.dtype == DType::float64) return make_random_loops<double>(op);
  return nullptr;
}

}  // namespace detail

inline constexpr Kernel random_loops{"random loops", &detail::make_random};
inline const bool random_loops_registered =
    register_kernel<Random>(DeviceKind::cpu, KernelTier::reference, &random_loops);

}  // namespace replicator::detail::cpu
