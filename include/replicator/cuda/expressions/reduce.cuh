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
__global__ void interpret_blocks(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials, unsigned* counters) {
  reduce_blocks(program, combine, extents, partials, counters);
}
template <class T>
__global__ void __launch_bounds__(ReduceExtents::columns* ReduceExtents::rows)
    interpret_columns(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials, unsigned* counters) {
  reduce_columns(program, combine, extents, partials, counters);
}

// Base class of Reduce on GPUs, for compiled and for interpreted expressions. It is one launch. Where an output element has several
// blocks, their results are in scratch memory, and the last block of threads combines them (rtc/partials.cuh).
class ReduceExecutable : public Executable {
 public:
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request, const ReducePlan& plan)
      : way_{plan.way}, extents_{plan.extents}, dtypes_{reduce.dtypes} {
    input_layouts = plan.inputs;
    output_layouts.resize(request.outputs.size());
    in_place.assign(request.outputs.size(), -1);
    if (extents_.kept == 0 || extents_.blocks < 2) return;
    scratch_bytes = static_cast<std::size_t>(extents_.kept * extents_.blocks) * size_of(reduce.expression->compute) * reduce.dtypes.size();
    table_bytes = static_cast<std::size_t>(tiles()) * sizeof(unsigned);
  }

  // The counters of is_last_block.
  std::vector<std::byte> table(const std::byte* const*, std::byte* const*) const final { return std::vector<std::byte>(table_bytes); }

  void run(const Launch& launch) const final {
    if (extents_.kept == 0) return;
    if (extents_.reduced == 0) return clear(launch);
    launch_kernel(launch);
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 protected:
  virtual void launch_kernel(const Launch& launch) const = 0;  // only called where there is something to reduce

  ReduceWay way() const { return way_; }
  const ReduceExtents& extents() const { return extents_; }
  // A thread has `lanes` chains.
  unsigned blocks() const { return way_ == ReduceWay::few ? blocks_for(extents_.kept, block_threads) : blocks_for(tiles() * extents_.blocks, 1); }
  unsigned threads(int lanes = 1) const {
    const int chains = way_ == ReduceWay::columns ? ReduceExtents::columns * ReduceExtents::rows : block_threads;
    return static_cast<unsigned>(chains / lanes);
  }
  // Kernels leave these as they found them.
  static unsigned* counters(const Launch& launch) { return const_cast<unsigned*>(reinterpret_cast<const unsigned*>(launch.table)); }

 private:
  // Blocks of threads that each take a block of all their output elements.
  std::int64_t tiles() const {
    return way_ == ReduceWay::columns ? (extents_.kept + ReduceExtents::columns - 1) / ReduceExtents::columns : extents_.kept;
  }
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
    if (way() == ReduceWay::few) interpret_few<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents());
    else if (way() == ReduceWay::columns) interpret_columns<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents(), partials, counters(launch));
    else interpret_blocks<T><<<blocks(), threads(), 0, stream>>>(program, combine, extents(), partials, counters(launch));
  }

 protected:
  void launch_kernel(const Launch& launch) const override {
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
