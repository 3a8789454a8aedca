// SPDX-License-Identifier: Apache-2.0
// The kernel of Random on GPUs: one thread per Philox block. ops/random.hpp defines the words. Uniform numbers have the CPU's
// bits. Normal numbers differ in the last place, because the device's log, cos and sin do.
#pragma once

#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/random.hpp>

namespace replicator::detail::cuda {

// A block of four words, and the values that all blocks of a launch or of a step share.
struct PhiloxBlock {
  std::uint32_t word[4];
};
struct PhiloxLaunch {
  std::uint32_t replica, trace, key[2];
};
struct PhiloxStep {
  std::uint32_t low, trace;
};
__device__ inline PhiloxStep philox_step(const PhiloxLaunch& of, std::uint64_t step) {
  return {static_cast<std::uint32_t>(step), of.trace ^ (static_cast<std::uint32_t>(step >> 32) * 0x9E3779B9u)};
}

// The generator of core/philox.hpp, which device code cannot call.
__device__ inline PhiloxBlock philox_block(const PhiloxLaunch& of, const PhiloxStep& step, std::uint32_t block) {
  PhiloxBlock c{{block, step.low, of.replica, step.trace}};
  std::uint32_t key[2] = {of.key[0], of.key[1]};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(b >> 32) ^ c.word[1] ^ key[0], static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ c.word[3] ^ key[1], static_cast<std::uint32_t>(a)}};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

// Whole number k of a block in [0, 2^24) or [0, 2^53). random_unit brings it to [0, 1); the product is exact.
template <class T>
__device__ T random_integer(const PhiloxBlock& block, int k) {
  if constexpr (sizeof(T) == 4) return static_cast<T>(block.word[k] >> 8);
  else return static_cast<T>(((std::uint64_t{block.word[2 * k]} << 32) | block.word[2 * k + 1]) >> 11);
}
template <class T>
inline constexpr T random_unit = sizeof(T) == 4 ? T(0x1p-24) : T(0x1p-53);

// Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
template <class T>
__device__ void normal_pair(T radius_integer, T angle_integer, T (&pair)[2]) {
  const T radius = ::sqrt(times(T(-2), static_cast<T>(::log(times(plus(radius_integer, T(1)), random_unit<T>)))));
  const T angle = times(angle_integer, random_unit<T> * T(6.283185307179586476925));
  pair[0] = times(radius, static_cast<T>(::cos(angle)));
  pair[1] = times(radius, static_cast<T>(::sin(angle)));
}

template <class T>
__global__ void draw(Distribution distribution, PhiloxLaunch of, const std::uint64_t* number, T* out, std::int64_t count) {
  constexpr int each = 16 / sizeof(T);
  const PhiloxStep step = philox_step(of, *number);
  const std::int64_t blocks = (count + each - 1) / each;
  for (std::int64_t b = first_element(); b < blocks; b += element_stride()) {
    const PhiloxBlock block = philox_block(of, step, static_cast<std::uint32_t>(b));
    for (int k = 0; k < each; k += 2) {
      T pair[2] = {random_integer<T>(block, k), random_integer<T>(block, k + 1)};
      if (distribution == Distribution::normal) normal_pair(pair[0], pair[1], pair);
      else pair[0] = times(pair[0], random_unit<T>), pair[1] = times(pair[1], random_unit<T>);
      for (int j = 0; j < 2; ++j)
        if (b * each + k + j < count) out[b * each + k + j] = pair[j];
    }
  }
}

template <class T>
class RandomExecutable final : public Executable {
 public:
  explicit RandomExecutable(const Random& op)
      : distribution_{op.distribution}, count_{op.type.shape.elements()}, trace_index_{op.trace_index}, of_replica_{op.of_replica} {
    output_layouts.resize(1);
    in_place = {-1};
    reads_step = true;
  }
  void run(const Launch& launch) const override {
    if (count_ == 0) return;
    const auto& c = launch.context;
    const auto replica = of_replica_ < 0 ? c.replica : static_cast<std::uint32_t>(of_replica_);
    const PhiloxLaunch of{replica, trace_index_, {static_cast<std::uint32_t>(c.seed), static_cast<std::uint32_t>(c.seed >> 32)}};
    const std::int64_t per_block = block_threads * static_cast<std::int64_t>(16 / sizeof(T));
    draw<<<blocks_for(count_, per_block), block_threads, 0, stream_of(launch.stream)>>>(distribution_, of, launch.step,
                                                                                        reinterpret_cast<T*>(launch.outputs[0]), count_);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  Distribution distribution_;
  std::int64_t count_;
  std::uint32_t trace_index_;
  std::int32_t of_replica_;
};

inline std::unique_ptr<Executable> make_random(const KernelRequest& request) {
  const auto& op = *request.operation.get<Random>();
  if (op.type.dtype == DType::float32) return std::make_unique<RandomExecutable<float>>(op);
  if (op.type.dtype == DType::float64) return std::make_unique<RandomExecutable<double>>(op);
  return nullptr;
}
inline constexpr Kernel random_kernel{"cuda philox", &make_random};
inline const bool random_registered = register_kernel<Random>(DeviceKind::cuda, KernelTier::reference, &random_kernel);

}  // namespace replicator::detail::cuda
