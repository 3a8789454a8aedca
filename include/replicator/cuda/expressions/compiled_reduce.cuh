// SPDX-License-Identifier: Apache-2.0
// The kernel of Reduce and FusedReduce on GPUs by NVRTC, which compiles the expressions when the step is planned. It gives the
// interpreter's bits. The thread that has an output element's results computes the epilogue.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <replicator/cuda/expressions/compiled_kernels.cuh>
#include <replicator/cuda/expressions/expression_source.hpp>
#include <replicator/cuda/expressions/reduce.cuh>

namespace replicator::detail::cuda {

class CompiledReduce final : public ReduceExecutable {
 public:
  CompiledReduce(const Reduce& reduce, const KernelRequest& request, const ReducePlan& plan, ExpressionSource source, const CompiledKernels& kernels)
      : ReduceExecutable{reduce, request, plan}, words_{std::move(source.words)}, kernel_{kernels.kernel("compiled_reduce")}, threads_{threads(source.lanes)} {
    visit_compute(reduce.expression->compute, [&]<class T>() {
      const T identity = identity_of<T>(reduce.kind);
      std::memcpy(&identity_, &identity, sizeof identity);
    });
  }

 protected:
  void launch_kernel(const Launch& launch) const override {
    BoundProgram program{words_, *this, launch.inputs, launch.outputs};
    std::uint64_t node = identity_;
    ReduceExtents around = extents();
    void *partials = launch.scratch, *arrived = counters(launch);
    launch_compiled(kernel_, blocks(), threads_, launch, {program.argument(), &node, &around, &partials, &arrived});
  }

 private:
  std::vector<std::uint64_t> words_;
  cudaKernel_t kernel_;
  unsigned threads_;
  std::uint64_t identity_ = 0;  // its first bytes are a value of the compute type
};

inline std::unique_ptr<Executable> make_compiled(const Reduce& reduce, const KernelRequest& request, const ReducePlan& plan, std::optional<ExpressionSource> source) {
  if (!source) return nullptr;
  const auto* kernels = ExpressionCompiler::instance().compile(source->text);
  return kernels ? std::make_unique<CompiledReduce>(reduce, request, plan, std::move(*source), *kernels) : nullptr;
}

// Null in the same cases as make_compiled_map.
inline std::unique_ptr<Executable> make_compiled_reduce(const KernelRequest& request) {
  const auto& reduce = *request.operation.get<Reduce>();
  if (reduce.domain.elements() == 0) return nullptr;
  const auto plan = plan_of(reduce, request);
  return make_compiled(reduce, request, plan, reduce_source(reduce.kind, *reduce.expression, plan, reduce.dtypes));
}
inline constexpr Kernel compiled_reduce{"NVRTC", &make_compiled_reduce};
inline const bool compiled_reduce_registered = register_kernel<Reduce>(DeviceKind::cuda, KernelTier::compiled, &compiled_reduce);

inline std::unique_ptr<Executable> make_compiled_fused_reduce(const KernelRequest& request) {
  const auto& fused = *request.operation.get<FusedReduce>();
  const auto& reduce = fused.reduce;
  if (reduce.domain.elements() == 0) return nullptr;
  const auto plan = plan_of(fused, request);
  return make_compiled(reduce, request, plan, reduce_source(reduce.kind, *reduce.expression, plan, *fused.epilogue, fused.dtypes));
}
inline constexpr Kernel compiled_fused_reduce{"NVRTC", &make_compiled_fused_reduce};
inline const bool compiled_fused_reduce_registered = register_kernel<FusedReduce>(DeviceKind::cuda, KernelTier::compiled, &compiled_fused_reduce);

}  // namespace replicator::detail::cuda
