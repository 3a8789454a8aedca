// SPDX-License-Identifier: Apache-2.0
// top_k on GPUs, a line along the axis for each thread, which walks it k times: the order is total, so nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cuda/arithmetic.cuh>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/around_axis.hpp>
#include <replicator/ops/top_k.hpp>

namespace replicator::cuda {

// NaN first, then descending, then by place.
template <class T>
__device__ bool ranked_before(T a, std::int64_t a_at, T b, std::int64_t b_at) {
  const bool a_is_nan = a != a, b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && a != b) return a > b;
  return a_at < b_at;
}

template <class T>
__global__ void find_largest(AroundAxis around, DType dtype, std::int64_t k, const std::byte* x, std::byte* values, std::int32_t* places) {
  for (std::int64_t line = first_element(); line < around.outer * around.inner; line += element_stride()) {
    const std::int64_t from = line / around.inner * around.extent * around.inner + line % around.inner;
    const std::int64_t to = line / around.inner * k * around.inner + line % around.inner;
    std::int64_t last = -1;  // taken before
    T last_value{};
    for (std::int64_t i = 0; i < k; ++i) {
      std::int64_t best = -1;
      T best_value{};
      for (std::int64_t at = 0; at < around.extent; ++at) {
        const T value = load<T>(dtype, x, from + at * around.inner);
        if (last >= 0 && !ranked_before(last_value, last, value, at)) continue;
        if (best >= 0 && !ranked_before(value, at, best_value, best)) continue;
        best = at;
        best_value = value;
      }
      last = best;
      last_value = best_value;
      store(dtype, values, to + i * around.inner, best_value);
      places[to + i * around.inner] = static_cast<std::int32_t>(best);
    }
  }
}

class TopKExecutable final : public Executable {
 public:
  TopKExecutable(std::int64_t k, const AroundAxis& around, DType dtype) : k_{k}, around_{around}, dtype_{dtype} {
    input_layouts.resize(1);
    output_layouts.resize(2);
    in_place = {-1, -1};
  }
  void run(const Launch& launch) const override {
    const std::int64_t lines = around_.outer * around_.inner;
    if (lines == 0) return;
    visit_compute(compute_type(dtype_), [&]<class T>() {
      find_largest<T><<<blocks_for(lines, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
          around_, dtype_, k_, launch.inputs[0], launch.outputs[0], reinterpret_cast<std::int32_t*>(launch.outputs[1]));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  std::int64_t k_;
  AroundAxis around_;
  DType dtype_;
};

inline std::unique_ptr<Executable> make_top_k(const KernelRequest& request) {
  const auto& op = *request.operation.get<TopK>();
  const auto& x = request.inputs[0];
  return std::make_unique<TopKExecutable>(op.k, around_axis(x.shape, static_cast<std::size_t>(op.axis)), x.dtype);
}
inline constexpr Kernel top_k_kernel{"cuda top_k", &make_top_k};
inline const bool top_k_registered = register_kernel<TopK>(DeviceKind::cuda, KernelTier::reference, &top_k_kernel);

}  // namespace replicator::cuda
