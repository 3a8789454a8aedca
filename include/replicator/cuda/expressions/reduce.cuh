// SPDX-License-Identifier: Apache-2.0
// The reference kernel of Reduce on GPUs, with an interpreter of its expression. rtc/reduction.cuh defines the order of combination.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/cuda/expressions/parts.cuh>
#include <replicator/cuda/expressions/scalar_program.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/rtc/reduction.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cuda {

template <class T>
__global__ void interpret_few(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents) {
  reduce_few<T>(program, combine, extents);
}
template <class T>
__global__ void interpret_blocks(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials) {
  reduce_blocks(program, combine, extents, partials);
}
template <class T>
__global__ void __launch_bounds__(ReduceExtents::columns* ReduceExtents::lanes)
    interpret_columns(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials) {
  reduce_columns(program, combine, extents, partials);
}
template <class T>
__global__ void interpret_tree(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials) {
  reduce_tree(program, combine, extents, partials);
}

// Base class of Reduce on GPUs, for compiled and for interpreted expressions.
class ReduceExecutable : public Executable {
 public:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request, const ReducePlan& plan)
      : way_{plan.way}, extents_{plan.extents}, dtypes_{reduce.dtypes} {
    input_layouts = plan.inputs;
    output_layouts.resize(request.outputs.size());
    in_place.assign(request.outputs.size(), -1);
    if (extents_.kept > 0 && way_ != ReduceWay::few)
      scratch_bytes = static_cast<std::size_t>(extents_.kept * extents_.blocks) * size_of(reduce.expression->compute) * request.outputs.size();
  }

  void run(const Launch& launch) const final {
    if (extents_.kept == 0) return;
    if (extents_.reduced == 0) return clear(launch);
    launch_kernels(launch);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 protected:
  virtual void launch_kernels(const Launch& launch) const = 0;  // only called where there is something to reduce

  // Unless the way is `few`, the first kernel leaves the results of blocks in the scratch memory. The tree then writes the outputs.
  ReduceWay way() const { return way_; }
  const ReduceExtents& extents() const { return extents_; }
  // Blocks and threads of the first kernel, and blocks of the tree's kernel.
  unsigned blocks() const {
    if (way_ == ReduceWay::few) return blocks_of_tree();
    const std::int64_t groups = way_ == ReduceWay::blocks ? extents_.kept : (extents_.kept + ReduceExtents::columns - 1) / ReduceExtents::columns;
    return blocks_for(groups * extents_.blocks, 1);
  }
  unsigned threads() const { return way_ == ReduceWay::columns ? ReduceExtents::columns * ReduceExtents::lanes : block_threads; }
  unsigned blocks_of_tree() const { return blocks_for(extents_.kept, block_threads); }

 private:
  // A sum of no elements is 0, as on the CPU. A sum of identities would be -0.
  void clear(const Launch& launch) const {
    for (std::size_t o = 0; o < dtypes_.size(); ++o) {
      const std::size_t bytes = static_cast<std::size_t>(extents_.kept) * size_of(dtypes_[o]);
      REPLICATOR_CUDA_CHECK(cudaMemsetAsync(launch.outputs[o], 0, bytes, stream_of(launch.stream)));
    }
  }

  ReduceWay way_;
  ReduceExtents extents_;
  std::vector<DType> dtypes_;
};

class InterpretedReduce final : public ReduceExecutable {
 public:
  InterpretedReduce(const Reduce& reduce, const KernelRequest& request, const ReducePlan& plan, const ScalarProgram& program)
      : ReduceExecutable{reduce, request, plan}, kind_{reduce.kind}, compute_{reduce.expression->compute}, program_{program} {}

  template <class T>
  void launch_as(const ScalarProgram& program, const Launch& launch) const {
    const cudaStream_t stream = stream_of(launch.stream);
    const Combine<T> combine{kind_};
    T* partials = reinterpret_cast<T*>(launch.scratch);
    if (way() == ReduceWay::few) {
      interpret_few<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents());
      return;
    }
    if (way() == ReduceWay::columns) interpret_columns<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents(), partials);
    else interpret_blocks<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents(), partials);
    interpret_tree<T><<<blocks_of_tree(), block_threads, 0, stream>>>(program, combine, extents(), partials);
  }

 protected:
  void launch_kernels(const Launch& launch) const override {
    const auto program = bind(program_, launch.inputs, launch.outputs);
    visit_compute(compute_, [&]<class T>() { this->template launch_as<T>(program, launch); });
  }

 private:
  ReduceKind kind_;
  DType compute_;
  ScalarProgram program_;
};

inline std::unique_ptr<Executable> make_interpreted_reduce(const KernelRequest& request) {
  const auto& reduce = *request.operation.get<Reduce>();
  const auto plan = plan_of(reduce, request);
  const auto program = compile_scalar_program(*reduce.expression, plan.operands, reduce.dtypes);
  if (program) return std::make_unique<InterpretedReduce>(reduce, request, plan, *program);
  const auto single = [&](Expression part, std::size_t o) {
    return Reduce{reduce.kind, std::make_shared<const Expression>(std::move(part)), reduce.axes, reduce.domain, {reduce.dtypes[o]}};
  };
  return make_parts(request, plan.inputs, *reduce.expression, single, &make_interpreted_reduce);
}
inline constexpr Kernel interpreted_reduce{"cuda interpreter", &make_interpreted_reduce};
inline const bool interpreted_reduce_registered = register_kernel<Reduce>(DeviceKind::cuda, KernelTier::reference, &interpreted_reduce);

}  // namespace replicator::detail::cuda
