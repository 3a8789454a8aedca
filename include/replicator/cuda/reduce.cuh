// SPDX-License-Identifier: Apache-2.0
// The kernel of Reduce on GPUs. The order depends on shape, axes and layout only: the reduced elements of an output, in the order in
// which they lie in memory, are cut into blocks of 4,096; a fixed number of threads takes a block's elements in turns, and a tree
// their results (CUB's, or ours where a block of threads takes neighbouring outputs); a binary counter's tree the blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <cub/block/block_reduce.cuh>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/parts.cuh>
#include <replicator/cuda/scalar_program.cuh>
#include <replicator/graph/domain_layout.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::cuda {

// The domain is numbered with the kept axes first: element j of output element k is k * reduced + j.
struct ReduceExtents {
  static constexpr std::int64_t block = 4096;  // reduced elements
  static constexpr std::int64_t few = 32;      // so many one thread takes alone
  static constexpr int columns = 32, lanes = 16;  // of a block of threads, where neighbouring outputs are neighbours in memory
  static constexpr std::int64_t least_columns = 8;
  std::int64_t kept = 1, reduced = 1, blocks = 1;
};

// A thread for each output element.
template <class T>
__global__ void reduce_few(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents) {
  T registers[ScalarProgram::most_registers];
  for (std::int64_t k = first_element(); k < extents.kept; k += element_stride()) {
    T sums[ScalarProgram::most_outputs];
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (std::int64_t j = 0; j < extents.reduced; ++j) {
      program.evaluate(k * extents.reduced + j, registers);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], registers[program.outputs[o].value]);
    }
    for (int o = 0; o < program.output_count; ++o) store(program.outputs[o].dtype, program.outputs[o].data, k, sums[o]);
  }
}

// A block of threads for each block of an output element. partials[o][k * blocks + b]
template <class T>
__global__ void reduce_blocks(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials) {
  using BlockReduce = cub::BlockReduce<T, block_threads>;
  __shared__ typename BlockReduce::TempStorage storage;
  T registers[ScalarProgram::most_registers];
  const std::int64_t units = extents.kept * extents.blocks;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t k = unit / extents.blocks, b = unit - k * extents.blocks;
    const std::int64_t end = ::min((b + 1) * ReduceExtents::block, extents.reduced);
    T sums[ScalarProgram::most_outputs];
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (std::int64_t j = b * ReduceExtents::block + threadIdx.x; j < end; j += block_threads) {
      program.evaluate(k * extents.reduced + j, registers);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], registers[program.outputs[o].value]);
    }
    for (int o = 0; o < program.output_count; ++o) {
      const T sum = BlockReduce{storage}.Reduce(sums[o], combine);
      __syncthreads();  // the storage is used again
      if (threadIdx.x == 0) partials[o * units + unit] = sum;
    }
  }
}

// A block of threads for a block of 32 neighbouring output elements: element j of a block goes to lane j mod 16, a tree takes the lanes.
template <class T>
__global__ void reduce_columns(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, T* partials) {
  constexpr int columns = ReduceExtents::columns, lanes = ReduceExtents::lanes;
  __shared__ T shared[lanes][columns];
  T registers[ScalarProgram::most_registers];
  const int column = static_cast<int>(threadIdx.x) % columns, lane = static_cast<int>(threadIdx.x) / columns;
  const std::int64_t groups = (extents.kept + columns - 1) / columns;
  for (std::int64_t unit = blockIdx.x; unit < groups * extents.blocks; unit += gridDim.x) {
    const std::int64_t b = unit / groups, k = (unit - b * groups) * columns + column;
    const std::int64_t end = k < extents.kept ? ::min((b + 1) * ReduceExtents::block, extents.reduced) : 0;
    T sums[ScalarProgram::most_outputs];
    for (int o = 0; o < program.output_count; ++o) sums[o] = combine.identity;
    for (std::int64_t j = b * ReduceExtents::block + lane; j < end; j += lanes) {
      program.evaluate(k * extents.reduced + j, registers);
      for (int o = 0; o < program.output_count; ++o) sums[o] = combine(sums[o], registers[program.outputs[o].value]);
    }
    for (int o = 0; o < program.output_count; ++o) {
      shared[lane][column] = sums[o];
      for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[lane][column] = combine(shared[lane][column], shared[lane + half][column]);
      }
      if (lane == 0 && k < extents.kept) partials[(o * extents.kept + k) * extents.blocks + b] = shared[0][column];
      __syncthreads();  // the memory is used again
    }
  }
}

// The binary counter's tree over the blocks, a thread for each output element.
template <class T>
__global__ void reduce_tree(const __grid_constant__ ScalarProgram program, Combine<T> combine, ReduceExtents extents, const T* partials) {
  for (std::int64_t k = first_element(); k < extents.kept; k += element_stride())
    for (int o = 0; o < program.output_count; ++o) {
      const T* blocks = partials + (o * extents.kept + k) * extents.blocks;
      T stack[64];
      int depth = 0;
      for (std::int64_t b = 0; b < extents.blocks; ++b) {
        T sum = blocks[b];
        for (std::int64_t turns = b; turns & 1; turns >>= 1) sum = combine(stack[--depth], sum);
        stack[depth++] = sum;
      }
      T sum = stack[--depth];
      while (depth > 0) sum = combine(stack[--depth], sum);
      store(program.outputs[o].dtype, program.outputs[o].data, k, sum);
    }
}

class ReduceExecutable final : public Executable {
 public:
  // `columns`: neighbouring output elements are made of neighbours in memory.
  ReduceExecutable(const Reduce& reduce, const KernelRequest& request, std::vector<Layout> layouts, const ReduceExtents& extents, bool columns,
                   const ScalarProgram& program)
      : kind_{reduce.kind}, compute_{reduce.expression->compute}, extents_{extents}, columns_{columns}, program_{program} {
    input_layouts = std::move(layouts);
    output_layouts.resize(request.outputs.size());
    in_place.assign(request.outputs.size(), -1);
    if (extents_.kept > 0 && extents_.reduced > ReduceExtents::few)
      scratch_bytes = static_cast<std::size_t>(extents_.kept * extents_.blocks) * size_of(compute_) * request.outputs.size();
  }

  void run(const Launch& launch) const override {
    if (extents_.kept == 0) return;
    if (extents_.reduced == 0) return clear(launch);
    const auto program = bind(program_, launch.inputs, launch.outputs);
    visit_compute(compute_, [&]<class T>() { this->template launch_kernels<T>(program, launch); });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

  template <class T>
  void launch_kernels(const ScalarProgram& program, const Launch& launch) const {
    const cudaStream_t stream = stream_of(launch.stream);
    const Combine<T> combine{kind_};
    const unsigned per_output = blocks_for(extents_.kept, block_threads);
    if (extents_.reduced <= ReduceExtents::few) {
      reduce_few<T><<<per_output, block_threads, 0, stream>>>(program, combine, extents_);
      return;
    }
    T* partials = reinterpret_cast<T*>(launch.scratch);
    if (columns_) {
      constexpr int threads = ReduceExtents::columns * ReduceExtents::lanes;
      const std::int64_t groups = (extents_.kept + ReduceExtents::columns - 1) / ReduceExtents::columns;
      reduce_columns<T><<<blocks_for(groups * extents_.blocks, 1), threads, 0, stream>>>(program, combine, extents_, partials);
    } else {
      reduce_blocks<T><<<blocks_for(extents_.kept * extents_.blocks, 1), block_threads, 0, stream>>>(program, combine, extents_, partials);
    }
    reduce_tree<T><<<per_output, block_threads, 0, stream>>>(program, combine, extents_, partials);
  }

 private:
  // A sum over nothing is 0, as the CPU's, where that of identities would be -0.
  void clear(const Launch& launch) const {
    for (int o = 0; o < program_.output_count; ++o) {
      const std::size_t bytes = static_cast<std::size_t>(extents_.kept) * size_of(program_.outputs[o].dtype);
      REPLICATOR_CUDA_CHECK(cudaMemsetAsync(launch.outputs[o], 0, bytes, stream_of(launch.stream)));
    }
  }

  ReduceKind kind_;
  DType compute_;
  ReduceExtents extents_;
  bool columns_;
  ScalarProgram program_;
};

inline std::unique_ptr<Executable> make_reduce(const KernelRequest& request) {
  const auto& reduce = *request.operation.get<Reduce>();
  const auto is_reduced = [&](std::size_t axis) {
    return std::find(reduce.axes.begin(), reduce.axes.end(), static_cast<std::int64_t>(axis)) != reduce.axes.end();
  };
  const Layout layout = domain_layout(request, reduce.domain);
  const auto layouts = demanded_layouts(request, reduce.domain, layout);
  std::vector<std::size_t> kept, axes;  // those in the order of the result, these in that of memory
  ReduceExtents extents;
  for (std::size_t axis = 0; axis < reduce.domain.rank(); ++axis) {
    (is_reduced(axis) ? extents.reduced : extents.kept) *= reduce.domain[axis];
    if (!is_reduced(axis)) kept.push_back(axis);
  }
  std::optional<std::size_t> innermost;
  for (const auto axis : storage_order(layout, reduce.domain)) {
    if (is_reduced(axis)) axes.push_back(axis);
    if (reduce.domain[axis] > 1) innermost = axis;
  }
  while (!kept.empty() && reduce.domain[kept.back()] == 1) kept.pop_back();
  const bool columns = innermost && !kept.empty() && kept.back() == *innermost && reduce.domain[*innermost] >= ReduceExtents::least_columns;
  if (extents.kept > 0 && extents.reduced == 0 && reduce.kind != ReduceKind::sum)
    throw BuildError{"the " + std::string{name_of(reduce.kind)} + " over no elements was asked for, of the shape " + reduce.domain.text() +
                     ": give the reduced axes an extent of at least 1"};
  extents.blocks = (extents.reduced + ReduceExtents::block - 1) / ReduceExtents::block;
  kept.insert(kept.end(), axes.begin(), axes.end());
  const auto program = compile_scalar_program(*reduce.expression, request.inputs, layouts, reduce.domain, kept, reduce.dtypes);
  if (program) return std::make_unique<ReduceExecutable>(reduce, request, layouts, extents, columns, *program);
  const auto single = [&](Expression part, std::size_t o) {
    return Reduce{reduce.kind, std::make_shared<const Expression>(std::move(part)), reduce.axes, reduce.domain, {reduce.dtypes[o]}};
  };
  return make_parts(request, layouts, *reduce.expression, single, &make_reduce);
}
inline constexpr Kernel reduce_kernel{"cuda blocks", &make_reduce};
inline const bool reduce_registered = register_kernel<Reduce>(DeviceKind::cuda, KernelTier::reference, &reduce_kernel);

}  // namespace replicator::cuda
