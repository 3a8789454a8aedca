// SPDX-License-Identifier: Apache-2.0
// The reference kernel of Map on GPUs: an interpreter runs any scalar expression over broadcast inputs, in one launch.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/core/attributes.hpp>
#include <replicator/core/hash.hpp>
#include <replicator/cuda/check.cuh>
#include <replicator/cuda/expressions/expression_plan.hpp>
#include <replicator/cuda/expressions/map_executable.cuh>
#include <replicator/cuda/expressions/parts.cuh>
#include <replicator/cuda/expressions/scalar_program.cuh>
#include <replicator/cuda/launch.cuh>
#include <replicator/graph/kernel.hpp>
#include <replicator/graph/map.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cuda {

template <class T>
__global__ void interpret_map(const __grid_constant__ ScalarProgram program) {
  map_elements<T>(program);
}

// The programs and tiles of a merged launch are in the device's memory.
template <class T>
__global__ void interpret_merged_map(const ScalarProgram* programs, const MapTile* tiles) {
  const MapTile tile = tiles[blockIdx.x];
  map_tile<T>(programs[tile.program], tile.number);
}

inline constexpr std::string_view interpreter_name = "cuda interpreter";

class InterpretedMergedMap final : public MergedMap {
 public:
  InterpretedMergedMap(std::span<const Executable* const> parts, DType compute) : MergedMap{parts}, compute_{compute} { kernel = interpreter_name; }

  void run(const Launch& launch) const override {
    if (blocks() == 0) return;
    const auto* programs = reinterpret_cast<const ScalarProgram*>(launch.table);
    visit_compute(compute_, [&]<class T>() {
      interpret_merged_map<T><<<blocks(), block_threads, 0, stream_of(launch.stream)>>>(programs, tiles(launch));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }

 private:
  DType compute_;
};

class InterpretedMap final : public MapExecutable {
 public:
  InterpretedMap(const Map& map, const KernelRequest& request, const MapPlan& plan, const ScalarProgram& program)
      : MapExecutable{map, request, plan}, compute_{map.expression->compute}, program_{program} {
    Hasher hasher;
    AttributeHasher attributes{hasher};
    map.expression->describe(attributes);
    family = hasher.result();
  }

  void run(const Launch& launch) const override {
    if (program_.elements == 0) return;
    visit_compute(compute_, [&]<class T>() {
      interpret_map<T><<<blocks_for(program_.elements, block_threads), block_threads, 0, stream_of(launch.stream)>>>(
          bind(program_, launch.inputs, launch.outputs));
    });
    REPLICATOR_CUDA_CHECK(cudaGetLastError());
  }
  std::unique_ptr<Executable> merge(std::span<const Executable* const> parts) const override {
    return std::make_unique<InterpretedMergedMap>(parts, compute_);
  }
  std::size_t program_bytes() const override { return sizeof(ScalarProgram); }
  void write_program(std::byte* to, const std::byte* const* inputs, std::byte* const* outputs) const override {
    const ScalarProgram bound = bind(program_, inputs, outputs);
    std::memcpy(to, &bound, sizeof bound);
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
inline constexpr Kernel interpreted_map{interpreter_name, &make_interpreted_map};
inline const bool interpreted_map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::reference, &interpreted_map);

}  // namespace replicator::detail::cuda
