// SPDX-License-Identifier: Apache-2.0
// Kernels of matmul on float32 or bfloat16 by oneDNN, on row-major memory. Sums are in float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/onednn/onednn_primitive.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::detail::cpu::onednn {

class MatmulPrimitive final : public Executable {
 public:
  MatmulPrimitive(PrimitiveDescription description, const std::array<MemoryDescription, 3>& memory)
      : memory_{memory}, primitive_{std::move(description)} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    scratch_bytes = primitive_.scratch_bytes();
  }
  void run(const Launch& launch) const override {
    const Argument arguments[] = {{DNNL_ARG_SRC, &memory_[0], launch.inputs[0]},
                                  {DNNL_ARG_WEIGHTS, &memory_[1], launch.inputs[1]},
                                  {DNNL_ARG_DST, &memory_[2], launch.outputs[0]}};
    primitive_.run(arguments, launch.scratch);
  }

 private:
  std::array<MemoryDescription, 3> memory_;
  Primitive primitive_;
};

// Describes one operand: the axes of the batch, then rows and columns, which may be transposed. An axis of the batch has extent 1
// where its stride is 0, because the matrix is repeated.
inline MemoryDescription matrices(const MatmulBatch& batch, const std::int64_t* strides, std::int64_t rows,
                                  std::int64_t columns, bool transposed, dnnl_data_type_t type) {
  std::array<std::int64_t, Shape::max_rank> extents{}, steps{};
  for (std::size_t i = 0; i < batch.rank; ++i) {
    extents[i] = strides[i] == 0 ? 1 : batch.extents[i];
    steps[i] = (strides[i] == 0 ? 1 : strides[i]) * rows * columns;
  }
  extents[batch.rank] = rows;
  extents[batch.rank + 1] = columns;
  steps[batch.rank] = transposed ? 1 : columns;
  steps[batch.rank + 1] = transposed ? rows : 1;
  return strided(std::span{extents}.first(batch.rank + 2), type, steps.data());
}

// One product of small float32 matrices by dnnl_sgemm. The overhead of a primitive would be as large as the product.
class SmallMatmul final : public Executable {
 public:
  static constexpr std::int64_t most_products = std::int64_t{1} << 20;  // rows * depth * columns

  SmallMatmul(const Matmul& op, const MatmulExtents& extents) : op_{op}, extents_{extents} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const auto& e = extents_;
    require(dnnl_sgemm(op_.transpose_a ? 'T' : 'N', op_.transpose_b ? 'T' : 'N', e.rows, e.columns, e.depth, 1.0f,
                       reinterpret_cast<const float*>(launch.inputs[0]), op_.transpose_a ? e.rows : e.depth,
                       reinterpret_cast<const float*>(launch.inputs[1]), op_.transpose_b ? e.depth : e.columns, 0.0f,
                       reinterpret_cast<float*>(launch.outputs[0]), e.columns),
            "dnnl_sgemm");
  }

 private:
  Matmul op_;
  MatmulExtents extents_;
};

inline std::unique_ptr<Executable> make_matmul(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const Shape& a = request.inputs[0].shape;
  const Shape& b = request.inputs[1].shape;
  const DType dtype = request.outputs[0].dtype;
  if ((dtype != DType::float32 && dtype != DType::bfloat16) || a.elements() == 0 || b.elements() == 0) return nullptr;
  const auto e = matmul_extents(op, a, b);
  const auto batch = matmul_batch(op, a, b);
  if (dtype == DType::float32 && batch.rank == 0 && e.rows * e.depth * e.columns <= SmallMatmul::most_products)
    return std::make_unique<SmallMatmul>(op, e);
  const OpenMpThreads guard{request.threads};
  std::array<std::int64_t, Shape::max_rank> y{};
  std::int64_t stride = 1;
  for (std::size_t i = batch.rank; i-- > 0; stride *= batch.extents[i]) y[i] = stride;
  const auto type = *data_type(dtype);
  const std::array memory{matrices(batch, batch.a, e.rows, e.depth, op.transpose_a, type),
                          matrices(batch, batch.b, e.depth, e.columns, op.transpose_b, type),
                          matrices(batch, y.data(), e.rows, e.columns, false, type)};
  auto described = describe(&dnnl_matmul_primitive_desc_create, "dnnl_matmul_primitive_desc_create", engine(), memory[0].get(), memory[1].get(),
                            nullptr, memory[2].get());
  if (!described) return dtype == DType::bfloat16 ? in_float32(request, &make_matmul) : nullptr;
  return std::make_unique<MatmulPrimitive>(std::move(described), memory);
}

inline constexpr Kernel matmul_kernel{"oneDNN matmul", &make_matmul};
inline const bool matmul_registered = register_kernel<Matmul>(DeviceKind::cpu, KernelTier::library, &matmul_kernel);

}  // namespace replicator::detail::cpu::onednn
