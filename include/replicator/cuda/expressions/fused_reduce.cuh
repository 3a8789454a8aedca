// SPDX-License-Identifier: Apache-2.0
// The reference kernel of FusedReduce on GPUs: the interpreter reduces, and then runs the epilogue in a launch of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <replicator/cuda/expressions/map.cuh>
#include <replicator/cuda/expressions/reduce.cuh>
#include <replicator/graph/fused_reduce.hpp>

namespace replicator::detail::cuda {

// The results of the reduction lie in scratch memory, one after the other at multiples of 64 bytes.
class InterpretedFusedReduce final : public Executable {
 public:
  InterpretedFusedReduce(std::unique_ptr<Executable> reduce, std::unique_ptr<Executable> map, std::span<const TensorType> results)
      : reduce_{std::move(reduce)}, map_{std::move(map)} {
    input_layouts = reduce_->input_layouts;
    input_layouts.insert(input_layouts.end(), map_->input_layouts.begin() + static_cast<std::ptrdiff_t>(results.size()), map_->input_layouts.end());
    output_layouts = map_->output_layouts;
    in_place.assign(output_layouts.size(), -1);
    for (const auto& result : results) {
      offsets_.push_back(results_bytes_);
      results_bytes_ += (result.bytes() + 63) / 64 * 64;
    }
    scratch_bytes = results_bytes_ + std::max(reduce_->scratch_bytes, map_->scratch_bytes);
    table_bytes = reduce_->table_bytes;
  }

  // Maps have none.
  std::vector<std::byte> table(const std::byte* const* inputs, std::byte* const* outputs) const override { return reduce_->table(inputs, outputs); }

  void run(const Launch& launch) const override {
    std::vector<std::byte*> results;
    for (const auto offset : offsets_) results.push_back(launch.scratch + offset);
    std::vector<const std::byte*> operands{results.begin(), results.end()};
    operands.insert(operands.end(), launch.inputs + reduce_->input_layouts.size(), launch.inputs + input_layouts.size());
    Launch part = launch;
    part.scratch = launch.scratch + results_bytes_;
    part.outputs = results.data();
    reduce_->run(part);
    part.inputs = operands.data();
    part.outputs = launch.outputs;
    map_->run(part);
  }

 private:
  std::unique_ptr<Executable> reduce_, map_;
  std::vector<std::size_t> offsets_;
  std::size_t results_bytes_ = 0;
};

inline std::unique_ptr<Executable> make_interpreted_fused_reduce(const KernelRequest& request) {
  const auto& fused = *request.operation.get<FusedReduce>();
  const AnyOperation reduce{fused.reduce};
  const auto results = fused.results(request.inputs);
  auto reduction = make_interpreted_reduce(reduction_of(fused, request, reduce, results));
  const Shape domain{results[0].shape.elements()};
  std::vector<TensorType> inputs{results.size(), {results[0].dtype, domain}}, outputs;
  for (const auto& input : request.inputs.subspan(fused.reduced_inputs())) inputs.push_back({input.dtype, input.shape.elements() == 1 ? Shape{} : domain});
  for (const auto dtype : fused.dtypes) outputs.push_back({dtype, domain});
  const AnyOperation map{Map{fused.epilogue, domain, fused.dtypes}};
  const std::vector<Layout> plain(inputs.size());
  auto arithmetic = make_interpreted_map({map, inputs, outputs, plain, request.threads});
  if (!reduction || !arithmetic) return nullptr;
  return std::make_unique<InterpretedFusedReduce>(std::move(reduction), std::move(arithmetic), results);
}
inline constexpr Kernel interpreted_fused_reduce{interpreter_name, &make_interpreted_fused_reduce};
inline const bool interpreted_fused_reduce_registered = register_kernel<FusedReduce>(DeviceKind::cuda, KernelTier::reference, &interpreted_fused_reduce);

}  // namespace replicator::detail::cuda
