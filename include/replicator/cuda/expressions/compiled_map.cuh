// SPDX-License-Identifier: Apache-2.0
// The kernel of Map on GPUs by NVRTC, which compiles the expression when the step is planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/core/hash.hpp>
#include <replicator/cuda/expressions/compiled_kernels.cuh>
#include <replicator/cuda/expressions/expression_source.hpp>
#include <replicator/cuda/expressions/map.cuh>

namespace replicator::detail::cuda {

class CompiledMergedMap final : public MergedMap {
 public:
  CompiledMergedMap(std::span<const Executable* const> parts, const CompiledKernels& kernels)
      : MergedMap{parts}, kernel_{kernels.kernel("compiled_merged_map")} {}

  void run(const Launch& launch) const override {
    const void* programs = launch.table;
    const MapTile* of_blocks = tiles(launch);
    launch_compiled(kernel_, blocks(), block_threads, launch, {&programs, &of_blocks});
  }

 private:
  cudaKernel_t kernel_;
};

class CompiledMap final : public MapExecutable {
 public:
  CompiledMap(const Map& map, const KernelRequest& request, const MapPlan& plan, ExpressionSource source, const CompiledKernels& kernels)
      : MapExecutable{map, request, plan}, merged_source_{merged_map_source(source, map.expression->compute)}, words_{std::move(source.words)}, kernel_{kernels.kernel("compiled_map")}, blocks_{blocks_for(map.domain.elements(), std::int64_t{block_threads} * source.at_once)} {
    Hasher hasher;
    hasher.text(source.text);
    family = hasher.result();
  }

  void run(const Launch& launch) const override {
    BoundProgram program{words_, *this, launch.inputs, launch.outputs};
    launch_compiled(kernel_, blocks_, block_threads, launch, {program.argument()});
  }
  // Compiled only here, because most expressions are never merged.
  std::unique_ptr<Executable> merge(std::span<const Executable* const> parts) const override {
    const auto* kernels = ExpressionCompiler::instance().compile(merged_source_);
    return kernels ? std::make_unique<CompiledMergedMap>(parts, *kernels) : nullptr;
  }
  std::size_t program_bytes() const override { return words_.size() * sizeof(std::uint64_t); }
  void write_program(std::byte* to, const std::byte* const* inputs, std::byte* const* outputs) const override {
    BoundProgram program{words_, *this, inputs, outputs};
    std::memcpy(to, program.argument(), program_bytes());
  }

 private:
  std::string merged_source_;
  std::vector<std::uint64_t> words_;
  cudaKernel_t kernel_;
  unsigned blocks_;
};

// Null, so that the interpreter is used, where there is nothing to compute or the expression cannot be compiled.
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
inline const bool compiled_map_registered = register_kernel<Map>(DeviceKind::cuda, KernelTier::compiled, &compiled_map);

}  // namespace replicator::detail::cuda
