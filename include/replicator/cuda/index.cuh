// SPDX-License-Identifier: Apache-2.0
// argmax on GPUs, a line along the axis for each thread.
#pragma once

#include <cstdint>
#include <memory>

#include <replicator/cuda/arithmetic.cuh>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/around_axis.hpp>
#include <replicator/ops/index.hpp>

namespace replicator::cuda {

// The first place of several; a NaN wins.
template <class T>
__global__ void find_maxima(AroundAxis around, DType dtype, const std::byte* x, std::int32_t* places) {
  for (std::int64_t i = first_element(); i < around.outer * around.inner; i += element_stride()) {
    const std::int64_t begin = i / around.inner * around.extent * around.inner + i % around.inner;
    std::int64_t best = 0;
    T so_far = load<T>(dtype, x, begin);
    for (std::int64_t k = 1; k < around.extent; ++k) {
      const T candidate = load<T>(dtype, x, begin + k * around.inner);
      if (!(candidate > so_far) && !(candidate != candidate && so_far == so_far)) continue;
      best = k;
      so_far = candidate;
    }
    places[i] = static_cast<std::int32_t>(best);
  }
}

class ArgMaxExecutable final : public Executable {
 public:
  ArgMaxExecutable(const AroundAxis& around, DType dtype) : around_{around}, dtype_{dtype} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const std::int64_t lines = around_.outer * around_.inner;
    if (lines == 0) return;
    visit_compute(compute_type(dtype_), [&]<class T>() {
      find_maxima<T><<<blocks_for(lines, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
          around_, dtype_, launch.inputs[0], reinterpret_cast<std::int32_t*>(launch.outputs[0]));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  AroundAxis around_;
  DType dtype_;
};

inline std::unique_ptr<Executable> make_argmax(const KernelRequest& request) {
  const auto& x = request.inputs[0];
  return std::make_unique<ArgMaxExecutable>(around_axis(x.shape, static_cast<std::size_t>(request.operation.get<ArgMax>()->axis)), x.dtype);
}
inline constexpr Kernel argmax_kernel{"cuda argmax", &make_argmax};
inline const bool argmax_registered = register_kernel<ArgMax>(DeviceKind::cuda, KernelTier::reference, &argmax_kernel);

}  // namespace replicator::cuda
