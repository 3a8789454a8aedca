// SPDX-License-Identifier: Apache-2.0
// Kernels of matmul on float32 or bfloat16 by oneDNN, on row-major memory. Sums are in float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/cpu/loops/tile_loops.hpp>
#include <replicator/cpu/onednn/onednn_primitive.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::detail::cpu::onednn {

// An operand whose rows lie a multiple of 2 KiB apart. On AVX2, oneDNN reads it in place where the other operand is narrow (its source
// calls that "nocopy"). Rows at such a distance evict one another from the caches, and the product takes 1.3 to 4 times as long. So the
// operand is copied first, to rows that lie one cache line further apart.
struct CollidingRows {
  static constexpr std::int64_t line = 16;  // floats

  std::int64_t rows = 0, columns = 0;  // no rows: the operand is used where it is

  std::int64_t stride() const { return columns + line; }
  std::size_t bytes() const { return static_cast<std::size_t>(rows * stride()) * sizeof(float); }

  void copy(int threads, const std::byte* from, std::byte* to) const {
    const auto length = static_cast<std::size_t>(columns) * sizeof(float), distance = static_cast<std::size_t>(stride()) * sizeof(float);
    parallel_for(threads, rows, [&](int, std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) std::memcpy(to + i * distance, from + i * length, length);
    });
  }
};

// `narrow`: the extent of the result that this operand does not have. The bound 0.0038 is FORCE_NOCOPY_THRESH of oneDNN 2.6 and 3,
// src/cpu/x64/gemm/gemm_driver.cpp. Operands of more than 64 MiB stay where they are, because their copies would take much memory.
inline CollidingRows colliding_rows(std::int64_t rows, std::int64_t columns, std::int64_t narrow) {
  const bool in_place = 1 / static_cast<double>(narrow) + 1 / static_cast<double>(columns) >= 0.0038;
  const bool pays = narrow >= 32 && rows >= 256 && rows * columns <= std::int64_t{16} << 20;
  if (instruction_level() != InstructionLevel::avx2 || !in_place || !pays || columns % 512 != 0) return {};
  return {rows, columns};
}

class MatmulPrimitive final : public Executable {
 public:
  MatmulPrimitive(PrimitiveDescription description, const std::array<MemoryDescription, 3>& memory, const std::array<CollidingRows, 2>& copies, int threads)
      : memory_{memory}, primitive_{std::move(description)}, copies_{copies}, threads_{threads} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
    scratch_bytes = copies_[0].bytes() + copies_[1].bytes() + primitive_.scratch_bytes();
  }
  void run(const Launch& launch) const override {
    std::array operands{launch.inputs[0], launch.inputs[1]};
    std::byte* scratch = launch.scratch;
    for (std::size_t i = 0; i < 2; ++i) {
      if (copies_[i].rows == 0) continue;
      copies_[i].copy(threads_, operands[i], scratch);
      operands[i] = scratch;
      scratch += copies_[i].bytes();
    }
    const Argument arguments[] = {{DNNL_ARG_SRC, &memory_[0], operands[0]},
                                  {DNNL_ARG_WEIGHTS, &memory_[1], operands[1]},
                                  {DNNL_ARG_DST, &memory_[2], launch.outputs[0]}};
    primitive_.run(arguments, scratch);
  }

 private:
  std::array<MemoryDescription, 3> memory_;
  Primitive primitive_;
  std::array<CollidingRows, 2> copies_;
  int threads_;
};

// Describes one operand: the axes of the batch, then rows and columns, which may be transposed. An axis of the batch has extent 1
// where its stride is 0, because the matrix is repeated. `padding`: elements between the rows that are stored.
inline MemoryDescription matrices(const MatmulBatch& batch, const std::int64_t* strides, std::int64_t rows, std::int64_t columns, bool transposed,
                                  dnnl_data_type_t type, std::int64_t padding = 0) {
  std::array<std::int64_t, Shape::max_rank> extents{}, steps{};
  for (std::size_t i = 0; i < batch.rank; ++i) {
    extents[i] = strides[i] == 0 ? 1 : batch.extents[i];
    steps[i] = (strides[i] == 0 ? 1 : strides[i]) * rows * columns;
  }
  extents[batch.rank] = rows;
  extents[batch.rank + 1] = columns;
  steps[batch.rank] = transposed ? 1 : columns + padding;
  steps[batch.rank + 1] = transposed ? rows + padding : 1;
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
  std::array<CollidingRows, 2> copies{};
  if (dtype == DType::float32 && batch.rank == 0) {
    if (op.transpose_a) copies[0] = colliding_rows(e.depth, e.rows, e.columns);
    if (!op.transpose_b) copies[1] = colliding_rows(e.depth, e.columns, e.rows);
  }
  const auto padding = [&](std::size_t i) { return copies[i].rows == 0 ? 0 : CollidingRows::line; };
  const std::array memory{matrices(batch, batch.a, e.rows, e.depth, op.transpose_a, type, padding(0)),
                          matrices(batch, batch.b, e.depth, e.columns, op.transpose_b, type, padding(1)),
                          matrices(batch, y.data(), e.rows, e.columns, false, type)};
  auto described = describe(&dnnl_matmul_primitive_desc_create, "dnnl_matmul_primitive_desc_create", engine(), memory[0].get(), memory[1].get(),
                            nullptr, memory[2].get());
  if (!described) return dtype == DType::bfloat16 ? in_float32(request, &make_matmul) : nullptr;
  return std::make_unique<MatmulPrimitive>(std::move(described), memory, copies, request.threads);
}

inline constexpr Kernel matmul_kernel{"oneDNN matmul", &make_matmul};
inline const bool matmul_registered = register_kernel<Matmul>(DeviceKind::cpu, KernelTier::library, &matmul_kernel);

}  // namespace replicator::detail::cpu::onednn
