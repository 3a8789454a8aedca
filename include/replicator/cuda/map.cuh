// SPDX-License-Identifier: Apache-2.0
// The plain kernel of Map on GPUs: any scalar expression over broadcast inputs, in one launch of an interpreter.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expression_plan.hpp>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/parts.cuh>
#include <replicator/cuda/rtc/map.cuh>
#include <replicator/cuda/scalar_program.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::cuda {

template <class T>
__global__ void interpret_map(const __grid_constant__ ScalarProgram program) {
  map_elements<T>(program);
}

// Whoever evaluates the expression.
class MapExecutable : public Executable {
 public:
  MapExecutable(const Map& map, const KernelRequest& request, const MapPlan& plan) {
    input_layouts = plan.inputs;
    output_layouts.assign(request.outputs.size(), plan.layout);
    find_in_place(map, request);
  }

 private:
  // A thread reads all that its elements need before it writes them: an input of the domain's shape may be written over.
  void find_in_place(const Map& map, const KernelRequest& request) {
    std::vector<bool> taken(request.inputs.size());
    for (const auto& output : request.outputs) {
      in_place.push_back(-1);
      for (std::size_t i = 0; i < request.inputs.size() && in_place.back() < 0; ++i)
        if (!taken[i] && request.inputs[i].dtype == output.dtype && request.inputs[i].shape == map.domain) {
          taken[i] = true;
          in_place.back() = static_cast<int>(i);
        }
    }
  }
};

class InterpretedMap final : public MapExecutable {
 public:
  InterpretedMap(const Map& map, const KernelRequest& request, const MapPlan& plan, const ScalarProgram& program)
      : MapExecutable{map, request, plan}, compute_{map.expression->compute}, program_{program} {}

  void run(const Launch& launch) const override {
    if (program_.elements == 0) return;
    visit_compute(compute_, [&]<class T>() {
      interpret_map<T><<<blocks_for(program_.elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
          bind(program_, launch.inputs, launch.outputs));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  DType compute_;
  ScalarProgram program_;
};

inline std::unique_ptr<Executable> make_interpreted_map(const KernelRequest& request) {
  const auto& map = *request.operation.get<Map>();
  const auto plan = plan_of(map, request);
  const auto program = compile_scalar_program(*map.expression, plan.operands, map.dtypes);
  if (program) return std::make_unique<InterpretedMap>(map, request, plan, *program);
  const auto single = [&](Expression part, std::size_t o) {
    return Map{std::make_shared<const Expression>(std::move(part)), map.domain, {map.dtypes[o]}};
  };
  return make_parts(request, plan.inputs, *map.expression, single, &make_interpreted_map);
}
inline constexpr Kernel interpreted_map{"cuda interpreter", &make_interpreted_map};
inline const bool interpreted_map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::reference, &interpreted_map);

}  // namespace replicator::cuda
