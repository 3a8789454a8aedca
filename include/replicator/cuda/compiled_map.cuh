// SPDX-License-Identifier: Apache-2.0
// Map on GPUs, its expression compiled by NVRTC when the step is planned.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/compiled_kernels.cuh>
#include <replicator/cuda/expression_source.hpp>
#include <replicator/cuda/map.cuh>

namespace replicator::cuda {

class CompiledMap final : public MapExecutable {
 public:
  CompiledMap(const Map& map, const KernelRequest& request, const MapPlan& plan, ExpressionSource source, const CompiledKernels& kernels)
      : MapExecutable{map, request, plan}, words_{std::move(source.words)}, kernel_{kernels.kernel("compiled_map")},
        blocks_{blocks_for(map.domain.elements(), std::int64_t{block_threads} * source.at_once)} {}

  void run(const Launch& launch) const override {
    BoundProgram program{words_, input_layouts.size(), output_layouts.size(), launch};
    launch_compiled(kernel_, blocks_, block_threads, launch, {program.argument()});
  }

 private:
  std::vector<std::uint64_t> words_;
  cudaKernel_t kernel_;
  unsigned blocks_;
};

// Null, so that the interpreter is asked, where there is nothing to compute or it cannot be compiled.
inline std::unique_ptr<Executable> make_compiled_map(const KernelRequest& request) {
  const auto& map = *request.operation.get<Map>();
  if (map.domain.elements() == 0) return nullptr;
  const auto plan = plan_of(map, request);
  auto source = map_source(*map.expression, plan.operands, map.dtypes);
  if (!source) return nullptr;
  const auto* kernels = ExpressionCompiler::instance().compile(source->text);
  return kernels ? std::make_unique<CompiledMap>(map, request, plan, std::move(*source), *kernels) : nullptr;
}
inline constexpr Kernel compiled_map{"NVRTC", &make_compiled_map};
inline const bool compiled_map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::library, &compiled_map);

}  // namespace replicator::cuda
