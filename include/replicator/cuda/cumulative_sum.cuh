// SPDX-License-Identifier: Apache-2.0
// The kernel of cumulative_sum on GPUs: one thread per line along the axis. It adds in the CPU's order, so it gives the CPU's
// bits. A scan by many threads, such as CUB's, groups the terms differently and so rounds differently.
#pragma once

#include <cstdint>
#include <memory>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/arithmetic.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/cumulative_sum.hpp>
#include <replicator/ops/movement/around_axis.hpp>

namespace replicator::detail::cuda {

template <class Stored>
__global__ void add_up_lines(AroundAxis around, bool exclusive, bool reverse, const Stored* x, Stored* y) {
  const std::int64_t step = reverse ? -around.inner : around.inner;
  for (std::int64_t line = first_element(); line < around.outer * around.inner; line += element_stride()) {
    std::int64_t at = line / around.inner * around.extent * around.inner + line % around.inner;
    if (reverse) at += (around.extent - 1) * around.inner;
    compute_of<Stored> sum = exclusive ? compute_of<Stored>{} : value_of(x[at]);
    y[at] = stored<Stored>(sum);
    for (std::int64_t k = 1; k < around.extent; ++k, at += step) {
      sum = plus(sum, value_of(x[exclusive ? at : at + step]));
      y[at + step] = stored<Stored>(sum);
    }
  }
}

template <class Stored>
class CumulativeSumExecutable final : public Executable {
 public:
  CumulativeSumExecutable(const CumulativeSum& op, const AroundAxis& around) : exclusive_{op.exclusive}, reverse_{op.reverse}, around_{around} {
    input_layouts.resize(1);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const std::int64_t lines = around_.outer * around_.inner;
    if (lines == 0 || around_.extent == 0) return;
    add_up_lines<<<blocks_for(lines, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
        around_, exclusive_, reverse_, reinterpret_cast<const Stored*>(launch.inputs[0]), reinterpret_cast<Stored*>(launch.outputs[0]));
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  bool exclusive_, reverse_;
  AroundAxis around_;
};

inline std::unique_ptr<Executable> make_cumulative_sum(const KernelRequest& request) {
  const auto& op = *request.operation.get<CumulativeSum>();
  const auto around = around_axis(request.inputs[0].shape, static_cast<std::size_t>(op.axis));
  switch (request.inputs[0].dtype) {
    case DType::float32: return std::make_unique<CumulativeSumExecutable<float>>(op, around);
    case DType::float64: return std::make_unique<CumulativeSumExecutable<double>>(op, around);
    case DType::int32: return std::make_unique<CumulativeSumExecutable<std::int32_t>>(op, around);
    case DType::int64: return std::make_unique<CumulativeSumExecutable<std::int64_t>>(op, around);
    case DType::bfloat16: return std::make_unique<CumulativeSumExecutable<Bfloat16Word>>(op, around);
    default: return nullptr;
  }
}
inline constexpr Kernel cumulative_sum_kernel{"cuda cumulative_sum", &make_cumulative_sum};
inline const bool cumulative_sum_registered = register_kernel<CumulativeSum>(DeviceKind::cuda, KernelTier::reference, &cumulative_sum_kernel);

}  // namespace replicator::detail::cuda
