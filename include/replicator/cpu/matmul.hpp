// SPDX-License-Identifier: Apache-2.0
// Reference kernels of matmul on the CPU: plain loops. float64, int32 and int64 always run here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <replicator/cpu/in_float32.hpp>
#include <replicator/cpu/loops/parallel.hpp>
#include <replicator/graph/kernel.hpp>
#include <replicator/ops/matmul.hpp>

namespace replicator::detail::cpu {

namespace detail {

// Distance between rows and between columns of one matrix, which may be transposed.
struct MatrixStrides {
  std::int64_t row = 0, column = 0;
};
inline MatrixStrides matrix_strides(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? MatrixStrides{1, rows} : MatrixStrides{columns, 1};
}

// y = a b for one matrix. Each element adds its terms in ascending order. The columns run innermost, so that the loop vectorises
// where the rows of b are contiguous. Blocks of the depth keep the rows of b in the cache.
template <class T>
void multiply(const MatmulExtents& e, const T* a, MatrixStrides as, const T* b, MatrixStrides bs, T* y) {
  constexpr std::int64_t block = 64;
  std::fill(y, y + e.rows * e.columns, T{});
  for (std::int64_t k0 = 0; k0 < e.depth; k0 += block)
    for (std::int64_t i = 0; i < e.rows; ++i)
      for (std::int64_t k = k0; k < std::min(k0 + block, e.depth); ++k) {
        const T factor = a[i * as.row + k * as.column];
        const T* const from = b + k * bs.row;
        T* const to = y + i * e.columns;
        if (bs.column == 1)
          for (std::int64_t j = 0; j < e.columns; ++j) to[j] += factor * from[j];
        else
          for (std::int64_t j = 0; j < e.columns; ++j) to[j] += factor * from[j * bs.column];
      }
}

// Threads share the rows of y.
template <class T>
class MatmulLoops final : public Executable {
 public:
  MatmulLoops(const MatmulExtents& extents, const Matmul& op, const MatmulBatch& batch, int threads)
      : extents_{extents},
        batch_{batch},
        a_{matrix_strides(extents.rows, extents.depth, op.transpose_a)},
        b_{matrix_strides(extents.depth, extents.columns, op.transpose_b)},
        threads_{threads} {
    input_layouts.resize(2);
    output_layouts.resize(1);
    in_place = {-1};
  }
  void run(const Launch& launch) const override {
    const T* const a = reinterpret_cast<const T*>(launch.inputs[0]);
    const T* const b = reinterpret_cast<const T*>(launch.inputs[1]);
    T* const y = reinterpret_cast<T*>(launch.outputs[0]);
    const MatmulExtents& e = extents_;
    parallel_for(threads_, e.batch * e.rows, [&](int, std::int64_t begin, std::int64_t end) {
      MatmulExtents part = e;
      for (std::int64_t row = begin; row < end; row += part.rows) {
        const auto matrix = batch_.of(row / e.rows);
        part.rows = std::min(end - row, e.rows - row % e.rows);
        multiply(part, a + matrix.a * e.rows * e.depth + row % e.rows * a_.row, a_, b + matrix.b * e.depth * e.columns,
                 b_, y + row * e.columns);
      }
    });
  }

 private:
  MatmulExtents extents_;
  MatmulBatch batch_;
  MatrixStrides a_, b_;
  int threads_;
};

inline std::unique_ptr<Executable> make_matmul_loops(const KernelRequest& request) {
  const auto& op = *request.operation.get<Matmul>();
  const Shape& a = request.inputs[0].shape;
  const Shape& b = request.inputs[1].shape;
  const auto extents = matmul_extents(op, a, b);
  const auto batch = matmul_batch(op, a, b);
  switch (request.outputs[0].dtype) {
    case DType::float32:
      return std::make_unique<MatmulLoops<float>>(extents, op, batch, request.threads);
    case DType::float64:
      return std::make_unique<MatmulLoops<double>>(extents, op, batch, request.threads);
    case DType::int32:  // unsigned: too large sums wrap around
      return std::make_unique<MatmulLoops<std::uint32_t>>(extents, op, batch, request.threads);
    case DType::int64:
      return std::make_unique<MatmulLoops<std::uint64_t>>(extents, op, batch, request.threads);
    case DType::bfloat16:
      return in_float32(request, &make_matmul_loops);
    default:
      return nullptr;
  }
}

}  // namespace detail

inline constexpr Kernel matmul_loops{"matmul loops", &detail::make_matmul_loops};
inline const bool matmul_loops_registered =
    register_kernel<Matmul>(DeviceKind::cpu, KernelTier::reference, &matmul_loops);

}  // namespace replicator::detail::cpu
