// SPDX-License-Identifier: Apache-2.0
// Kernels of LayoutCopy by oneDNN, which generates code for each pair of layouts. They are for copies into blocked layouts.
// copy.hpp is faster where it moves rectangles by AVX-512, and then it is taken. All of them only move bits.
//
// Times relative to oneDNN, for the weights of ResNet-50 and the blocks of convolutions (one thread, each weight cold):
//
//   copies of                 bfloat16        float32
//   rectangles into blocks    0.35 to 0.45    0.6 to 0.9
//   rectangles out of blocks  0.2             0.2
//   plain loops into blocks   2 to 8          2 to 8
#pragma once

#include <memory>
#include <utility>

#include <replicator/cpu/copy.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/onednn/onednn_primitive.hpp>
#include <replicator/graph/layout_copy.hpp>
#include <replicator/graph/operation.hpp>

namespace replicator::detail::cpu::onednn {

class ReorderExecutable final : public Executable {
 public:
  ReorderExecutable(PrimitiveDescription description, const MemoryDescription& from, const MemoryDescription& to)
      : from_{from}, to_{to}, primitive_{std::move(description)} {
    scratch_bytes = primitive_.scratch_bytes();
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const Argument arguments[] = {{DNNL_ARG_FROM, &from_, launch.inputs[0]}, {DNNL_ARG_TO, &to_, launch.outputs[0]}};
    primitive_.run(arguments, launch.scratch);
  }

 private:
  MemoryDescription from_, to_;
  Primitive primitive_;
};

// Makes the copy. Returns null where copy.hpp is faster at this level, for tensors without elements, and for layouts that oneDNN
// has no name for. Types other than float32 and bfloat16 also give null: oneDNN loses bits of large int32 on the way between
// unusual layouts.
inline std::unique_ptr<Executable> make_reorder_at(InstructionLevel level, const KernelRequest& request) {
  const auto& type = request.inputs[0];
  const Layout &from = request.offered[0], &to = request.operation.get<LayoutCopy>()->to;
  const bool floating = type.dtype == DType::float32 || type.dtype == DType::bfloat16;
  if (to.plain || !floating || type.shape.elements() == 0) return nullptr;
  if (level == InstructionLevel::avx512 && copies_rectangles(type.shape, type.dtype, from, to)) return nullptr;
  const OpenMpThreads guard{request.threads};
  const auto element = *data_type(type.dtype);
  const auto source = described(type.shape, element, from), target = described(type.shape, element, to);
  if (!source.get() || !target.get()) return nullptr;
  auto reorder = describe_reorder(source, target);
  if (!reorder) return nullptr;
  auto result = std::make_unique<ReorderExecutable>(std::move(reorder), source, target);
  result->input_layouts = {from};
  result->output_layouts = {to};
  return result;
}
inline std::unique_ptr<Executable> make_reorder(const KernelRequest& request) { return make_reorder_at(instruction_level(), request); }

inline constexpr Kernel reorder_kernel{"oneDNN reorder", &make_reorder};
inline const bool reorder_registered = register_kernel<LayoutCopy>(DeviceKind::cpu, KernelTier::library, &reorder_kernel);

}  // namespace replicator::detail::cpu::onednn
