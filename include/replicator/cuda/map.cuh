// SPDX-License-Identifier: Apache-2.0
// The kernel of Map on GPUs: any scalar expression over broadcast inputs, in one launch.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <replicator/cuda/check.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/cuda/parts.cuh>
#include <replicator/cuda/scalar_program.cuh>
#include <replicator/graph/domain_layout.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::cuda {

template <class T>
__global__ void map_elements(const __grid_constant__ ScalarProgram program) {
  T registers[ScalarProgram::most_registers];
  for (std::int64_t i = first_element(); i < program.elements; i += element_stride()) {
    program.evaluate(i, registers);
    for (int o = 0; o < program.output_count; ++o) store(program.outputs[o].dtype, program.outputs[o].data, i, registers[program.outputs[o].value]);
  }
}

class MapExecutable final : public Executable {
 public:
  MapExecutable(const Map& map, const KernelRequest& request, const Layout& layout, const ScalarProgram& program)
      : compute_{map.expression->compute}, program_{program} {
    input_layouts = demanded_layouts(request, map.domain, layout);
    output_layouts.assign(request.outputs.size(), layout);
    find_in_place(map, request);
  }

  void run(const Launch& launch) const override {
    if (program_.elements == 0) return;
    visit_compute(compute_, [&]<class T>() {
      map_elements<T><<<blocks_for(program_.elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
          bind(program_, launch.inputs, launch.outputs));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  // A thread reads all that its element needs before it writes: an input of the domain's shape may be written over.
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

  DType compute_;
  ScalarProgram program_;
};

inline std::unique_ptr<Executable> make_map(const KernelRequest& request) {
  const auto& map = *request.operation.get<Map>();
  const Layout layout = domain_layout(request, map.domain);
  const auto layouts = demanded_layouts(request, map.domain, layout);
  const auto program = compile_scalar_program(*map.expression, request.inputs, layouts, map.domain, storage_order(layout, map.domain), map.dtypes);
  if (program) return std::make_unique<MapExecutable>(map, request, layout, *program);
  const auto single = [&](Expression part, std::size_t o) {
    return Map{std::make_shared<const Expression>(std::move(part)), map.domain, {map.dtypes[o]}};
  };
  return make_parts(request, layouts, *map.expression, single, &make_map);
}
inline constexpr Kernel map_kernel{"cuda interpreter", &make_map};
inline const bool map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::reference, &map_kernel);

}  // namespace replicator::cuda
